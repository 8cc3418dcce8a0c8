"""Standard output and error whose reader may vanish while the work goes on.

Guarantees: a reader that is gone changes neither the work nor the exit code, and is no reason for a word. It may have
closed the pipe (`| head -1`: EPIPE), or have been a terminal that whoever ignores SIGHUP outlives (`nohup`, `disown`:
EIO).
"""

from __future__ import annotations

import errno
import io
import os
from typing import TextIO

_GONE = (errno.EPIPE, errno.EIO)


class _Lasting(io.FileIO):
    """Where something is written; when its reader is gone, what is written goes nowhere."""

    unread = False
    """Whether the reader is gone."""

    def write(self, data: object) -> int:
        """Write, or fall silent."""
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            if error.errno not in _GONE:
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            self.unread = True
            return len(memoryview(data))  # type: ignore[arg-type]


def lasting(stream: TextIO) -> TextIO:
    """The stream, able to outlive its reader; whatever it cannot show is replaced, and no reason to fail."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.reconfigure(errors="replace")
    try:
        number = stream.fileno()
    except OSError:  # it is in memory
        return stream
    buffer = io.BufferedWriter(_Lasting(number, "w", closefd=False))
    return io.TextIOWrapper(
        buffer,
        encoding=stream.encoding,
        errors="replace",
        line_buffering=stream.line_buffering or stream.isatty(),
        write_through=stream.write_through,
    )


def is_unread(stream: TextIO) -> bool:
    """Whether nobody reads a lasting stream any more: whoever only shows something is done then."""
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return isinstance(raw, _Lasting) and raw.unread
