"""The consoles that commands print to."""

from __future__ import annotations

from rich.console import Console


class Quiet(Console):
    """A console for what goes on beside the result: when its reader is gone it falls silent, and the work goes on."""

    def on_broken_pipe(self) -> None:
        """Print no more; rich would end the process, in the middle of whatever it is doing."""
        self.quiet = True


def stderr() -> Console:
    """Where progress, log lines and hints go."""
    return Quiet(stderr=True)
