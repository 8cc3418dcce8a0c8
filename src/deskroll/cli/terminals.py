"""Standard output and error on a terminal that may vanish while the work goes on.

Whoever ignores SIGHUP outlives the terminal (`nohup`, `disown`); what is written to it from then on is an error (EIO),
which is no reason to end a run.
"""

from __future__ import annotations

import errno
import io
import os
from typing import TextIO


class _Terminal(io.FileIO):
    """A terminal; when it is gone, what is written goes nowhere."""

    def write(self, data: object) -> int:
        """Write, or fall silent."""
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return len(memoryview(data))  # type: ignore[arg-type]


def lasting(stream: TextIO) -> TextIO:
    """The stream, able to outlive its terminal; whatever it cannot show is replaced, and no reason to fail."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.reconfigure(errors="replace")
    if not stream.isatty():
        return stream
    terminal = io.BufferedWriter(_Terminal(stream.fileno(), "w", closefd=False))
    return io.TextIOWrapper(terminal, encoding=stream.encoding, errors="replace", line_buffering=True)
