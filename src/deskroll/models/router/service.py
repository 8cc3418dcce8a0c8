"""The router for other processes: a socket on which tickets are asked for and given back.

Guarantees: on a unix socket of the user's own, or over TCP with a token, which whoever asks has to say first; a process
that is gone, or whose connection is, loses its tickets at once; where an endpoint is, and its key, is told only to
those who get a ticket for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import msgspec

from deskroll.errors import InputError, ModelError
from deskroll.host.frames import Frames
from deskroll.host.listen import Listen, open_listener, watch_peer
from deskroll.host.tokens import bears_token
from deskroll.models.router import wire
from deskroll.models.router.roster import Ticket
from deskroll.models.router.router import Router, Server


@asynccontextmanager
async def serve_router(router: Router, listen: Listen, token: str = "") -> AsyncIterator[Listen]:
    """Answer on a socket for the length of the block; where that is."""
    if not listen.is_unix and not token:
        raise InputError(f"a pool of models on {listen} needs a token: set DESKROLL_TOKEN, or use unix:PATH")
    connections: set[_Connection] = set()

    def connect() -> Frames:
        connection = _Connection(router, connections, token if not listen.is_unix else "")
        return connection.frames

    with open_listener(listen, instead="stop that one, or choose another path") as listener:
        loop = asyncio.get_running_loop()
        if listen.is_unix:
            server = await loop.create_unix_server(connect, sock=listener)
        else:
            server = await loop.create_server(connect, sock=listener)
            host, port = listener.getsockname()[:2]
            listen = Listen(host=host, port=port)
        try:
            yield listen
        finally:
            server.close()
            for connection in list(connections):
                connection.frames.close()
            await server.wait_closed()


class _Connection:
    """One process that asks."""

    def __init__(self, router: Router, among: set[_Connection], token: str) -> None:
        self._router = router
        self._among = among
        self._token = token
        self._holder = ""
        self._known: dict[str, Server] = {}
        self._peer = ExitStack()
        self.frames = Frames(self._hear, self._gone)
        among.add(self)

    def _hear(self, data: bytes) -> None:
        try:
            message = wire.decode_upward(data)
        except msgspec.MsgspecError:
            self.frames.close()
            return
        if not self._holder:
            self._begin(message)
            return
        router, holder = self._router, self._holder
        match message:
            case wire.Ask(request=request, session=session, answered=answered, model=model):
                router.ask(holder, request, session, lambda answer: self._answer(request, answer), answered, model)
            case wire.Withdraw(request=request):
                router.withdraw(holder, request)
            case wire.Pin(request=request, version=version):
                router.pin(holder, request, version, lambda answer: self._answer_pin(request, answer))
            case wire.Unpin(request=request):
                router.unpin(holder, request)
            case wire.GiveBack(ticket=ticket, outcome=outcome, error=error, tell=tell):
                version = router.give_back(holder, ticket, outcome, error)
                if tell:
                    self._send(wire.Returned(ticket=ticket, version=version))
            case wire.Answered(tickets=tickets):
                router.note_answered(holder, tickets)
            case wire.EndSession(session=session):
                router.end_session(holder, session)

    def _begin(self, message: wire.Upward) -> None:
        if not isinstance(message, wire.Hello) or (
            self._token and not bears_token(f"Bearer {message.token}", self._token)
        ):
            self._send(wire.Unwelcome(message="the token is not the right one: set DESKROLL_TOKEN"))
            self.frames.close()
            return
        self._holder = self._router.new_holder()
        self._peer.enter_context(watch_peer(self.frames.socket, self._gone))
        self._send(wire.Welcome(endpoints=self._router.view()))

    def _answer_pin(self, request: int, answer: str | ModelError) -> None:
        if isinstance(answer, ModelError):
            self._send(wire.Denied(request=request, message=str(answer)))
        else:
            self._send(wire.Pinned(request=request, model=answer))

    def _answer(self, request: int, answer: Ticket | ModelError) -> None:
        if isinstance(answer, ModelError):
            self._send(wire.Denied(request=request, message=str(answer)))
            return
        server = self._router.server(answer.endpoint)
        if self._known.get(answer.endpoint) is not server:
            self._known[answer.endpoint] = server
            known = wire.Known(
                endpoint=answer.endpoint, url=server.url, key=server.key, keeps=server.keeps,
                takes_sessions=server.takes_sessions,
            )  # fmt: skip
            self._send(known)
        self._send(wire.Granted(request=request, ticket=answer))

    def _send(self, message: wire.Downward) -> None:
        self.frames.send(wire.encode(message))

    def _gone(self) -> None:
        if self in self._among:
            self._among.discard(self)
            if self._holder:
                self._router.lose(self._holder)
            self._peer.close()
            self.frames.close()
