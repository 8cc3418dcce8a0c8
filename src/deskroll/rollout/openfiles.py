"""The limit on open files: thousands of episodes have thousands of connections."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
from typing import Any

from deskroll.errors import InputError

_log = logging.getLogger(__name__)
_OWN = 64
"""Files that a run has open before any episode does."""


def raise_open_files() -> None:
    """Allow this process as many open files as it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def check_open_files(episodes: int) -> None:
    """Refuse a run that cannot have as many episodes in flight: at least, each has a connection to its model."""
    most, needed = resource.getrlimit(resource.RLIMIT_NOFILE)[0], _OWN + episodes
    if 0 <= most < needed:
        raise InputError(
            f"a process may have {most} open files here, and {episodes} episodes at a time need at least {needed}: "
            "raise `ulimit -n`, or lower num_rollouts"
        )


def tell_open_files(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An exception handler of event loops: that no more files can be opened is one line, and all else as usual."""
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        _log.warning("too many open files: raise `ulimit -n`, or run fewer episodes at a time")
    else:
        loop.default_exception_handler(context)
