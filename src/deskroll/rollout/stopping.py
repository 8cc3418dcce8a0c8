"""An error from its record: for an attempt that is stopped from another process."""

from __future__ import annotations

from deskroll import errors
from deskroll.errors import DeskrollError, DesktopLost
from deskroll.types import Failure

RUN_STOPS = "the run stops here, since it cannot go on without it: resume it"
"""What follows from the death of background work that a run needs."""
_ERRORS = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, DeskrollError)]


def error_of(failure: Failure) -> DeskrollError:
    """The error that the record was made of, by its kind; one of its class where that is nobody's own."""
    if failure.kind is DesktopLost.kind and failure.cause is not None:
        return DesktopLost(failure.message, failure.cause)
    fitting = [each for each in _ERRORS if each.failure is failure.failure_class]
    return next((each for each in fitting if each.kind is failure.kind), fitting[0])(failure.message)
