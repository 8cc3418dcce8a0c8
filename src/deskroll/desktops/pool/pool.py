"""Pool: N holders share M desktops of one provider.

Owns the provider and every desktop that it boots. The decisions are the roster's; here they are carried out, each in a
task of its own, so that no boot, reset or check ever holds up another, or a holder. Guarantees: `lease` gives a clean,
checked desktop to one holder at a time; leaving the block returns at once and the reset goes on behind; closing the
pool, or an error in it, ends every wait and every lease with a clear error and leaves no desktop.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from deskroll import events
from deskroll.clocks import running_time, time_limit
from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.lease import Lease
from deskroll.desktops.notes import Note
from deskroll.desktops.pool.config import PoolConfig
from deskroll.desktops.pool.effects import Boot, Check, Effect, Grant, Refuse, Report, Revert, Revoke, Stop
from deskroll.desktops.pool.queue import Request
from deskroll.desktops.pool.roster import Roster
from deskroll.desktops.pool.slot import Slot, State
from deskroll.desktops.pool.status import PoolStatus, status_of
from deskroll.desktops.providers.base import Provider
from deskroll.desktops.reaper import orphans
from deskroll.desktops.settings import MOST_VMS, TOO_LONG
from deskroll.errors import (
    BackgroundLost,
    BootError,
    ConfigError,
    DeathCause,
    DeskrollError,
    DesktopError,
    DesktopLost,
    InputError,
    NoDesktop,
    ResetError,
)
from deskroll.host.supervise import Supervisor
from deskroll.types import checked

_log = logging.getLogger(__name__)
T = TypeVar("T")
_DEFAULTS = PoolConfig()


class Pool:
    """A pool in this process. `PoolClient` has the same interface for one in another.

    `expected`: how many leases of each kind there will be in all, where that is known (`expect` tells of changes): then
    no desktop is booted or reset beyond those. None: anybody may come, and spares stand ready.
    """

    def __init__(
        self,
        provider: Provider,
        config: PoolConfig = _DEFAULTS,
        *,
        sink: events.EventSink | None = None,
        expected: Mapping[DesktopSpec, int] | None = None,
    ) -> None:
        provider.check_spec(config.spec)
        _check_size(config.fewest, config.num_vms, provider)
        self.config = config
        self.provider = provider
        self._sink = events.guarded(sink)
        self._roster = Roster(
            config, provider.capabilities, lambda: f"{provider.name}-{secrets.token_hex(4)}", expected=expected
        )
        self._roster.fleet.on_change = self._tell_state
        self._waiters: dict[str, asyncio.Future[Lease]] = {}
        self._leases: dict[str, Lease] = {}
        self._orphans: dict[str, Note] = {}
        """Found at the start, until they are taken over or gone."""
        self._work = Supervisor(self._break, so="it hands out no more desktops")
        self._open = False
        self._closing = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        """When the timer goes off, unless this process is late."""
        self._failure: DeskrollError | None = None
        self._broken: NoDesktop | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Pool:
        await self._stack.enter_async_context(self.provider)
        try:
            self.provider.on_lost(self._lost)
            self._stack.push_async_callback(self._close)
            self._open = True
            self._orphans = {note.id: note for note in await orphans(self.provider)}
            adopt = self.provider.capabilities.adopts
            self._apply(self._roster.found(list(self._orphans), adopt=adopt, now=self._now()))
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    # --- for holders ---

    @asynccontextmanager
    async def lease(
        self,
        spec: DesktopSpec | None = None,
        *,
        priority: int = 0,
        group: str = "",
        client: str = "",
        timeout: float | None = None,
    ) -> AsyncIterator[Lease]:
        """Wait for a desktop and hold it for the length of the block; its reset goes on after that.

        `timeout` is how long to wait, in seconds (else the pool's `resource_timeout`). Raises `NoDesktop` when it
        passes, or when the request can never be served.
        """
        lease = await self.acquire(spec, priority=priority, group=group, client=client, timeout=timeout)
        try:
            yield lease
        finally:
            try:
                await lease.close()  # first: where the fence is timed, nothing of ours may arrive after the release
            finally:
                self.release(lease.id, settled=lease.settled, suspect=lease.suspect)

    async def acquire(
        self,
        spec: DesktopSpec | None = None,
        *,
        priority: int = 0,
        group: str = "",
        client: str = "",
        timeout: float | None = None,
        lease_id: str = "",
        plan: str = "",
    ) -> Lease:
        """Wait for a desktop; the caller must `release` it. Prefer `lease`."""
        self._require_running()
        spec = checked(spec, DesktopSpec) if spec is not None else self.config.spec
        self.provider.check_spec(spec)
        if timeout is not None and not 0 <= timeout < TOO_LONG:
            raise InputError(f"timeout is {timeout}; it must be a number of seconds, 0 or more")
        lease_id = lease_id or new_lease_id()
        if lease_id in self._waiters or lease_id in self._leases:
            raise InputError(f"there is a lease {lease_id} already; give another id")
        now = self._now()
        patience = self.config.resource_timeout if timeout is None else timeout
        request = Request(
            id=lease_id, spec=spec, client=client, group=group, plan=plan, priority=priority, arrived_at=now,
            deadline=None if patience is None else now + patience,
        )  # fmt: skip
        waiter: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        self._waiters[lease_id] = waiter
        try:
            self._apply(self._roster.request(request, now))
            return await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                waiter.exception()  # refused at the very moment of being cancelled: nobody else will look at it
            self._leases.pop(lease_id, None)
            self._apply(self._roster.cancel(lease_id, self._now()))
            raise
        finally:
            del self._waiters[lease_id]

    def release(self, lease_id: str, *, settled: bool = True, suspect: str = "") -> None:
        """Give a desktop back; returns at once. A lease that is over already is no error.

        Not `settled`: a request of the holder's may still arrive, so where the fence is timed it takes a new machine.
        `suspect`: why the holder thinks that something is wrong with it; the machine is replaced.
        """
        lease = self._leases.pop(lease_id, None)
        if lease is not None:
            lease.lose("it was given back")
            self._apply(self._roster.release(lease_id, self._now(), settled=settled, suspect=suspect))
            self._sink.emit(events.LeaseReleased(lease=lease_id, desktop=lease.address.id))

    def revoke(self, lease_id: str, reason: str) -> None:
        """Take a desktop from its holder, whatever it does with it at the moment."""
        self._apply(self._roster.revoke(lease_id, reason, self._now()))

    def withdraw(self, lease_id: str, reason: str) -> None:
        """Call off a request that still waits; whoever waits gets `NoDesktop`, or a lease that is lost already."""
        waiter = self._waiters.get(lease_id)
        if waiter is not None and not waiter.done():
            waiter.set_exception(NoDesktop(f"request {lease_id} was called off: {reason}"))
            self._apply(self._roster.cancel(lease_id, self._now()))
        elif waiter is not None:
            self.revoke(lease_id, reason)  # served at this very moment, and whoever waits does not know yet

    async def expect(self, leases: Mapping[DesktopSpec, int], *, plan: str = "") -> None:
        """How many leases a plan comes to in all, by kind, those that it has had included."""
        self._apply(self._roster.expect(plan, leases, self._now()))

    def forget(self, plan: str) -> None:
        """Nobody knows any more how many leases a plan comes to."""
        self._apply(self._roster.expect(plan, None, self._now()))

    # --- for operators ---

    async def status(self) -> PoolStatus:
        """What goes on at this moment."""
        price = self.provider.capabilities.usd_per_hour
        return status_of(self._roster, self.provider.name, price, self._now())

    async def resize(self, num_vms: int, min_vms: int | None = None) -> None:
        """Have at most `num_vms` desktops from now on, and at least `min_vms`. Ends a draining.

        Without `min_vms` a pool of fixed size keeps one, and an elastic one its least number.
        """
        elastic = self._roster.fewest < self._roster.most
        kept = min(self._roster.fewest, num_vms) if elastic else num_vms
        fewest = kept if min_vms is None else min_vms
        _check_size(fewest, num_vms, self.provider)
        self._apply(self._roster.resize(fewest, num_vms, self._now()))

    async def drain(self) -> None:
        """Hand out no more desktops, and stop each one as it comes free."""
        self._apply(self._roster.drain(self._now()))

    async def free(self, desktop_id: str, reason: str = "an operator took it back") -> None:
        """Take a desktop from whoever holds it, by force."""
        slot = self._roster.fleet.slots.get(desktop_id)
        if slot is None:
            known = ", ".join(self._roster.fleet.slots) or "none"
            raise InputError(f"there is no desktop {desktop_id!r} in this pool; there are: {known}")
        if slot.request is None:
            raise InputError(f"desktop {desktop_id} is not leased: it is {slot.state}")
        self.revoke(slot.request.id, reason)

    async def until_closed(self) -> None:
        """Wait until it hands out no more desktops: it is being closed, or it broke."""
        await self._closing.wait()

    # --- carrying out ---

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Grant(request, address):
                    lease = Lease(request.id, address, request.spec)
                    self._leases[request.id] = lease
                    waiter = self._waiters[request.id]
                    if not waiter.done():
                        waiter.set_result(lease)
                    waited, client = self._now() - request.arrived_at, request.client
                    self._sink.emit(
                        events.LeaseGranted(lease=request.id, desktop=address.id, client=client, waited_s=waited)
                    )
                case Refuse(request_id, error):
                    waiter = self._waiters[request_id]
                    if not waiter.done():
                        waiter.set_exception(error)
                    self._sink.emit(events.LeaseRefused(lease=request_id, reason=str(error)))
                case Revoke(lease_id, desktop_id, client, reason):
                    if (lost := self._leases.pop(lease_id, None)) is not None:
                        lost.lose(reason)
                    self._sink.emit(events.LeaseTaken(lease=lease_id, desktop=desktop_id, client=client, reason=reason))
                case Report(event):
                    self._sink.emit(event)
                case work if self._open and not self._closing.is_set():
                    self._work.start(f"the pool's {type(work).__name__.lower()} of {work.id}", self._perform(work))
        self._set_timer()

    async def _perform(self, work: Effect) -> None:
        """Do one piece of slow work and report how it went."""
        roster, config = self._roster, self.config
        match work:
            case Boot(desktop_id, spec):
                booting = self.provider.boot(spec, desktop_id=desktop_id)
                try:
                    address = await _within(config.boot_timeout, booting, f"booting desktop {desktop_id}", BootError)
                except DeskrollError as error:
                    self._apply(roster.boot_failed(desktop_id, error, self._now()))
                else:
                    self._apply(roster.made_clean(desktop_id, address, self._now()))
            case Revert(desktop_id, spec):
                note = self._orphans.get(desktop_id)
                reset = self.provider.adopt(note, spec) if note else self.provider.revert(desktop_id, spec)
                try:
                    address = await _within(config.reset_timeout, reset, f"resetting desktop {desktop_id}", ResetError)
                except DeskrollError as error:
                    self._apply(roster.revert_failed(desktop_id, error, self._now()))
                else:
                    self._orphans.pop(desktop_id, None)  # it is ours now
                    self._apply(roster.made_clean(desktop_id, address, self._now()))
            case Check(desktop_id, address, generation):
                check = self.provider.check(address)
                try:
                    await _within(config.check_timeout, check, f"checking desktop {desktop_id}", DesktopLost)
                except DeskrollError as error:
                    self._apply(roster.check_failed(desktop_id, generation, error, self._now()))
                else:
                    self._apply(roster.checked(desktop_id, generation, self._now()))
            case Stop(desktop_id):
                note = self._orphans.get(desktop_id)
                stop = self.provider.remove(note) if note else self.provider.stop(desktop_id)
                try:
                    await _within(config.stop_timeout, stop, f"stopping desktop {desktop_id}", DesktopError)
                except DeskrollError as error:
                    self._apply(roster.stop_failed(desktop_id, error, self._now()))
                else:
                    self._orphans.pop(desktop_id, None)
                    self._apply(roster.stopped(desktop_id, self._now()))

    def _lost(self, desktop_id: str, reason: str, cause: DeathCause) -> None:
        if not self._closing.is_set():
            for lease in [lease for lease in self._leases.values() if lease.address.id == desktop_id]:
                lease.die(cause)
            self._apply(self._roster.lost(desktop_id, reason, self._now()))

    def _set_timer(self) -> None:
        at = self._roster.next_wake()
        if self._timer is not None:
            if not self._timer.cancelled() and self._wakes_at <= at:
                return
            self._timer.cancel()
        if not self._closing.is_set():
            self._wakes_at = at
            self._timer = asyncio.get_running_loop().call_later(max(0.0, at - self._now()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._work.start("the pool's clock", self._pass_time())

    async def _pass_time(self) -> None:
        self._apply(self._roster.tick(self._now()))

    # --- life ---

    def _break(self, lost: BackgroundLost) -> None:
        """Work that died leaves a desktop of which nobody knows what it does: nothing more is handed out."""
        self._broken = NoDesktop(f"the pool broke: {lost}; this is a bug: please report it")
        self._broken.__cause__ = lost.__cause__
        _log.error("%s", self._broken)
        self._end_all(self._broken)
        self._work.cancel()

    async def _close(self) -> None:
        self._end_all(NoDesktop("the pool is closed"))
        await self._work.close()
        self._open = False
        if self._broken is not None:
            raise self._broken

    def _end_all(self, error: DeskrollError) -> None:
        """Let nobody wait for, or hold, anything any more."""
        self._failure = self._failure or error
        self._closing.set()
        if self._timer is not None:
            self._timer.cancel()
        for waiter in self._waiters.values():
            if not waiter.done():
                waiter.set_exception(error)
        leases, self._leases = self._leases, {}
        for lease in leases.values():
            lease.lose(str(error))

    def _require_running(self) -> None:
        if not self._open or self._failure is not None:
            raise self._failure or NoDesktop("the pool is not open: use it with `async with`")

    def _tell_state(self, slot: Slot, state: str) -> None:
        request = slot.request if state == State.LEASED else None
        holder = (request.id, request.client, request.group) if request is not None else ("", "", "")
        lease, client, group = holder
        self._sink.emit(events.DesktopState(desktop=slot.id, state=str(state), lease=lease, client=client, group=group))

    @staticmethod
    def _now() -> float:
        return running_time()  # nobody has waited too long because we were stopped


def _check_size(fewest: int, most: int, provider: Provider) -> None:
    if not 1 <= most <= MOST_VMS or not 0 <= fewest <= most:
        raise ConfigError(
            f"a pool cannot have {fewest} to {most} desktops; num_vms is 1 to {MOST_VMS:,}, min_vms 0 to num_vms"
        )
    limit = provider.capabilities.most
    if limit is not None and most > limit:
        raise ConfigError(f"num_vms is {most}; there is room for about {limit} {provider.name} desktops here")


def new_lease_id() -> str:
    """A name for a request and the lease that comes of it."""
    return f"lease-{secrets.token_hex(6)}"


async def _within(seconds: float, work: Awaitable[T], what: str, kind: type[DesktopError]) -> T:
    """Await a provider's work; whatever goes wrong becomes an error of deskroll's that says what it was."""
    try:
        async with time_limit(seconds):
            return await work
    except TimeoutError:
        raise kind(f"{what} did not finish within {seconds:g} s") from None
    except DeskrollError:
        raise
    except Exception as error:
        raise kind(f"{what}: {type(error).__name__}: {error}") from error
