"""RouterClient: a process's end of the router: tickets, each held for the length of a block.

Guarantees: a ticket goes back however its block ends, also where whoever waits for one is cancelled in the moment in
which it comes; where the router is gone, everybody who waits is told. A ticket goes back at once where somebody may
wait for it, or something went wrong; one that is not scarce travels with the next message, or after 5 ms: to wake the
router for it alone would cost as much again as to ask for it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self, TypeVar

from deskroll.errors import ModelError
from deskroll.host.frames import Frames, connect
from deskroll.host.listen import Listen
from deskroll.models.router import wire
from deskroll.models.router.roster import EndpointView, Outcome, Ticket

_CONNECT_S = 10.0
_LATER_S = 0.005
T = TypeVar("T")


class Held:
    """A ticket in use: `outcome` is what its endpoint is told of the request."""

    def __init__(self, ticket: Ticket, known: wire.Known) -> None:
        self.ticket = ticket
        self.url = known.url
        self.key = known.key
        self.keeps = known.keeps
        self.takes_sessions = known.takes_sessions
        self.outcome = Outcome.ABANDONED
        self.error = ""
        self.version_end = ""
        """The version that is served after the request, where it is another one by then."""


class RouterClient:
    """Use with `async with`."""

    def __init__(self, listen: Listen, token: str = "") -> None:
        self._listen = listen
        self._token = token
        self._gone_text = f"the router of models on {listen} is gone"
        self._frames: Frames | None = None
        self._serial = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Ticket]] = {}
        self._pins: dict[int, asyncio.Future[str]] = {}
        self._returned: dict[int, asyncio.Future[str]] = {}
        self._known: dict[str, wire.Known] = {}
        self._welcome: asyncio.Future[tuple[EndpointView, ...]] | None = None
        self._answered: list[int] = []
        """Tickets that go back with the next request."""
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        self._welcome = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(_CONNECT_S):
                self._frames = await connect(self._listen, self._hear, self._gone)
                self._send(wire.Hello(token=self._token))
                await self._welcome
        except OSError as error:  # a time-out is one, too
            await self.__aexit__()
            why = f"not within {_CONNECT_S:g} s" if isinstance(error, TimeoutError) else error.strerror or error
            raise ModelError(
                f"no router of models answers on {self._listen}: {why}; `deskroll models up` starts one, and says where"
            ) from error
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._send_answered()
        if self._frames is not None:
            self._frames.close()

    async def endpoints(self) -> tuple[EndpointView, ...]:
        """Those that were there when the connection was made."""
        return () if self._welcome is None else await self._welcome

    @asynccontextmanager
    async def ticket(self, session: str = "", *, tell: bool = False) -> AsyncIterator[Held]:
        """Wait for a ticket and hold it for the length of the block; `tell`: what is served after it is wanted."""
        held = await self.ask(session)
        try:
            yield held
        finally:
            self.give_back(held, tell=tell)
        if tell:
            await self.hear_version(held)

    @asynccontextmanager
    async def pinned(self, version: str) -> AsyncIterator[str]:
        """Have a version served for the length of the block, whatever else is by then; the name to ask for it by."""
        if self._frames is None:
            raise ModelError(self._gone_text)
        number = next(self._serial)
        self._pins[number] = asyncio.get_running_loop().create_future()
        self._send(wire.Pin(request=number, version=version))
        try:
            yield await self._pins[number]
        finally:
            del self._pins[number]
            self._send(wire.Unpin(request=number))

    async def ask(self, session: str = "", model: str = "") -> Held:
        """Wait for a ticket; whoever has it gives it back. `model`: for that one alone, by its name."""
        if self._frames is None:
            raise ModelError(self._gone_text)
        number = next(self._serial)
        wanted: asyncio.Future[Ticket] = asyncio.get_running_loop().create_future()
        self._asked[number] = wanted
        self._send(wire.Ask(request=number, session=session, answered=self._take_answered(), model=model))
        try:
            ticket = await wanted
        except asyncio.CancelledError:
            if wanted.done() and not wanted.cancelled() and wanted.exception() is None:
                self._send(wire.GiveBack(ticket=wanted.result().id, outcome=Outcome.ABANDONED))
            else:
                self._send(wire.Withdraw(request=number))
            raise
        finally:
            self._asked.pop(number, None)
        return Held(ticket, self._known[ticket.endpoint])

    def give_back(self, held: Held, *, tell: bool = False) -> None:
        """A request is over."""
        ticket = held.ticket
        if tell or ticket.scarce or held.outcome is not Outcome.ANSWERED:
            self._send(wire.GiveBack(ticket=ticket.id, outcome=held.outcome, error=held.error, tell=tell))
            return
        self._answered.append(ticket.id)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LATER_S, self._send_answered)

    async def hear_version(self, held: Held) -> None:
        """What is served after a request, of which `give_back` has asked to be told; raises `ModelError`."""
        if self._frames is None:
            raise ModelError(self._gone_text)
        after = await self._wait_returned(held.ticket.id)
        held.version_end = "" if after == held.ticket.version else after

    def end_session(self, session: str) -> None:
        """An attempt is over: where it was answered does not matter any more."""
        self._send(wire.EndSession(session=session))

    async def _wait_returned(self, ticket: int) -> str:
        returned: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._returned[ticket] = returned
        try:
            return await returned
        finally:
            self._returned.pop(ticket, None)

    def _take_answered(self) -> tuple[int, ...]:
        if self._timer is None:
            return ()
        self._timer.cancel()
        self._timer = None
        answered, self._answered = tuple(self._answered), []
        return answered

    def _send_answered(self) -> None:
        self._send(wire.Answered(tickets=self._take_answered()))

    def _send(self, message: wire.Upward) -> None:
        if self._frames is not None:
            self._frames.send(wire.encode(message))

    def _hear(self, data: bytes) -> None:
        match wire.decode_downward(data):
            case wire.Granted(request=number, ticket=ticket):
                wanted = self._asked.get(number)
                if wanted is None or wanted.done():  # whoever asked has just gone, and its word is on its way
                    self._send(wire.GiveBack(ticket=ticket.id, outcome=Outcome.ABANDONED))
                else:
                    wanted.set_result(ticket)
            case wire.Known(endpoint=endpoint) as known:
                self._known[endpoint] = known
            case wire.Denied(request=number, message=message):
                denied = self._asked.get(number) or self._pins.get(number)
                if denied is not None and not denied.done():
                    denied.set_exception(ModelError(message))
            case wire.Pinned(request=number, model=model):
                _settle(self._pins.get(number), model)
            case wire.Returned(ticket=ticket_id, version=version):
                _settle(self._returned.get(ticket_id), version)
            case wire.Welcome(endpoints=endpoints):
                _settle(self._welcome, endpoints)
            case wire.Unwelcome(message=message):
                if self._welcome is not None and not self._welcome.done():
                    self._welcome.set_exception(ModelError(f"the router of models on {self._listen}: {message}"))

    def _gone(self) -> None:
        self._frames = None
        for future in (*self._asked.values(), *self._pins.values(), *self._returned.values(), self._welcome):
            if future is not None and not future.done():
                future.set_exception(ModelError(self._gone_text))
                future.exception()


def _settle(future: asyncio.Future[T] | None, value: T) -> None:
    """Give it to whoever still waits."""
    if future is not None and not future.done():
        future.set_result(value)
