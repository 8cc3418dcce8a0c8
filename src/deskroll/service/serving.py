"""A service for a person: opened, shown, drained by the first Ctrl-C or SIGTERM and stopped by the second."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Callable
from contextlib import AsyncExitStack

import msgspec
from rich.console import Console

from deskroll.conduct.console import stderr
from deskroll.conduct.interrupts import Interrupts
from deskroll.conduct.log_lines import LogLines
from deskroll.conduct.program import program
from deskroll.conduct.view import Progress
from deskroll.errors import InputError, plain
from deskroll.events import BatchEnded, BatchRefused, BatchTaken, Event, RunClosed, RunOpened
from deskroll.report.words import counted, duration
from deskroll.rollout.changes import ChangedSince
from deskroll.rollout.main_thread import outlasting_main_thread
from deskroll.rollout.openfiles import check_open_files, raise_open_files, tell_open_files
from deskroll.service.config import ServiceConfig
from deskroll.service.loop import Service

_log = logging.getLogger(__name__)
_TOLD = (RunOpened, BatchTaken, BatchEnded, BatchRefused, RunClosed)
"""What programs are told of a service; all else: `deskroll events`."""
_FORCE = "(of a service: --force finishes the batches that were begun with the settings that it has now)"


class Told:
    """An event sink: says what becomes of batches, in the log or to a program."""

    def __init__(self, put: Callable[[bytes], None] | None) -> None:
        """`put`: takes each event as a line of JSON."""
        self._put = put

    def emit(self, event: Event) -> None:
        """Tell one event."""
        if self._put is not None and isinstance(event, _TOLD):
            self._put(msgspec.json.encode(event))
        if isinstance(event, BatchTaken):
            again = ", of an earlier start" if event.again else ""
            _log.info("batch %s: %s%s, round %d", plain(event.batch), counted(event.tasks, "task"), again, event.round)
        elif isinstance(event, BatchEnded):
            _log.info("batch %s: done after %s", plain(event.batch), duration(event.seconds))


async def serve(config: ServiceConfig, *, force: bool = False, put: Callable[[bytes], None] | None = None) -> int:
    """Serve until it is stopped, or has had its batches; the exit code."""
    console = stderr()
    raise_open_files()
    check_open_files(config.num_rollouts)
    asyncio.get_running_loop().set_exception_handler(tell_open_files)
    async with AsyncExitStack() as stack:
        stack.enter_context(outlasting_main_thread())
        interrupts = stack.enter_context(Interrupts(console, urgent=()))
        stack.enter_context(LogLines(console))
        service = await stack.enter_async_context(Service.open(config, Told(put)))
        folder = service.runtime.folder
        _say(console, f"serving batches from {config.source.shown}, kept in {folder}")
        _say(console, f"more:  {program()} status {shlex.quote(folder)}")
        progress = Progress(console, service.runtime.status, lines=False)
        async with progress.shown():
            try:
                await interrupts.guarded(service, service.run(force=force))
            except ChangedSince as error:
                raise InputError(f"{error}\n{_FORCE}") from error
        counts = service.counts
    _say(console, counts)
    return 130 if interrupts.count > 1 else 0


def _say(console: Console, line: str) -> None:
    """A line as it is, however long: it may be pasted."""
    console.print(plain(line, len(line)), highlight=False, soft_wrap=True)
