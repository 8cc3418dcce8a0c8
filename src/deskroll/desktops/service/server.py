"""PoolService: a pool behind HTTP, on a unix socket (0600) or, with a token, on TCP.

Guarantees: a holder process that dies loses its desktops: at once where its connection shows it, after its time to
live elsewhere. No client gets a desktop beyond what it is allowed. Every request is answered by a result or by an error
that says what is wrong. Nothing is served on TCP without a token.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import TypeVar

import msgspec
from aiohttp import web

from deskroll.clocks import running_time
from deskroll.desktops.pool import Pool
from deskroll.desktops.service import wire
from deskroll.desktops.service.keys import Caller, Client, Keys
from deskroll.desktops.service.sessions import Session, Sessions
from deskroll.errors import DeskrollError, InputError, LeaseLost, NoDesktop, PoolGone, plain
from deskroll.host.listen import Listen, open_listener, watch_peer
from deskroll.host.owner import boot_id
from deskroll.host.supervise import Supervisor
from deskroll.types import Record

T = TypeVar("T", bound=Record)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_MAX_BODY = 1 << 20
_TTL_S = 60.0
"""How long a session that is not watched lives without a sign of life."""
_KEEPALIVE_S = 10.0
"""How often /events shows that the service is there."""
_OPERATOR = ("/resize", "/drain", "/free")
_STOPPED = "the pool's service was stopped"
_log = logging.getLogger(__name__)


class PoolService:
    """Serves one pool. Use with `async with`; the pool is the caller's."""

    def __init__(
        self, pool: Pool, listen: Listen, *, token: str = "", clients: Mapping[str, Client] | None = None
    ) -> None:
        self._keys = Keys(token, clients)
        if not listen.is_unix and not self._keys:
            raise InputError(
                f"serving a pool on {listen} needs a token: anyone who reaches it could use the desktops. "
                "Set DESKROLL_TOKEN to a secret of your choice, or serve on a unix socket"
            )
        self._pool = pool
        self._listen = listen
        self._sessions = Sessions(pool, _TTL_S)
        self._background = Supervisor()
        self._stack = AsyncExitStack()
        self.port = listen.port
        """The port in use, where one was left to choose."""

    async def __aenter__(self) -> PoolService:
        app = web.Application(client_max_size=_MAX_BODY)
        for (method, path), handler in self._endpoints().items():
            app.router.add_route(method, path, self._guard(handler))
        app.router.add_route("*", "/{path:.*}", self._guard(self._unknown))
        # A holder that goes away while it waits must not get a desktop.
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        try:
            instead = f"run on that one (--set pool={self._listen}), stop it, or listen somewhere else"
            listener = self._stack.enter_context(open_listener(self._listen, instead=instead))
            if not self._listen.is_unix:
                self.port = listener.getsockname()[1]
            self._stack.callback(self._sessions.end_all, _STOPPED)  # what was begun while it stopped
            self._stack.push_async_callback(runner.cleanup)
            await runner.setup()
            await web.SockSite(runner, listener, backlog=4096).start()
            self._stack.push_async_callback(self._background.close)
            self._background.keep("the expiry of the pool's sessions", self._expire_sessions)
            self._stack.callback(self._sessions.end_all, _STOPPED)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    @property
    def address(self) -> Listen:
        """Where it really listens."""
        return msgspec.structs.replace(self._listen, port=self.port)

    def _endpoints(self) -> dict[tuple[str, str], Handler]:
        return {
            ("POST", "/session"): self._begin,
            ("GET", "/events"): self._events,
            ("POST", "/heartbeat"): self._heartbeat,
            ("POST", "/leave"): self._leave,
            ("POST", "/expect"): self._expect,
            ("POST", "/lease"): self._lease,
            ("POST", "/release"): self._release,
            ("GET", "/status"): self._status,
            ("POST", "/resize"): self._resize,
            ("POST", "/drain"): self._drain,
            ("POST", "/free"): self._free,
        }

    def _guard(self, handler: Handler) -> Handler:
        """Token and errors, around every endpoint."""

        async def answer(request: web.Request) -> web.StreamResponse:
            given = request.headers.get("Authorization", "")
            caller = self._keys.who(given)
            if caller is None:
                wrong = "the token is wrong" if given else "this pool wants its token"
                return _refuse(f"{wrong}: set DESKROLL_TOKEN to the one that it is served with", 401)
            if request.path in _OPERATOR and not caller.operator:
                return _refuse(f"{request.path} is for the pool's operator, not for {caller.name}", 403)
            if "Origin" in request.headers:
                return _refuse("a pool takes no requests from web pages", 403)
            try:
                return await handler(request)
            except DeskrollError as error:
                status = 400 if isinstance(error, InputError) else 409
                return _refuse(str(error), status, kind=type(error).__name__)
            except web.HTTPException as error:
                return _refuse(error.text or error.reason, error.status)
            except Exception as error:  # noqa: BLE001
                # A bug here must cost one request, not every holder's desktop.
                _log.exception("%s %s failed", request.method, request.path)
                return _refuse(f"{request.path} failed inside: {type(error).__name__}: {error}", 500)

        return answer

    # --- sessions ---

    async def _begin(self, request: web.Request) -> web.Response:
        hello = await _read(request, wire.Hello)
        # Whoever reaches a unix socket is here; whoever comes by TCP has to say where it is.
        if self._pool.provider.capabilities.host_only and not self._listen.is_unix and hello.boot != boot_id():
            if not hello.boot:
                raise InputError("boot is missing: send what /proc/sys/kernel/random/boot_id says on the holder's host")
            raise InputError(
                f"the {self._pool.provider.name} desktops of this pool can be reached from their own host only; "
                "run the holder there, or use a provider whose desktops have addresses on the network"
            )
        caller = self._caller(request)
        # What a client tells is about its own plans, whatever it and they are called.
        plan = msgspec.json.encode((caller.name, hello.plan)).decode() if hello.plan else ""
        session = self._sessions.begin(caller.name or hello.client, running_time(), plan)
        return _answer(wire.Welcome(session=session.id, ttl_s=session.ttl, watched=self._listen.is_unix))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Tell a holder of what it has lost. On one host the connection is also its sign of life."""
        session = self._session(request)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        session.watched = self._listen.is_unix
        peer = request.transport.get_extra_info("socket") if request.transport is not None else None
        with watch_peer(peer, lambda: self._sessions.end(session, f"its holder {session.client} is gone")):
            return await self._tell(session, request, response)

    async def _tell(self, session: Session, request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
        try:
            await response.prepare(request)
            await response.write(msgspec.json.encode(wire.Lost()) + b"\n")
            while True:
                try:
                    lost = await asyncio.wait_for(session.events.get(), _KEEPALIVE_S)
                except TimeoutError:
                    lost = wire.Lost()
                if lost is None:
                    return response
                await response.write(msgspec.json.encode(lost) + b"\n")
        except ConnectionError:
            return response
        finally:
            if session.watched:
                self._sessions.end(session, f"its holder {session.client} is gone")

    async def _heartbeat(self, request: web.Request) -> web.Response:
        return _answer(wire.Alive(leases=tuple(self._session(request).leases)))

    async def _leave(self, request: web.Request) -> web.Response:
        self._sessions.end(self._session(request), "its holder left")
        return _answer(wire.Done())

    # --- leases ---

    async def _expect(self, request: web.Request) -> web.Response:
        session, expect = await self._read_of_session(request, wire.Expect)
        if not session.plan:
            raise InputError("/expect is for a session with a plan: name one in POST /session")
        for each in expect.kinds:
            self._caller(request).check_spec(each.spec, self._pool.config.spec)
        session.told = True
        await self._pool.expect({each.spec: each.leases for each in expect.kinds}, plan=session.plan)
        return _answer(wire.Done())

    async def _lease(self, request: web.Request) -> web.Response:
        session, ask = await self._read_of_session(request, wire.Ask)
        if ask.lease in session.asking:
            raise InputError(f"there is a request {ask.lease} already; give another name")
        if ask.spec is not None:
            self._caller(request).check_spec(ask.spec, self._pool.config.spec)
        session.asking.add(ask.lease)
        try:
            lease = await self._pool.acquire(
                ask.spec, priority=ask.priority, group=ask.group, client=session.client, timeout=ask.timeout,
                lease_id=ask.lease, plan=session.plan,
            )  # fmt: skip
        except NoDesktop as error:
            if session.ended == _STOPPED:
                raise PoolGone(str(error)) from None
            raise
        finally:
            session.asking.discard(ask.lease)
        if session.ended or lease.lost:
            self._pool.revoke(lease.id, session.ended)
            raise NoDesktop(f"lease {ask.lease} was lost at once: {session.ended or lease.lost}")
        session.leases[lease.id] = lease
        lease.on_lost, lease.on_death = session.tell, session.tell_death
        return _answer(wire.Granted(lease=lease.id, address=lease.address, spec=lease.spec))

    async def _release(self, request: web.Request) -> web.Response:
        session, given = await self._read_of_session(request, wire.Return)
        name = given.lease
        if name in session.asking:
            self._pool.withdraw(name, "its holder wants it no more")
        elif session.leases.pop(name, None) is not None:
            self._pool.release(name, settled=given.settled, suspect=plain(given.suspect))
        return _answer(wire.Done())

    # --- operators ---

    async def _status(self, request: web.Request) -> web.Response:
        return _answer(await self._pool.status())

    async def _resize(self, request: web.Request) -> web.Response:
        size = await _read(request, wire.Resize)
        await self._pool.resize(size.num_vms, size.min_vms)
        return _answer(wire.Done())

    async def _drain(self, request: web.Request) -> web.Response:
        await self._pool.drain()
        return _answer(wire.Done())

    async def _free(self, request: web.Request) -> web.Response:
        free = await _read(request, wire.Free)
        await self._pool.free(free.desktop, free.reason)
        return _answer(wire.Done())

    # ---

    async def _unknown(self, request: web.Request) -> web.Response:
        known = {path: method for method, path in self._endpoints()}
        if request.path in known:
            return _refuse(f"{request.path} takes {known[request.path]}, not {request.method}", 405)
        return _refuse(f"there is no {request.path}; there are: {', '.join(sorted(known))}", 404)

    def _caller(self, request: web.Request) -> Caller:
        return self._keys.who(request.headers.get("Authorization", "")) or Caller(name="nobody", operator=False)

    def _session(self, request: web.Request) -> Session:
        session = self._sessions.find(request.headers.get(wire.SESSION_HEADER, ""))
        if session is None or self._caller(request).name not in ("", session.client):
            raise LeaseLost(
                f"there is no such session (any more); begin one with POST /session, send {wire.SESSION_HEADER}"
            )
        session.renew(running_time())
        return session

    async def _read_of_session(self, request: web.Request, kind: type[T]) -> tuple[Session, T]:
        """Who sends something, and what: the session may end while that is on its way."""
        session = self._session(request)
        sent = await _read(request, kind)
        if session.ended:
            raise LeaseLost(f"the session is over: {session.ended}; begin another one with POST /session")
        return session, sent

    async def _expire_sessions(self) -> None:
        while True:
            await asyncio.sleep(1.0)  # sessions that give no sign of life raise no event
            # A sign of life that came while this process was stopped has yet to be read: that time does not count.
            self._sessions.end_expired(running_time())


def _answer(record: Record, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(record), status=status, content_type="application/json")


def _refuse(why: str, status: int, kind: str = "DesktopError") -> web.Response:
    return _answer(wire.Problem(error=why, kind=kind), status)


async def _read(request: web.Request, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(await request.read() or b"{}", type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(f"{request.path}: {error}") from None
