"""Line: how a client comes to the server that it asks: straight to the one it knows, or by a router's ticket.

Guarantees: whoever waits for a slot or a ticket loses no time of its own; a ticket goes back with how the request went,
however that ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from typing import Protocol

from deskroll.clocks import running_time
from deskroll.errors import ModelError
from deskroll.host.listen import Listen
from deskroll.host.tokens import TOKEN_VARIABLE
from deskroll.models.base import EndpointLoad, EpisodeClock
from deskroll.models.exchange import Exchange
from deskroll.models.router.client import Held, RouterClient
from deskroll.models.router.roster import Outcome
from deskroll.models.settings import Address, read_address

_SOON_S = 0.2
"""A shorter wait for a ticket is not told: where all servers are full, every request waits for a moment."""
_MOST_MODELS = 16
"""Names of models that are spoken about with one server at a time: each version of an adapter has its own."""


class Asked:
    """Whom one request goes to, and what becomes of it."""

    __slots__ = ("error", "exchange", "outcome", "unsure", "version", "version_end")

    def __init__(self, exchange: Exchange, version: str = "") -> None:
        self.exchange = exchange
        self.version = version
        """Of the weights that answer, where that is known; empty: as the answer says."""
        self.version_end = ""
        """After the block: of those that are there by then, where they are others."""
        self.unsure = ""
        """After the block: why nobody can say whether they are others; empty: that is known."""
        self.outcome = Outcome.ABANDONED
        self.error = ""


class Line(Protocol):
    """The way to a server, for one request at a time."""

    patient: bool
    """Whether it waits by itself until a server can be asked again."""

    async def open(self, stack: AsyncExitStack) -> None:
        """Connect, until the stack ends."""

    def ticket(self, session: str, clock: EpisodeClock) -> AbstractAsyncContextManager[Asked]:
        """Wait until a request may be made, and hold that right for the length of the block."""

    def end_session(self, session: str) -> None:
        """An attempt is over."""

    async def check(self) -> tuple[str, ...]:
        """Whether anybody can be asked: the names of the models that are there, none where there is no list."""

    def loads(self) -> tuple[EndpointLoad, ...]:
        """What goes on at each server."""


class DirectLine:
    """To the one server that the settings name."""

    patient = False

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def open(self, stack: AsyncExitStack) -> None:
        """See `Line`."""
        await stack.enter_async_context(self._exchange.endpoint)

    def ticket(self, session: str, clock: EpisodeClock) -> AbstractAsyncContextManager[Asked]:
        """See `Line`."""
        return self._exchange.endpoint.slot(clock, Asked(self._exchange))

    def end_session(self, session: str) -> None:
        """Nobody remembers it."""

    async def check(self) -> tuple[str, ...]:
        """See `Line`."""
        return await self._exchange.check()

    def loads(self) -> tuple[EndpointLoad, ...]:
        """See `Line`."""
        return (self._exchange.load(),)


class _Ticket:
    """A router's ticket, for the length of a block; a class, for a generator would cost thrice as much."""

    __slots__ = ("_asked", "_clock", "_held", "_line", "_paused_at", "_pausing", "_router", "_session")

    def __init__(self, line: RoutedLine, router: RouterClient, session: str, clock: EpisodeClock) -> None:
        self._line, self._router, self._session, self._clock = line, router, session, clock
        self._pausing: AbstractContextManager[None] | None = None

    async def __aenter__(self) -> Asked:
        self._held = held = await self._wait()
        exchange = self._line.known_exchange(held)
        if exchange is None:
            try:
                exchange = await self._line.make_exchange(held)
            except BaseException:
                self._router.give_back(held)
                raise
        self._asked = Asked(exchange, held.ticket.version)
        return self._asked

    async def __aexit__(self, *exc: object) -> None:
        held, asked = self._held, self._asked
        held.outcome, held.error = asked.outcome, asked.error
        tell = held.keeps and asked.outcome is Outcome.ANSWERED
        self._router.give_back(held, tell=tell)
        if tell:
            try:
                await self._router.hear_version(held)
            except ModelError as gone:  # the answer is there all the same
                asked.unsure = str(gone)
            asked.version_end = held.version_end

    async def _wait(self) -> Held:
        """Most tickets come at once: only a longer wait is told, and all of it is nobody's time."""
        begun = running_time()
        timer = asyncio.get_running_loop().call_later(_SOON_S, self._pause)
        try:
            return await self._router.ask(self._session, self._line.served_as)
        finally:
            timer.cancel()
            if self._pausing is None:
                self._clock.credit(running_time() - begun)
            else:
                self._pausing.__exit__(None, None, None)
                self._clock.credit(self._paused_at - begun)

    def _pause(self) -> None:
        self._paused_at, self._pausing = running_time(), self._clock.paused()
        self._pausing.__enter__()


class RoutedLine:
    """To whichever server a router names."""

    patient = True

    def __init__(self, pool: str, served_as: str, speak: Callable[[Address, str, Exchange | None], Exchange]) -> None:
        """`served_as`: see `ModelSettings`; `speak` makes the exchange with an address about a model; where one with
        that address is there, over it."""
        self._listen = Listen.parse(pool)
        token = "" if self._listen.is_unix else os.environ.get(TOKEN_VARIABLE, "")
        self._router = RouterClient(self._listen, token)
        self.served_as = served_as
        self._speak = speak
        self._servers: dict[tuple[str, str], dict[str, Exchange]] = {}
        """By address and key, and by the model's name there."""
        self._stack: AsyncExitStack | None = None

    async def open(self, stack: AsyncExitStack) -> None:
        """See `Line`."""
        self._stack = stack
        await stack.enter_async_context(self._router)

    def ticket(self, session: str, clock: EpisodeClock) -> AbstractAsyncContextManager[Asked]:
        """See `Line`."""
        return _Ticket(self, self._router, session, clock)

    def end_session(self, session: str) -> None:
        """See `Line`."""
        self._router.end_session(session)

    async def check(self) -> tuple[str, ...]:
        """Whether the router answers and knows anybody: that servers start or refresh is no reason to give up."""
        if not await self._router.endpoints():
            raise ModelError(f"the router on {self._listen} knows no server")
        return ()

    def loads(self) -> tuple[EndpointLoad, ...]:
        """See `Line`."""
        return tuple(next(iter(models.values())).load() for models in self._servers.values())

    def known_exchange(self, held: Held) -> Exchange | None:
        """The exchange with a ticket's server about its model; None: not yet."""
        models = self._servers.get((held.url, held.key))
        return None if models is None else models.get(held.ticket.model)

    async def make_exchange(self, held: Held) -> Exchange:
        """The same, new."""
        models, model = self._servers.setdefault((held.url, held.key), {}), held.ticket.model
        known = next(iter(models.values()), None)
        made = models[model] = self._speak(read_address(held.url, "url", held.key), model, known)
        made.names_sessions = held.takes_sessions
        if known is None and self._stack is not None:
            await self._stack.enter_async_context(made.endpoint)
        if len(models) > _MOST_MODELS:
            del models[next(iter(models))]
        return made
