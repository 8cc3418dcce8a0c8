"""GroupRoutes: consumers over HTTP: closed groups as they come, each once for a consumer that says when it is done.

    GET  /groups?consumer=NAME&wait=30&max=1   {"groups": [...]}: the oldest that are not done; [] if none comes
    POST /groups/done                          {"consumer": NAME, "groups": [{"phase", "round", "task"}, ...]}

They answer on the run's control socket, and with `listen` on TCP, to whoever has the token. Files come by reference: a
group names the folder of each attempt. Guarantees: those of `GroupStream`; asking again before anything is done brings
the same again, so that a consumer that crashed has lost nothing. A name that nobody asks for in minutes is let go: what
holds it is closed, and any process may have it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
from aiohttp import web

from deskroll.errors import ConfigError, InputError, plain
from deskroll.host.listen import Listen, open_listener
from deskroll.host.tokens import TOKEN_VARIABLE, bears_token
from deskroll.rollout.control import answer_errors
from deskroll.rollout.service_status import ConsumerNote
from deskroll.service.consumer import check_consumer
from deskroll.service.stream import GroupStream
from deskroll.store import RunStore
from deskroll.store.index import GroupKey
from deskroll.store.journal import GroupClosed
from deskroll.types import Record

LONGEST_WAIT_S = 300.0
MOST_GROUPS = 100
_MOST_CONSUMERS = 100
"""Of which somebody has asked in the last minutes."""
IDLE_S = 300.0
"""A consumer is let go when it has asked for nothing for so long."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class GroupName(Record, frozen=True, forbid_unknown_fields=True):
    """What a group is known by."""

    phase: str
    round: int
    task: str


class DoneGroups(Record, frozen=True, forbid_unknown_fields=True):
    """What a consumer is done with."""

    consumer: str
    groups: tuple[GroupName, ...]


@dataclass
class _Held:
    """A consumer that has asked."""

    stream: GroupStream
    users: int = 0
    """Requests that are being answered."""
    letting_go: asyncio.Task[None] | None = None


class GroupRoutes:
    """`close` it in any case."""

    def __init__(self, store: RunStore, idle_s: float = IDLE_S) -> None:
        self._store = store
        self._idle_s = idle_s
        self._held: dict[str, _Held] = {}
        self._opening = asyncio.Lock()
        self._ended = asyncio.Event()

    def routes(self) -> Sequence[web.RouteDef]:
        """For the run's control socket."""
        return (web.get("/groups", self._hand_out), web.post("/groups/done", self._mark_done))

    def consumers(self) -> tuple[ConsumerNote, ...]:
        """Those that have asked in the last minutes."""
        return tuple(ConsumerNote(name=name, done=each.stream.done_count) for name, each in self._held.items())

    def end(self) -> None:
        """No more groups will come: whoever waits is answered."""
        self._ended.set()

    async def close(self) -> None:
        """Let go of all consumers."""
        self.end()
        for each in list(self._held.values()):
            if each.letting_go is not None:
                each.letting_go.cancel()
                await asyncio.wait((each.letting_go,))
            await each.stream.close()

    @asynccontextmanager
    async def listening(self, address: str) -> AsyncIterator[None]:
        """Answer on TCP as well, for the length of the block; an empty address: nowhere."""
        if not address:
            yield
            return
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
        if not token:
            raise ConfigError(f"listen needs a token: set {TOKEN_VARIABLE}, and give it to consumers as bearer token")

        @web.middleware
        async def check_token(request: web.Request, handler: Handler) -> web.StreamResponse:
            if not bears_token(request.headers.get("Authorization", ""), token):
                raise web.HTTPUnauthorized
            return await handler(request)

        app = web.Application(middlewares=[check_token, answer_errors])
        app.router.add_routes(self.routes())
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            with open_listener(Listen.parse(address), instead="choose another address (listen)") as listener:
                await web.SockSite(runner, listener).start()
                yield
                await runner.cleanup()
        finally:
            await runner.cleanup()

    async def _hand_out(self, request: web.Request) -> web.Response:
        wait = _number(request, "wait", 0.0, least=0, most=LONGEST_WAIT_S)
        most = int(_number(request, "max", 1, least=1, most=MOST_GROUPS))
        async with self._stream(request.query.get("consumer", "")) as stream:
            asked = asyncio.ensure_future(stream.oldest(most, wait))
            ended = asyncio.ensure_future(self._ended.wait())
            try:
                await asyncio.wait((asked, ended), return_when=asyncio.FIRST_COMPLETED)
                groups = asked.result() if asked.done() else []
            finally:
                asked.cancel()
                ended.cancel()
        return web.Response(body=msgspec.json.encode({"groups": groups}), content_type="application/json")

    async def _mark_done(self, request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read(), type=DoneGroups)
        keys = [self._closed(each) for each in asked.groups]
        async with self._stream(asked.consumer) as stream:
            await stream.mark_done(keys)
            body = {"consumer": asked.consumer, "done": stream.done_count}
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")

    def _closed(self, name: GroupName) -> GroupKey:
        """A group that was closed: nobody can be done with another."""
        key = (name.phase, name.round, name.task)
        if not isinstance(self._store.index.groups.get(key), GroupClosed):
            raise InputError(f"there is no closed group {plain(name.phase)}/{name.round}/{plain(name.task)}")
        return key

    @asynccontextmanager
    async def _stream(self, consumer: str) -> AsyncIterator[GroupStream]:
        """That of a consumer, for the length of the block; some time after the last one it is let go."""
        name = check_consumer(consumer)
        async with self._opening:
            held = self._held.get(name) or await self._open(name)
            held.users += 1
        if held.letting_go is not None:
            held.letting_go.cancel()
            held.letting_go = None
        try:
            yield held.stream
        finally:
            held.users -= 1
            if not held.users and not self._ended.is_set():
                held.letting_go = asyncio.ensure_future(self._let_go(name, held))

    async def _open(self, name: str) -> _Held:
        if len(self._held) >= _MOST_CONSUMERS:
            raise InputError(f"{_MOST_CONSUMERS} consumers ask already, and {name} would be one more")
        held = self._held[name] = _Held(GroupStream(self._store.storage.root, name))
        try:
            await held.stream.open()
        except BaseException:
            del self._held[name]
            await held.stream.close()
            raise
        return held

    async def _let_go(self, name: str, held: _Held) -> None:
        await asyncio.sleep(self._idle_s)
        async with self._opening:
            if not held.users:
                del self._held[name]
                await held.stream.close()


def _number(request: web.Request, name: str, default: float, *, least: float, most: float) -> float:
    text = request.query.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least <= value <= most:
        raise InputError(f"{name} is {plain(text)!r}; allowed: a number from {least:g} to {most:g}")
    return value
