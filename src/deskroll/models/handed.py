"""HandedModel: a model that asks nobody itself: it gives each request to whoever drives the episode, and takes the
answer back.

For loops that are not ours: a trainer that samples by itself waits for the next request of an episode, and answers it
with the tokens that it sampled. Guarantees: of one episode one request is open at a time; an answer goes to the request
that was taken last, or to none where that is not open any more; once an episode has ended, whoever waits for its next
request is told so. Used in one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from deskroll.clocks import running_time
from deskroll.errors import ModelError
from deskroll.models.base import ANY_CALL, EndpointLoad, ModelCall, ModelRefused, NoClock, episode_clock
from deskroll.models.plugin import ModelPlugin
from deskroll.models.settings import ModelSettings
from deskroll.types import Completion, Record, Sampling, Tool

HANDED_KIND = "deskroll.models.handed:HandedModel"
"""The kind of a model whose object is handed to the runtime; see `Runtime.open`."""
_BUSY, _GONE = 409, 410
_NO_CLOCK = NoClock()


class HandedRequest(Record, frozen=True):
    """What an agent asks its model."""

    messages: tuple[bytes, ...]
    """JSON objects as OpenAI writes them, pictures as data URLs."""
    tools: tuple[Tool, ...] = ()
    """What may be called."""
    sampling: Sampling | None = None
    """How it is to be sampled, as far as the agent's settings say."""


class _Function(msgspec.Struct):
    name: str
    description: str = ""
    parameters: dict[str, object] = {}


class _Tool(msgspec.Struct):
    function: _Function


_decode_tools = msgspec.json.Decoder(list[_Tool]).decode


@dataclass(frozen=True)
class _Open:
    """A request that is not answered."""

    request: HandedRequest
    answered: asyncio.Future[Completion]
    since: float


class HandedEpisode:
    """The requests of one episode, for whoever answers them; `HandedModel.expect` it."""

    def __init__(self) -> None:
        self._asked: asyncio.Queue[HandedRequest | None] = asyncio.Queue()
        self._open: _Open | None = None
        self._taken: HandedRequest | None = None
        """What was handed out last: it is that which is answered."""
        self._ended = False

    async def request(self) -> HandedRequest | None:
        """Wait for the next request; None: the episode has ended, and none will come."""
        while (request := await self._asked.get()) is not None:
            if self._open_for(request) is not None:  # and was not given up before somebody took it
                self._taken = request
                return request
        self._asked.put_nowait(None)  # for whoever asks again
        return None

    def answer(self, completion: Completion) -> None:
        """Answer the request that was taken last; where it is not open any more, nobody wants to know."""
        if (answered := self._open_for(self._taken)) is not None:
            answered.set_result(completion)

    def refuse(self, error: ModelError) -> None:
        """Fail the request that was taken last."""
        if (answered := self._open_for(self._taken)) is not None:
            answered.set_exception(error)

    def _open_for(self, request: HandedRequest | None) -> asyncio.Future[Completion] | None:
        """Where the answer to this very request is waited for, if it is."""
        found = self._open
        return found.answered if found is not None and found.request is request and not found.answered.done() else None

    @property
    def waited_s(self) -> float | None:
        """For how long a request has been open; None: none is."""
        return None if self._open is None else running_time() - self._open.since

    # --- for the model ---

    async def ask(self, request: HandedRequest) -> Completion:
        """Have it answered."""
        if self._ended:
            raise _nobody()
        if self._open is not None and not self._open.answered.done():
            raise ModelRefused(
                "this episode's model is asked while an earlier request of the episode is not answered: whoever drives "
                "it answers one at a time; have the agent ask one after another",
                _BUSY,
            )
        asked = self._open = _Open(request, asyncio.get_running_loop().create_future(), running_time())
        self._asked.put_nowait(request)
        try:
            return await asked.answered
        finally:
            if self._open is asked:
                self._open = None

    def end(self) -> None:
        """It asks no more; what was asked and not taken is not answered any more."""
        if not self._ended:
            self._ended = True
            self._asked.put_nowait(None)


class HandedModel(ModelPlugin):
    """What an agent asks goes to whoever expects it, by the name of its session."""

    def __init__(self, settings: ModelSettings, **others: object) -> None:
        """`others`: what a run gives to every kind; there is no server, of which anything could be told."""
        super().__init__(settings)
        self._expected: dict[str, HandedEpisode] = {}
        self._calls = 0
        self._answered: float | None = None

    def expect(self, session: str, episode: HandedEpisode) -> None:
        """From now on the calls of that session are handed out there, until it ends."""
        self._expected[session] = episode

    async def complete(
        self, messages: Sequence[bytes], tools: bytes | None = None, *, call: ModelCall = ANY_CALL
    ) -> Completion:
        """Hand the request out and wait for its answer, which takes none of the episode's time: see `Model`."""
        if (episode := self._expected.get(call.session)) is None:
            raise _nobody()
        told = tuple(
            Tool(name=each.function.name, description=each.function.description, parameters=each.function.parameters)
            for each in (_decode_tools(tools) if tools else ())
        )
        self._calls += 1
        with (episode_clock.get() or _NO_CLOCK).paused():
            request = HandedRequest(messages=tuple(messages), tools=told, sampling=call.sampling)
            completion = await episode.ask(request)
        self._answered = running_time()
        return completion

    def end_session(self, session: str) -> None:
        """See `ModelPlugin`."""
        if (episode := self._expected.pop(session, None)) is not None:
            episode.end()

    @property
    def shown(self) -> str:
        """See `ModelPlugin`."""
        return "whoever drives the episode"

    def loads(self) -> tuple[EndpointLoad, ...]:
        """See `ModelPlugin`."""
        waited = [seconds for each in self._expected.values() if (seconds := each.waited_s) is not None]
        since = None if self._answered is None else running_time() - self._answered
        return (
            EndpointLoad(
                url=self.shown, in_flight=len(waited), oldest_s=max(waited, default=0.0), since_answer_s=since,
                calls=self._calls,
            ),
        )  # fmt: skip


def _nobody() -> ModelRefused:
    return ModelRefused(
        "nobody answers for this model: it is asked by episodes that a trainer drives, and by those alone; a judge "
        "needs a model of its own: set judge",
        _GONE,
    )
