"""ModelClient: a `Model` behind HTTP: patience over a `Line` to a server, or to many.

Guarantees: a request that fails for the server's or the network's sake is made again, with pauses, and where there are
several servers perhaps elsewhere; what is refused for good is not. Every call ends with a completion, with `ModelError`
(the server's fault), `ModelRefused` (asking again is useless) or `ContextTooLong` (the agent's fault), or is cancelled.
A pause before a retry, or the wait for a permit or a server, costs nothing of a request's time. Behind a router nobody
fails because servers start, refresh or are down for a moment: such tries do not count, for `server_wait` at the most.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import ClassVar, Self

import msgspec

from deskroll.clocks import running_time
from deskroll.errors import ConfigError, ModelError
from deskroll.events import EventSink, ModelAnswered, ModelFailed, ModelRetried
from deskroll.models.base import ANY_CALL, EndpointLoad, EpisodeClock, ModelCall, NoClock, episode_clock
from deskroll.models.dialect import Dialect
from deskroll.models.endpoint import Endpoint
from deskroll.models.exchange import Exchange, Failed, left_of
from deskroll.models.line import Asked, DirectLine, Line, RoutedLine
from deskroll.models.plugin import SILENT_AFTER_S, ModelPlugin
from deskroll.models.prices import NO_PRICES, Prices, price_of
from deskroll.models.retry import pause
from deskroll.models.router.own import open_own_router
from deskroll.models.router.roster import Outcome
from deskroll.models.settings import Address, ModelSettings
from deskroll.types import Completion, Sampling

_NO_CLOCK = NoClock()
_AWAY = (Outcome.UNREACHABLE, Outcome.UNAVAILABLE)
"""What is no try where a router waits for servers to come back."""


class ModelClient(ModelPlugin):
    """Use with `async with`; any number of calls may run at a time."""

    checks_exact: ClassVar[bool] = True
    dialect: ClassVar[type[Dialect]]
    routed: ClassVar[bool] = True
    """Whether it may have several servers."""

    def __init__(
        self,
        settings: ModelSettings,
        *,
        sink: EventSink | None = None,
        silent_after: float = SILENT_AFTER_S,
        prices: Prices = NO_PRICES,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        super().__init__(settings, sink=sink, silent_after=silent_after)
        self._silent_after = silent_after
        self._prices = prices
        self._sampling = settings.sampling
        self._stack = AsyncExitStack()
        self._line: Line
        if settings.pool:
            self._line, self._shown = RoutedLine(settings.pool, settings.served_as, self._speak), settings.pool
            self._priced = settings.price or price_of(settings.name, prices, None)
        else:
            exchange = self._speak(settings.resolved(env, self.dialect.vendor), settings.name)
            self._line, self._shown, self._priced = DirectLine(exchange), exchange.address.shown, exchange.price

    async def __aenter__(self) -> Self:
        await self._line.open(self._stack)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def complete(
        self, messages: Sequence[bytes], tools: bytes | None = None, *, call: ModelCall = ANY_CALL
    ) -> Completion:
        """Answer a conversation; see `Model`."""
        sampling = call.sampling or self._sampling
        if self.settings.exact and not (sampling.logprobs and sampling.token_ids):
            sampling = msgspec.structs.replace(sampling, logprobs=True, token_ids=True)
        clock = episode_clock.get() or _NO_CLOCK
        tries, begun, away_since = 0, time.perf_counter(), None
        while True:
            tries += 1
            async with self._line.ticket(call.session, clock) as asked:
                failed = await self._try(asked, messages, tools, sampling, call, clock, tries)
            if isinstance(failed, Completion):
                completion = self._with_versions(failed, asked)
                self._tell_answer(asked, completion, call, time.perf_counter() - begun)
                return completion
            away = self._line.patient and failed.outcome in _AWAY
            if away:
                away_since, tries = away_since or running_time(), tries - 1
                over, wait = running_time() - away_since > self.settings.server_wait, 0.0
            else:
                wait = pause(tries, failed.after, base=self.settings.backoff, longest=self.settings.backoff_max)
                over = tries > self.settings.retries
            left = left_of(call)
            if over or (left is not None and wait >= left):
                self._tell_failure(asked, call, tries, str(failed))
                raise failed.error(_given_up(asked, tries, failed))
            self._tell_failure(asked, call, tries, str(failed), wait)
            with clock.paused():
                await asyncio.sleep(wait)

    def _with_versions(self, completion: Completion, asked: Asked) -> Completion:
        """An answer with what is known of its weights after it; with `exact`, nothing less than that will do."""
        if not asked.unsure:
            end = asked.version_end
            return msgspec.structs.replace(completion, version_end=end) if end else completion
        if self.settings.exact:
            raise ModelError(f"{asked.unsure}, and nobody knows which weights gave the end of an answer")
        return msgspec.structs.replace(completion, version="")

    async def _try(
        self,
        asked: Asked,
        messages: Sequence[bytes],
        tools: bytes | None,
        sampling: Sampling,
        call: ModelCall,
        clock: EpisodeClock,
        tries: int,
    ) -> Completion | Failed:
        """One request; what failed and may be tried again is no error yet."""
        exchange, begun = asked.exchange, running_time()
        if asked.version:
            call = msgspec.structs.replace(call, version=asked.version)
        request = exchange.request(messages, tools, sampling)
        try:
            with clock.asking():
                completion = await exchange.ask(request, sampling, tries, call)
        except Failed as failure:
            failure.args = (exchange.endpoint.hide_key(str(failure)),)
            asked.outcome, asked.error = failure.outcome, str(failure)
            exchange.endpoint.note_failure(asked.error)
            clock.credit(running_time() - begun)
            return failure
        except ModelError as refused:
            asked.outcome = Outcome.ANSWERED  # in words of refusal
            exchange.endpoint.note_failure(str(refused))
            self._tell_failure(asked, call, tries, str(refused))
            raise
        asked.outcome = Outcome.ANSWERED
        return completion

    @property
    def shown(self) -> str:
        """See `ModelPlugin`."""
        return self._shown

    @classmethod
    def place(cls, settings: ModelSettings) -> str:
        """See `ModelPlugin`."""
        if settings.endpoints:
            return f"{len(settings.endpoints)} servers"
        return settings.pool or settings.base_url or f"${cls.dialect.vendor.url_variable}, or the public API"

    @classmethod
    def how_to_reach(cls, name: str) -> str:
        """See `ModelPlugin`."""
        vendor = cls.dialect.vendor
        flag = ", --base-url" if name == "model" else ""
        return f"set {vendor.url_variable} (or {name}.base_url{flag}) and {vendor.key_variable}"

    @property
    def knows_price(self) -> bool:
        """Whether the cost of an answer can be told."""
        return self._priced is not None

    def loads(self) -> tuple[EndpointLoad, ...]:
        """What goes on at each server at this moment."""
        return self._line.loads()

    def end_session(self, session: str) -> None:
        """See `ModelPlugin`."""
        self._line.end_session(session)

    async def check(self) -> tuple[str, ...]:
        """Whether it can be asked: the names of the models that are there, none where there is no list."""
        return await self._line.check()

    @classmethod
    def check_settings(cls, settings: ModelSettings, name: str) -> None:
        """Several servers are for what an agent asks, in a protocol that many of them speak."""
        super().check_settings(settings, name)
        several = next((field for field in ("endpoints", "pool") if getattr(settings, field)), "")
        if several and (name == "judge" or not cls.routed):
            who = "a judge asks" if name == "judge" else "this kind of model asks"
            raise ConfigError(f"{name}.{several}: {who} one server directly; set {name}.base_url instead")

    @classmethod
    @asynccontextmanager
    async def serve(
        cls, settings: ModelSettings, name: str, sink: EventSink | None = None
    ) -> AsyncIterator[ModelSettings]:
        """With a router of its own where there are several servers, or a limit on what is open over all processes."""
        cls.check_settings(settings, name)
        if settings.pool or (settings.endpoints is None and settings.max_in_flight is None):
            yield settings
            return
        async with open_own_router(settings, cls.dialect.vendor, sink) as pool:
            yield settings.model_copy(update={"pool": pool, "base_url": "", "endpoints": None, "max_in_flight": None})

    def _speak(self, address: Address, model: str, over: Exchange | None = None) -> Exchange:
        """An exchange with that address about that model, over the connections of another where there is one."""
        key = None if address.key is None else address.key.get_secret_value()
        dialect = self.dialect(model, address, self.settings.extra)
        endpoint = Endpoint(address, dialect.headers(key), self.settings, self._sink, self._silent_after)
        price = self.settings.price or price_of(
            self.settings.name, self._prices, None if address.is_ours else address.url
        )
        return Exchange(endpoint if over is None else over.endpoint, dialect, self.settings, model, price)

    def _tell_failure(self, asked: Asked, call: ModelCall, tries: int, cause: str, wait: float | None = None) -> None:
        """A request brought nothing; it is made again after a wait, where there is one."""
        endpoint, model, session = asked.exchange.address.shown, asked.exchange.model, call.session
        self._sink.emit(
            ModelFailed(endpoint=endpoint, model=model, reason=cause, tries=tries, session=session)
            if wait is None
            else ModelRetried(endpoint=endpoint, model=model, reason=cause, tries=tries, pause_s=wait, session=session)
        )

    def _tell_answer(self, asked: Asked, completion: Completion, call: ModelCall, seconds: float) -> None:
        self._sink.emit(
            ModelAnswered(
                endpoint=asked.exchange.address.shown,
                model=asked.exchange.model,
                session=call.session,
                seconds=seconds,
                tries=completion.tries,
                prompt_tokens=completion.prompt_tokens,
                completion_tokens=completion.completion_tokens,
            )
        )


def _given_up(asked: Asked, tries: int, failed: Failed) -> str:
    times = "once" if tries == 1 else f"{tries} times"
    return f"{asked.exchange.who}: asked {times}, without a usable answer; the last time: {failed}"
