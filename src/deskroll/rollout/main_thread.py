"""The end of the main thread, under a run that goes on in another one: the process waits for the run first.

Python shuts down every pool of threads when the main thread has ended, and waits for other threads then: a run could
write nothing any more, and would never end. Ctrl-C while the process waits so cancels the run.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from deskroll.errors import DeskrollError

_changed = threading.Condition()
_runs: dict[asyncio.Task[Any], asyncio.AbstractEventLoop] = {}
"""What the main thread has to wait for."""
_endless: set[asyncio.Task[Any]] = set()
"""Those of them that do not end by themselves."""
_hook: list[str] = []
"""Whether the main thread will wait, and whether it has ended: once it has, nothing can be started."""


@contextmanager
def outlasting_main_thread(*, endless: bool = False) -> Iterator[None]:
    """The task that is inside of the block comes to its end, unless its thread is one that nobody waits for.

    `endless`: it would not end by itself, and is cancelled when the main thread has ended.
    """
    thread, task = threading.current_thread(), asyncio.current_task()
    if thread is threading.main_thread() or thread.daemon or task is None or task in _runs:
        yield
        return
    with _changed:
        _refuse_late()
        _runs[task] = asyncio.get_running_loop()
        if endless:
            _endless.add(task)
    try:
        yield
    finally:
        with _changed:
            del _runs[task]
            _endless.discard(task)
            _changed.notify_all()


def refuse_after_main_thread() -> None:
    """Say so where the main thread has ended: not even what a run needs can be imported then."""
    if threading.current_thread() is not threading.main_thread():
        with _changed:
            _refuse_late()


def _refuse_late() -> None:
    _set_hook()
    if "ended" in _hook:
        raise DeskrollError("the main thread has ended, and nothing can be started any more: have it join this one")


def _set_hook() -> None:
    if _hook:
        return
    try:
        import concurrent.futures.thread  # noqa: F401, PLC0415  (whose hook must be there before: the last is first)

        # Nothing else is called before pools of threads are shut down; what `atexit` has comes long after.
        threading._register_atexit(_await_runs)  # type: ignore[attr-defined]
        _hook.append("set")
    except RuntimeError:  # it is too late
        _hook.append("ended")


def _await_runs() -> None:
    with _changed:
        for task in _endless:
            _runs[task].call_soon_threadsafe(task.cancel)
        while _runs:
            try:
                _changed.wait()
            except KeyboardInterrupt:
                for task, loop in _runs.items():
                    loop.call_soon_threadsafe(task.cancel)
        _hook.append("ended")
