"""An error from its record: for an attempt that is stopped from another process."""

from __future__ import annotations

from deskroll import errors
from deskroll.errors import DeskrollError, DesktopLost
from deskroll.types import Failure

RUN_STOPS = "the run stops here, since it cannot go on without it: resume it"
"""What follows from the death of background work that a run needs."""


def error_of(failure: Failure) -> DeskrollError:
    """The error that the record was made of, by its kind."""
    if failure.kind == DesktopLost.__name__ and failure.cause is not None:
        return DesktopLost(failure.message, failure.cause)
    kind = getattr(errors, failure.kind, None)
    if isinstance(kind, type) and issubclass(kind, DeskrollError) and kind.failure is failure.failure_class:
        return kind(failure.message)
    return next(
        each(failure.message)
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, DeskrollError) and each.failure is failure.failure_class
    )
