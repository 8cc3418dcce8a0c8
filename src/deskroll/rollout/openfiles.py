"""The limit on open files: thousands of episodes have thousands of connections."""

from __future__ import annotations

import resource


def raise_open_files() -> None:
    """Allow this process as many open files as it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
