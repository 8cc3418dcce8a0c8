"""GroupRoutes: consumers over HTTP: closed groups as they come, each once for a consumer that says when it is done.

    GET  /groups?consumer=NAME&wait=30&max=1   {"groups": [...]}: the oldest that are not done; [] if none comes
    POST /groups/done                          {"consumer": NAME, "groups": [{"phase", "round", "task"}, ...]}

They answer on the run's control socket, and with `listen` on TCP, to whoever has the token. Files come by reference: a
group names the folder of each attempt. Guarantees: those of `GroupStream`; asking again before anything is done brings
the same again, so that a consumer that crashed has lost nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

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


class GroupRoutes:
    """`close` it in any case."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._streams: dict[str, GroupStream] = {}
        self._opening = asyncio.Lock()
        self._ended = asyncio.Event()

    def routes(self) -> Sequence[web.RouteDef]:
        """For the run's control socket."""
        return (web.get("/groups", self._hand_out), web.post("/groups/done", self._mark_done))

    def consumers(self) -> tuple[ConsumerNote, ...]:
        """Those that have asked."""
        return tuple(ConsumerNote(name=name, done=each.done_count) for name, each in self._streams.items())

    def end(self) -> None:
        """No more groups will come: whoever waits is answered."""
        self._ended.set()

    async def close(self) -> None:
        """Let go of all consumers."""
        self.end()
        for stream in self._streams.values():
            await stream.close()

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
        wait = _number(request, "wait", 0.0, LONGEST_WAIT_S)
        most = int(_number(request, "max", 1, MOST_GROUPS))
        stream = await self._stream(request.query.get("consumer", ""))
        asked = asyncio.ensure_future(stream.oldest(max(1, most), wait))
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
        stream = await self._stream(asked.consumer)
        await stream.mark_done(keys)
        body = {"consumer": asked.consumer, "done": stream.done_count}
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")

    def _closed(self, name: GroupName) -> GroupKey:
        """A group that was closed: nobody can be done with another."""
        key = (name.phase, name.round, name.task)
        if not isinstance(self._store.index.groups.get(key), GroupClosed):
            raise InputError(f"there is no closed group {plain(name.phase)}/{name.round}/{plain(name.task)}")
        return key

    async def _stream(self, consumer: str) -> GroupStream:
        async with self._opening:
            name = check_consumer(consumer)
            if (stream := self._streams.get(name)) is None:
                if len(self._streams) >= _MOST_CONSUMERS:
                    raise InputError(f"{_MOST_CONSUMERS} consumers ask already, and {name} would be one more")
                stream = GroupStream(self._store.storage.root, name)
                await stream.open()
                self._streams[name] = stream
            return stream


def _number(request: web.Request, name: str, default: float, most: float) -> float:
    text = request.query.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:
        raise InputError(f"{name} is {plain(text)!r}; allowed: a number from 0 to {most:g}")
    return value
