"""The consoles that commands print to."""

from __future__ import annotations

from rich.console import Console

from deskroll.host.console import PlainConsole


def stderr(*, quiet: bool = False) -> Console:
    """Where progress, log lines and hints go; `quiet`: nowhere."""
    return PlainConsole(stderr=True, quiet=quiet)
