"""Runs a coroutine to its end from plain code, wherever that is: in a script, in a notebook, in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from deskroll.conduct.program import interrupted
from deskroll.errors import DeskrollError
from deskroll.rollout.main_thread import refuse_after_main_thread

T = TypeVar("T")


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result. Where a loop runs already (a notebook), it gets a thread and a loop of its own.

    Ctrl-C cancels it, and is raised once it has ended.
    """
    try:
        refuse_after_main_thread()
    except DeskrollError:
        work.close()
        raise
    import uvloop  # noqa: PLC0415  (it cannot be imported once the main thread has ended)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        try:
            return uvloop.run(work)
        except asyncio.CancelledError:  # by Ctrl-C, of which the work itself has taken note
            raise KeyboardInterrupt from None
    began: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = Future()
    ended: Future[T] = Future()

    async def held() -> T:
        task = asyncio.ensure_future(work)
        began.set_result((asyncio.get_running_loop(), task))
        return await task

    def run() -> None:
        try:
            ended.set_result(uvloop.run(held()))
        except BaseException as error:  # noqa: BLE001  (whatever it is, it is raised where it was asked for)
            ended.set_exception(error)

    thread = threading.Thread(target=run, name="deskroll-run")
    thread.start()
    try:
        return ended.result()
    except KeyboardInterrupt:
        loop, task = began.result()
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise


def run_for_command(work: Coroutine[Any, Any, T]) -> T:
    """As `run_to_end`, for a command: one that is interrupted says so, and ends with the exit code for that."""
    try:
        return run_to_end(work)
    except KeyboardInterrupt:
        raise interrupted() from None
