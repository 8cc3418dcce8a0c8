"""Where a suspended task stands: every frame down to what it waits for, which asyncio's own stack leaves out."""

from __future__ import annotations

import asyncio
import linecache
from types import FrameType


def stack_of(task: asyncio.Task[object]) -> str:
    """The frames of a task that waits, outermost first, as a traceback shows them."""
    lines = []
    waiting: object = task.get_coro()
    while waiting is not None:
        frame = _frame(waiting)
        if frame is None:
            lines.append(f"  waiting for {waiting!r:.300}")
            break
        path, number = frame.f_code.co_filename, frame.f_lineno
        lines.append(f'  File "{path}", line {number}, in {frame.f_code.co_name}')
        lines.append(f"    {linecache.getline(path, number).strip()}")
        waiting = _awaited(waiting)
    return "\n".join(lines)


def _frame(waiting: object) -> FrameType | None:
    names = ("cr_frame", "gi_frame", "ag_frame")
    return next((found for name in names if (found := getattr(waiting, name, None)) is not None), None)


def _awaited(waiting: object) -> object | None:
    names = ("cr_await", "gi_yieldfrom", "ag_await")
    return next((found for name in names if (found := getattr(waiting, name, None)) is not None), None)
