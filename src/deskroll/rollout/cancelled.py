"""Cancellation: who has sent it decides what it means.

One that somebody sent to the attempt's task passes through. One that nobody sent comes from within the code of an agent
or an environment (it awaits something that was cancelled), and is a failure of that code like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from deskroll.errors import DeskrollError, FailureClass, boundary
from deskroll.rollout.live_attempt import LiveAttempt


class blaming(boundary):  # noqa: N801  (as `boundary`)
    """A `boundary`, also for a cancellation that nobody has sent."""

    __slots__ = ("_live",)

    def __init__(self, live: LiveAttempt, culprit: FailureClass, what: str, *, bug: FailureClass | None = None) -> None:
        super().__init__(culprit, what, bug=bug)
        self._live = live

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.blame(_told(error, self._live))


@contextmanager
def from_within(live: LiveAttempt) -> Iterator[None]:
    """Turn a cancellation that nobody has sent into an error that says so."""
    try:
        yield
    except asyncio.CancelledError as error:
        if (told := _told(error, live)) is error:
            raise
        raise told from None


def _told(error: BaseException, live: LiveAttempt) -> BaseException:
    """The error that a cancellation which nobody has sent amounts to; any other is itself."""
    if not isinstance(error, asyncio.CancelledError) or live.cancelled or being_cancelled():
        return error
    made = DeskrollError("its code was cancelled from within: it awaits something that was cancelled")
    made.unforeseen = error
    return made


def being_cancelled() -> bool:
    """Whether somebody has cancelled the task that asks."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def uncancel() -> None:
    """What cancelled the task that asks is dealt with: it goes on."""
    task = asyncio.current_task()
    while task is not None and task.uncancel():
        pass
