"""The consoles that commands print to."""

from __future__ import annotations

import contextlib
import os

from rich.console import Console

from deskroll.host.console import PlainConsole


class Quiet(PlainConsole):
    """A console for what goes on beside the result: when its reader is gone it falls silent, and the work goes on."""

    def on_broken_pipe(self) -> None:
        """Print no more; rich would end the process, in the middle of whatever it is doing."""
        self.quiet = True
        # What others still write there, and what is left in its buffer at the end, has to go somewhere.
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.file.fileno())
            os.close(nowhere)


def stderr() -> Console:
    """Where progress, log lines and hints go."""
    return Quiet(stderr=True)
