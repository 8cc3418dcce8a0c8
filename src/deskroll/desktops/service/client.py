"""PoolClient: a pool in another process, with the interface of a `Pool`.

Owns one session for this process. Guarantees: a lease of which the service says that it is lost, or of which it can no
longer be known that it is ours, raises `LeaseLost` on every use; a request that is cancelled, or whose answer never
came, holds nothing. A request waits for a pool that serves nobody, for as long as it is told to.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import heapq
import logging
import math
import operator
import os
import random
import socket
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

import aiohttp
import msgspec

from deskroll.clocks import boot_time, running_time
from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.lease import Lease
from deskroll.desktops.pool import PoolStatus
from deskroll.desktops.pool.pool import new_lease_id
from deskroll.desktops.service import wire
from deskroll.errors import BackgroundLost, DeskrollError, LeaseLost, NoDesktop, PoolGone, plain
from deskroll.host.owner import boot_id
from deskroll.host.supervise import Supervisor
from deskroll.host.tokens import TOKEN_VARIABLE, bearer_headers
from deskroll.types import Record

_log = logging.getLogger(__name__)
T = TypeVar("T", bound=Record)
CALL_S = 30.0
"""Deadline of a call that does not wait for a desktop."""
STATUS_S = 8.0
"""Deadline of a look at a pool: a person waits."""
_BEAT_S = 20.0
"""Between heartbeats, at most."""
_AGAIN_S = 1.0
"""Between two looks for a pool that is gone."""
_QUEUED_S = 5.0
"""A request that was held for so long was in the queue of a pool that was there."""
_MARGIN_S = 2.0
"""A holder stops using its desktops this long before the service takes them back."""


class PoolClient:
    """A pool at an address (`unix:PATH` or `HOST:PORT`; nothing: the usual socket). Use with `async with`.

    The token is what `DESKROLL_TOKEN` says, unless one is given. `beat` is the longest time between two signs of life,
    in seconds, `wait` the longest that a request for a desktop waits for a pool that serves nobody. `plan` names what
    its leases belong to, among all processes that work on it (see `expect`).
    """

    def __init__(
        self,
        at: str = "",
        *,
        token: str | None = None,
        client: str = "",
        beat: float = _BEAT_S,
        wait: float = 0.0,
        plan: str = "",
    ) -> None:
        self.at = wire.pool_address(at)
        self._plan = plan
        self._client = client or f"{os.environ.get('USER') or os.getuid()}@{socket.gethostname()}:{os.getpid()}"
        self._token = os.environ.get(TOKEN_VARIABLE, "") if token is None else token
        self._beat_s = beat
        self._wait_s = wait
        self._http: aiohttp.ClientSession | None = None
        self._session: wire.Welcome | None = None
        self._beginning = asyncio.Lock()
        self._over = asyncio.Event()
        """Set when the session is lost."""
        self._renewed_at = 0.0
        self._leases: dict[str, Lease] = {}
        self._asking: dict[str, asyncio.Event] = {}
        """Requests that wait; the event says that the answer to one was lost on its way."""
        self._owed: dict[str, wire.Return | None] = {}
        """What is to be given back, and how; None: its holder's last requests are being ended."""
        self._background = Supervisor()

    async def __aenter__(self) -> PoolClient:
        if self._http is not None:
            raise NoDesktop("the pool's client is open already: make another one")
        connector = (
            aiohttp.UnixConnector(path=self.at.path, limit=0) if self.at.is_unix else aiohttp.TCPConnector(limit=0)
        )
        self._http = aiohttp.ClientSession(
            connector=connector,
            headers=bearer_headers(self._token),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        session = self._session
        if session is not None:
            self._lose_session(session, "its holder left")
        await self._background.close()
        if self._http is not None:
            if session is not None:
                with contextlib.suppress(DeskrollError):  # where it cannot be reached, nothing of ours is left there
                    await self._call("POST", "/leave", wire.Done, session=session, timeout=5.0)
            http, self._http = self._http, None
            await http.close()

    # --- for holders ---

    @asynccontextmanager
    async def lease(
        self,
        spec: DesktopSpec | None = None,
        *,
        priority: int = 0,
        group: str = "",
        timeout: float | None = None,
    ) -> AsyncIterator[Lease]:
        """Wait for a desktop and hold it for the length of the block; its reset goes on after that."""
        ask = wire.Ask(lease=new_lease_id(), spec=spec, priority=priority, group=group, timeout=timeout)
        lease, session = await self._acquire(ask)
        try:
            yield lease
        finally:
            self._leases.pop(lease.id, None)
            lost = bool(lease.lost)
            if not lost:
                self._owed[lease.id] = None
            lease.lose("it was given back")
            try:
                await lease.close()  # first: where the fence is timed, nothing of ours may arrive after the release
            finally:
                if not lost:
                    given = wire.Return(lease=lease.id, settled=lease.settled, suspect=plain(lease.suspect))
                    await asyncio.shield(self._give_back(given, session))

    async def _acquire(self, ask: wire.Ask) -> tuple[Lease, wire.Welcome]:
        """Ask for a desktop, and again where the pool or the session is gone meanwhile."""
        gone_since = math.inf
        while True:
            asked_at = math.inf
            try:
                session = await self._ready_session()
                asked_at = running_time()
                return await self._ask(ask, session), session
            except LeaseLost:
                continue
            except PoolGone:
                now = running_time()
                gone_since = now if now - asked_at > _QUEUED_S else min(gone_since, now)
                if now - gone_since >= self._wait_s:
                    raise
                await asyncio.sleep(_AGAIN_S * random.uniform(0.5, 1.0))  # noqa: S311  (spreads those who return)

    async def _ask(self, ask: wire.Ask, session: wire.Welcome) -> Lease:
        unheard = self._asking[ask.lease] = asyncio.Event()
        try:
            granted = await self._while_heard(
                unheard, self._call("POST", "/lease", wire.Granted, ask, session=session, timeout=None)
            )
            left = functools.partial(self._seconds_left, session)
            lease = Lease(granted.lease, granted.address, granted.spec, seconds_left=left)
            self._leases[lease.id] = lease
        except LeaseLost as error:
            # The service knows us no more: it was started anew, or could not hear us for too long. So begin again.
            self._lose_session(session, str(error))
            raise
        except BaseException:
            await asyncio.shield(self._give_back(wire.Return(lease=ask.lease), session))
            raise
        finally:
            self._asking.pop(ask.lease, None)
        return lease

    async def _while_heard(self, unheard: asyncio.Event, work: Coroutine[object, object, T]) -> T:
        """Wait for an answer that may take for ever, but no longer than the session lives and it can still come."""
        call = asyncio.ensure_future(work)
        ends = [asyncio.ensure_future(each.wait()) for each in (self._over, unheard)]
        try:
            await asyncio.wait((call, *ends), return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                raise PoolGone(f"the pool at {self.at} is gone, or cannot be heard any more")
            return call.result()
        finally:
            for task in (call, *ends):
                task.cancel()
            await asyncio.gather(call, *ends, return_exceptions=True)

    async def _give_back(self, given: wire.Return, session: wire.Welcome) -> None:
        """Where the pool cannot be reached, a later heartbeat does it, in the same words, or the end of the session."""
        self._owed[given.lease] = given
        try:
            await self._call("POST", "/release", wire.Done, given, session=session)
        except LeaseLost:
            pass  # the session is over, and with it the lease
        except DeskrollError:
            if self._session is session:
                return
        self._owed.pop(given.lease, None)

    async def expect(self, leases: Mapping[DesktopSpec, int]) -> None:
        """How many leases our plan comes to in all, by kind, those that it has had included; holds while we do."""
        most = heapq.nlargest(wire.MOST_KINDS, leases.items(), key=operator.itemgetter(1))
        kinds = tuple(wire.Kind(spec=spec, leases=min(number, wire.MOST_LEASES)) for spec, number in most)
        await self._call("POST", "/expect", wire.Done, wire.Expect(kinds=kinds), session=await self._ready_session())

    # --- for operators ---

    async def status(self) -> PoolStatus:
        """What goes on at this moment."""
        return await self._call("GET", "/status", PoolStatus, timeout=STATUS_S)

    async def resize(self, num_vms: int, min_vms: int | None = None) -> None:
        """Have at most `num_vms` desktops from now on, and at least `min_vms` (None: as before). Ends a draining."""
        await self._call("POST", "/resize", wire.Done, wire.Resize(num_vms=num_vms, min_vms=min_vms))

    async def drain(self) -> None:
        """Hand out no more desktops, and stop each one as it comes free."""
        await self._call("POST", "/drain", wire.Done)

    async def free(self, desktop_id: str, reason: str = "an operator took it back") -> None:
        """Take a desktop from whoever holds it, by force."""
        await self._call("POST", "/free", wire.Done, wire.Free(desktop=desktop_id, reason=reason))

    # --- the session ---

    async def _ready_session(self) -> wire.Welcome:
        """This process's session, begun on first use and again after the service was started anew."""
        async with self._beginning:
            if self._session is None:
                sent_at = boot_time()
                hello = wire.Hello(client=self._client, boot=boot_id(), plan=self._plan)
                session = await self._call("POST", "/session", wire.Welcome, hello)
                self._session, self._renewed_at, self._over = session, sent_at, asyncio.Event()
                heard = asyncio.Event()
                await self._background.close()
                self._background = Supervisor(
                    functools.partial(self._hear_lost, session), so="the desktops that it kept for us are given up"
                )
                self._background.start("what listens to the pool", self._listen(session, heard))
                self._background.start("the heartbeat to the pool", self._beat(session))
                await heard.wait()
            if self._session is None:
                raise PoolGone(f"the pool at {self.at} ended the session at once; is it being stopped?")
            return self._session

    async def _listen(self, session: wire.Welcome, heard: asyncio.Event) -> None:
        """Hear of leases that are taken away. Where the session lives by this connection, its end is the session's."""
        try:
            while self._session is session:
                with contextlib.suppress(aiohttp.ClientError, OSError, msgspec.MsgspecError):
                    await self._hear(session, heard)
                if session.watched:
                    self._lose_session(session, "the pool's service is gone")
                    return
                heard.set()
                await asyncio.sleep(1.0)  # before the next attempt; until then heartbeats tell what is lost
        finally:
            heard.set()

    async def _hear(self, session: wire.Welcome, heard: asyncio.Event) -> None:
        headers = {wire.SESSION_HEADER: session.session}
        # A live service says something more often; one on this host may be stopped for a while, and its end is seen.
        timeout = aiohttp.ClientTimeout(total=None, sock_read=None if session.watched else CALL_S)
        async with self._require_http().get(f"{self.at.url}/events", headers=headers, timeout=timeout) as response:
            async for line in response.content:
                heard.set()
                if response.status != 200:
                    return
                lost = msgspec.json.decode(line, type=wire.Lost)
                if lost.death is not None and lost.lease in self._leases:
                    self._leases[lost.lease].die(lost.death)
                elif lost.lease in self._leases:
                    self._leases.pop(lost.lease).lose(lost.reason)

    async def _beat(self, session: wire.Welcome) -> None:
        """Show signs of life, and set right what got lost on its way: releases, answers, news of lost leases."""
        doubtful: set[str] = set()
        while self._session is session:
            await asyncio.sleep(min(session.ttl_s / 3, self._beat_s))
            sent_at, held, owed = boot_time(), set(self._leases), set(self._owed)
            try:
                alive = await self._call("POST", "/heartbeat", wire.Alive, session=session, timeout=session.ttl_s / 3)
            except LeaseLost as error:
                self._lose_session(session, str(error))
            except DeskrollError:
                # The leases end by themselves when this goes on for too long; so does what waits.
                if not session.watched and boot_time() > self._renewed_at + session.ttl_s:
                    self._lose_session(session, f"the pool could not be reached for {session.ttl_s:g} s")
            else:
                self._renewed_at = sent_at
                theirs = set(alive.leases)
                self._drop(held - theirs, owed - theirs)
                doubtful = await self._compare(session, theirs, doubtful)

    def _drop(self, held: set[str], owed: set[str]) -> None:
        """What we held or owed before a beat, and what the pool did not know at that beat, is over."""
        for lease_id in held:
            if (lease := self._leases.pop(lease_id, None)) is not None:
                lease.lose("the pool says that it is over")
        for lease_id in owed:
            if self._owed.get(lease_id) is not None:
                del self._owed[lease_id]

    async def _compare(self, session: wire.Welcome, theirs: set[str], doubtful: set[str]) -> set[str]:
        """Theirs against ours. The answer to a request that was granted two beats ago is not on its way any more."""
        unknown = theirs - set(self._leases)
        for lease_id in unknown:
            if lease_id in self._leases:
                continue  # its answer came while another one was given back
            if lease_id in self._asking:
                if lease_id in doubtful:
                    self._asking[lease_id].set()
            elif given := self._owed.get(lease_id, wire.Return(lease=lease_id)):
                await self._give_back(given, session)
        return unknown

    def _seconds_left(self, session: wire.Welcome) -> float:
        if self._session is not session:
            return 0.0
        return math.inf if session.watched else self._renewed_at + session.ttl_s - _MARGIN_S - boot_time()

    def _hear_lost(self, session: wire.Welcome, lost: BackgroundLost) -> None:
        """Without signs of life, or news of what is taken away, nobody knows what is still ours: begin again."""
        _log.warning("%s", lost)
        self._lose_session(session, str(lost))

    def _lose_session(self, session: wire.Welcome, reason: str) -> None:
        if self._session is session:
            self._session = None
            self._over.set()
            self._owed.clear()
            leases, self._leases = self._leases, {}
            for lease in leases.values():
                lease.lose(reason)

    # --- HTTP ---

    async def _call(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: Record | None = None,
        *,
        session: wire.Welcome | None = None,
        timeout: float | None = CALL_S,
    ) -> T:
        headers = {wire.SESSION_HEADER: session.session} if session else {}
        data = msgspec.json.encode(body) if body is not None else None
        limit = aiohttp.ClientTimeout(total=timeout, sock_connect=10.0)
        try:
            async with self._require_http().request(
                method, f"{self.at.url}{path}", data=data, headers=headers, timeout=limit, allow_redirects=False
            ) as response:
                answer = await response.read()
                if response.status == 200:
                    return msgspec.json.decode(answer, type=kind)
                problem = msgspec.json.decode(answer, type=wire.Problem)
                raise PoolGone(problem.error) if response.status == 401 else problem.as_error()
        except TimeoutError:
            raise PoolGone(
                f"the pool at {self.at} did not answer {path} within {timeout:g} s: it hangs, or its process is stopped"
            ) from None
        except (aiohttp.ClientConnectorError, FileNotFoundError) as error:
            raise PoolGone(f"no pool answers at {self.at}; start one:  deskroll pool serve") from error
        except (aiohttp.ClientError, OSError) as error:
            raise PoolGone(f"the pool at {self.at} broke off {path}: {type(error).__name__}: {error}") from error
        except msgspec.MsgspecError as error:
            raise NoDesktop(f"what answers at {self.at} is not a pool: {path}: {error}") from error

    def _require_http(self) -> aiohttp.ClientSession:
        if self._http is None:
            raise NoDesktop("the pool's client is not open: use it with `async with`")
        return self._http
