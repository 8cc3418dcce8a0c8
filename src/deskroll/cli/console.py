"""The consoles that commands print to."""

from __future__ import annotations

from rich.console import Console

from deskroll.host.console import PlainConsole


def stderr() -> Console:
    """Where progress, log lines and hints go."""
    return PlainConsole(stderr=True)
