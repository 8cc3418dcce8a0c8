"""What getters run and read in the desktop, whosever they are: commands, and how large a file may be.

Guarantees: a command counts only when it has ended by itself. What one printed that was cut off, by a signal (as the
memory limit does it) or by its time limit, says nothing of the desktop's state: it is an `EvaluatorError`, never a 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from deskroll.desktops.base import Desktop, RunResult
from deskroll.errors import CommandTimeout, EvaluatorError, plain

RUN_S = 120.0
"""For a command; that of OSWorld's own guest."""
LARGEST_FILE = 64 * 1024 * 1024
"""Bytes of a file of a desktop that is judged; a larger one is a 0."""
_LONGEST = 200


async def run_whole(desktop: Desktop, command: Sequence[str] | str) -> RunResult:
    """Run a command to its own end; a string goes through the shell."""
    try:
        done = await desktop.run(command, timeout=RUN_S)
    except CommandTimeout as error:
        raise EvaluatorError(plain(str(error))) from error
    if done.signal:
        raise EvaluatorError(cut_off(desktop.id, command, done.signal))
    return done


def cut_off(desktop: str, command: object, signal: str) -> str:
    """What is said of a command that a signal has ended."""
    shown = plain(command if isinstance(command, str) else str(command), _LONGEST)
    return f"desktop {desktop}: {shown} was ended by {signal}, so what it printed cannot be judged"
