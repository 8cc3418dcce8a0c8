"""Model: what agents and the engine know of a model server, and how it refuses.

Messages and tools cross this seam as encoded JSON: a screen is encoded once (`Message`), however often it is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Protocol

from deskroll.errors import FailureClass, FailureKind, ModelError
from deskroll.types import Completion, Record, Sampling


class EpisodeClock(Protocol):
    """The clock of whoever asks: what is not the model's thinking does not count against it."""

    def paused(self) -> AbstractContextManager[None]:
        """What happens in this block takes no time."""

    def asking(self) -> AbstractContextManager[None]:
        """In this block a request is open, and the server's answer is waited for."""

    def credit(self, seconds: float) -> None:
        """So much of what has passed does not count."""


class NoClock:
    """The clock of somebody who does not count."""

    def paused(self) -> AbstractContextManager[None]:
        """See `EpisodeClock`."""
        return nullcontext()

    def asking(self) -> AbstractContextManager[None]:
        """See `EpisodeClock`."""
        return nullcontext()

    def credit(self, seconds: float) -> None:
        """See `EpisodeClock`."""


episode_clock: ContextVar[EpisodeClock | None] = ContextVar("episode_clock", default=None)
"""The clock that runs while a model is asked, if any does."""


class ModelCall(Record, frozen=True):
    """What belongs to one call and not to the model: how it is sampled, for whom, and until when."""

    sampling: Sampling | None = None
    """None: as the model's settings say."""
    session: str = ""
    """Who asks: calls of one session have most of their messages in common. Empty: nobody in particular."""
    deadline: float | None = None
    """When nobody wants the answer any more, on `clocks.running_time`; None: as long as the settings allow."""
    endpoint: str = ""
    """Whom it was led to, as the answer names them; empty: the client's own address."""
    version: str = ""
    """Of the weights that answer, where whoever led it there knows; empty: as the answer's header says."""


ANY_CALL = ModelCall()


class Model(Protocol):
    """Messages in, completion out."""

    async def complete(
        self, messages: Sequence[bytes], tools: bytes | None = None, *, call: ModelCall = ANY_CALL
    ) -> Completion:
        """Answer a conversation.

        `messages` are encoded JSON objects (`Message.sent` or `Message.lean`), `tools` is the encoded JSON list of what
        may be called. Raises `ModelError` when no answer could be had, `ModelRefused` when asking again is useless.
        """


class EndpointLoad(Record, frozen=True):
    """What goes on at one endpoint at a moment: what status, routing and the watchdog read."""

    url: str
    """Without credentials and query."""
    in_flight: int = 0
    """Requests that are open."""
    oldest_s: float = 0.0
    """How long the oldest open request has been waiting; 0 where none is open."""
    since_answer_s: float | None = None
    """Seconds since the last complete answer; None where there was none yet."""
    calls: int = 0
    """Requests so far, each attempt counted."""
    failures: int = 0
    """Those that brought no usable answer."""
    last_error: str = ""
    state: str = ""
    """Behind a router: `starting`, `up`, `closed` (it failed) or `draining`; empty: there is none."""
    version: str = ""
    """Of the weights that it serves, where its router knows."""
    limit: int | None = None
    """The most requests that its router opens at a time; None: nobody counts."""
    queue: int = 0
    """Requests that wait in the server itself, where it says."""

    @property
    def silent_s(self) -> float:
        """For how long it has answered nobody, of the time in which somebody has waited for it."""
        if not self.in_flight:
            return 0.0
        return self.oldest_s if self.since_answer_s is None else min(self.oldest_s, self.since_answer_s)


class ModelRefused(ModelError):
    """The server refused a request in a way that asking again does not mend; `status` is its HTTP status."""

    kind = FailureKind.MODEL_REFUSED

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class ModelForbidden(ModelRefused):
    """The key, the model or the address is wrong, or the account is empty: nobody who asks there will be answered."""

    kind = FailureKind.MODEL_FORBIDDEN


class ContextTooLong(ModelRefused):
    """The conversation is longer than the model takes: the agent let it grow, so the agent is at fault."""

    failure = FailureClass.AGENT
    kind = FailureKind.CONTEXT_TOO_LONG
