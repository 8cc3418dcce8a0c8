"""The pool's state machine: pure, without clock, tasks or I/O.

Owns every desktop's state and every waiting request. Each method is an event (somebody asks, a boot has ended, time
has passed); it returns what is to be done now. Guarantees, whatever the sequence of events:

- a desktop is leased to at most one request, and only from `ready`: reset or new since its last use, and checked;
- a desktop is in exactly one state until it is known to be gone, and no more than `num_vms` are alive;
- a request that waits is served as soon as a desktop that fits is ready, in the queue's order; where none fits, one
  is booted, or an idle one recycled, for the first request that lacks one;
- where all leases are told beforehand, none is booted or reset beyond those that are still to come;
- what fails is stopped and replaced, never handed out, and boots that keep failing are held off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from deskroll.desktops.base import Address, Capabilities, DesktopSpec, Fence, Recycling
from deskroll.desktops.pool.boot_failures import BootFailures
from deskroll.desktops.pool.config import PoolConfig
from deskroll.desktops.pool.effects import Boot, Check, Effect, Grant, Refuse, Report, Revert, Revoke, Stop
from deskroll.desktops.pool.expected import Expected
from deskroll.desktops.pool.fleet import Fleet
from deskroll.desktops.pool.meter import Load, Meter
from deskroll.desktops.pool.queue import Queue, Request
from deskroll.desktops.pool.slot import Slot, State
from deskroll.errors import DeskrollError, DesktopLost, InputError, MissingDependency, NoDesktop, PoolGone
from deskroll.events import DesktopBroken, DesktopNotBooted, DesktopUnstoppable
from deskroll.host.backoff import Backoff

STEADY_S = 5.0
"""A desktop that has stood ready for this long, or was handed out, shows that such boots work."""
_FINAL = (InputError, MissingDependency)
"""Failures that trying again does not mend."""


class Roster:
    """All desktops and all requests of one pool.

    `expected`: all leases that there will be (of the plan without a name), as far as is known; None: anybody may come.
    """

    def __init__(
        self,
        config: PoolConfig,
        capabilities: Capabilities,
        new_id: Callable[[], str],
        now: float = 0.0,
        *,
        expected: Mapping[DesktopSpec, int] | None = None,
    ) -> None:
        self.fleet = Fleet()
        self.queue = Queue(config.quotas)
        self.expected = Expected()
        self.leases: dict[str, Slot] = {}
        self.meter = Meter(now)
        self.fewest, self.most = config.fewest, config.num_vms
        self.draining = False
        self.last_error = ""
        self._config = config
        self._backoff = Backoff(base=config.backoff, longest=config.backoff_max)
        self._can = capabilities
        self._new_id = new_id
        self._backoffs: dict[DesktopSpec, BootFailures] = {}
        self._retries: dict[str, Slot] = {}
        """Desktops that could not be stopped, until that is tried again."""
        self._housekeeping_at = now
        self._now = now
        self._effects: list[Effect] = []
        self._all_told = expected is not None
        """Whether nobody comes who was not told."""
        if expected is not None:
            self.expected.tell("", expected)

    # --- what people and holders do ---

    def request(self, request: Request, now: float) -> list[Effect]:
        """Somebody wants a desktop."""
        self._begin(now)
        backoff = self._backoffs.get(request.spec)
        if self.draining:
            self._do(Refuse(request.id, PoolGone(f"request {request.id}: the pool is being drained; use another one")))
        elif backoff is not None and backoff.final is not None and now < backoff.until:
            self._do(Refuse(request.id, again(backoff.final)))
        else:
            self.queue.add(request)
        return self._end()

    def cancel(self, request_id: str, now: float) -> list[Effect]:
        """Somebody wants no desktop any more, whether it waits or holds one."""
        self._begin(now)
        if self.queue.discard(request_id, now) is None:
            self._let_go(request_id, settled=True)
        return self._end()

    def release(self, lease_id: str, now: float, *, settled: bool = True, suspect: str = "") -> list[Effect]:
        """A holder gives its desktop back, and what was wrong with it. A lease that is over already is no error."""
        self._begin(now)
        if suspect and (slot := self.leases.get(lease_id)) is not None:
            self.fleet.doom(slot, f"its holder found it wanting: {suspect}")
        self._let_go(lease_id, settled=settled)
        return self._end()

    def revoke(self, lease_id: str, reason: str, now: float) -> list[Effect]:
        """Take a desktop from its holder: it is dead, its time is over, or somebody says so."""
        self._begin(now)
        slot = self.leases.get(lease_id)
        if slot is not None and slot.request is not None:
            self._do(Revoke(lease_id, slot.id, slot.request.client, reason))
            self._let_go(lease_id, settled=False)
        return self._end()

    def expect(self, plan: str, leases: Mapping[DesktopSpec, int] | None, now: float) -> list[Effect]:
        """A plan comes to so many leases in all, those that it has had included; None: it is over."""
        self._begin(now)
        if leases is None:
            self.expected.forget(plan)
        else:
            self.expected.tell(plan, leases)
        return self._end()

    def resize(self, fewest: int, most: int, now: float) -> list[Effect]:
        """Have between `fewest` and `most` desktops from now on. Ends a draining."""
        self._begin(now)
        self.fewest, self.most, self.draining = fewest, most, False
        for slot in self.fleet.idle()[: max(0, self.fleet.staying - most)]:
            self._stop(slot, "the pool was made smaller")
        return self._end()

    def drain(self, now: float) -> list[Effect]:
        """Hand out no more desktops and stop each one as it comes free."""
        self._begin(now)
        self.draining = True
        for request in self.queue.all():
            self._refuse(request, PoolGone(f"request {request.id}: the pool is being drained; use another one"))
        for slot in list(self.fleet.slots.values()):
            self._doom(slot, "the pool is being drained")
        return self._end()

    def found(self, desktop_ids: Sequence[str], *, adopt: bool, now: float) -> list[Effect]:
        """Desktops of dead owners were found: take them over, or away. Each counts as alive until it is gone.

        Where the fence is timed, a holder of the dead owner's may still use one: it is taken away.
        """
        self._begin(now)
        for desktop_id in desktop_ids:
            room = len(self.fleet) < self.most and self._spare() == self._config.spec
            if adopt and self._can.fence is Fence.HARD and room:
                self.fleet.add(Slot(desktop_id, self._config.spec, State.RECYCLING, now))
                self._do(Revert(desktop_id, self._config.spec))
            else:
                self.fleet.add(Slot(desktop_id, self._config.spec, State.STOPPING, now))
                self._do(Stop(desktop_id))
        return self._end()

    # --- what comes of the work ---

    def made_clean(self, desktop_id: str, address: Address, now: float) -> list[Effect]:
        """A boot or a reset has ended well."""
        self._begin(now)
        slot = self.fleet.slots[desktop_id]
        slot.address = address
        slot.generation += 1
        if slot.doomed:
            self._stop(slot, slot.doomed)
        else:
            self.fleet.enter(slot, State.CHECKING, now)
            self._check(slot)
        return self._end()

    def boot_failed(self, desktop_id: str, error: DeskrollError, now: float) -> list[Effect]:
        """A boot has failed. What may be left of it is stopped all the same."""
        self._begin(now)
        slot = self.fleet.slots[desktop_id]
        self._boot_failure(slot, error)
        self._stop(slot, str(error))
        return self._end()

    def revert_failed(self, desktop_id: str, error: DeskrollError, now: float) -> list[Effect]:
        """A reset has failed: the desktop is replaced."""
        self._begin(now)
        self._broken(self.fleet.slots[desktop_id], str(error))
        return self._end()

    def checked(self, desktop_id: str, generation: int, now: float) -> list[Effect]:
        """A desktop is healthy."""
        self._begin(now)
        slot = self.fleet.slots.get(desktop_id)
        if slot is not None and slot.generation == generation:
            slot.checked_at, slot.probing = now, False
            if slot.state is State.CHECKING:
                if slot.untried and slot.doomed:
                    self._boot_failure(slot, DesktopLost(slot.doomed))
                if slot.doomed or self._surplus():
                    self._stop(slot, slot.doomed or "the pool was made smaller")
                else:
                    self.fleet.enter(slot, State.READY, now)
        return self._end()

    def check_failed(self, desktop_id: str, generation: int, error: DeskrollError, now: float) -> list[Effect]:
        """A desktop is not healthy. One that was handed out meanwhile is its holder's to judge."""
        self._begin(now)
        slot = self.fleet.slots.get(desktop_id)
        if slot is not None and slot.generation == generation and slot.state in (State.CHECKING, State.READY):
            self._broken(slot, str(error))
        return self._end()

    def lost(self, desktop_id: str, reason: str, now: float) -> list[Effect]:
        """A desktop died by itself."""
        self._begin(now)
        slot = self.fleet.slots.get(desktop_id)
        if slot is not None and slot.state is State.READY:
            self._broken(slot, f"desktop {desktop_id} is lost: {reason}")
        elif slot is not None:
            self._doom(slot, reason)
        return self._end()

    def stopped(self, desktop_id: str, now: float) -> list[Effect]:
        """A desktop is gone."""
        self._begin(now)
        self.fleet.remove(desktop_id)
        return self._end()

    def stop_failed(self, desktop_id: str, error: DeskrollError, now: float) -> list[Effect]:
        """A desktop could not be stopped: it still counts, and is stopped again later."""
        self._begin(now)
        slot = self.fleet.slots[desktop_id]
        slot.stop_failures += 1
        slot.retry_at = now + self._backoff.pause(slot.stop_failures)
        self._retries[slot.id] = slot
        self.last_error = str(error)
        pause = slot.retry_at - now
        failures = slot.stop_failures
        event = DesktopUnstoppable(desktop=slot.id, reason=str(error), failures=failures, pause_s=pause)
        self._do(Report(event))
        if all(each.stop_failures >= self._config.give_up_after for each in self.fleet.slots.values()):
            why = f"cannot be served: none of the {len(self.fleet)} desktops can be stopped, the last one with: {error}"
            for request in self.queue.all():
                self._refuse(request, NoDesktop(f"request {request.id} {why}"))
        return self._end()

    # --- time ---

    def tick(self, now: float) -> list[Effect]:
        """Do what is due."""
        self._begin(now)
        for request in self.queue.overdue(now):
            self._give_up(request)
        for slot in [slot for slot in self._retries.values() if slot.retry_at <= now]:
            del self._retries[slot.id]
            self._do(Stop(slot.id))
        if now >= self._housekeeping_at:
            self._keep_house()
        return self._end()

    def next_wake(self) -> float:
        """When to call `tick` next, at the latest."""
        times = [self._housekeeping_at]
        times += [slot.retry_at for slot in self._retries.values()]
        times += [backoff.until for backoff in self._backoffs.values() if backoff.until > self._now]
        deadline = self.queue.next_deadline()
        return min([*times, deadline] if deadline is not None else times)

    def _keep_house(self) -> None:
        """Look after desktops that stand ready: check them from time to time, stop those that nobody wants."""
        config = self._config
        self._housekeeping_at = self._now + min(config.check_every, config.idle_after or config.check_every) / 4
        for spec, backoff in list(self._backoffs.items()):
            forgotten = self._now > backoff.until + config.backoff_max and not self.queue.waiting(spec)
            if forgotten and spec != config.spec:
                del self._backoffs[spec]
        for slot in self.fleet.idle():
            if self._now - slot.since >= STEADY_S:
                self._backoffs.pop(slot.spec, None)
            if self.fleet.staying > self.fewest and self._now - slot.since >= config.idle_after:
                self._stop(slot, "nobody wanted it")
            elif not slot.probing and self._now - slot.checked_at >= config.check_every:
                slot.probing = True
                self._check(slot)

    def _give_up(self, request: Request) -> None:
        within = f"request {request.id} got no desktop within {self._now - request.arrived_at:.1f} s"
        if (quota := self.queue.held_back(request.id)) is not None:
            why = (
                f"its client {request.client!r} may hold {quota} at a time and does. Give one back, or raise the quota"
            )
        else:
            ahead = f"{self.queue.ahead_of(request.id)} before it in the queue"
            why = f"{ahead}; {self.describe()}. Give it a longer timeout, or the pool more desktops"
        self._refuse(request, NoDesktop(f"{within}: {why}"))

    # --- the machinery ---

    def _begin(self, now: float) -> None:
        self.meter.advance(now, self.load())
        self._now = now

    def _end(self) -> list[Effect]:
        if not self.draining:
            for spec in self.fleet.ready_specs():
                self._serve(spec)
            self._boot_missing()
            self._recycle_idle()
            self._stop_unwanted()
        effects, self._effects = self._effects, []
        return effects

    def _do(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _serve(self, spec: DesktopSpec) -> None:
        """Hand out what is ready to those who wait for such a desktop."""
        while (slot := self.fleet.ready(spec)) is not None and slot.address is not None:
            request = self.queue.take(spec)
            if request is None:
                return
            slot.request = request
            self.fleet.enter(slot, State.LEASED, self._now)
            self._backoffs.pop(spec, None)
            slot.leases += 1
            self.leases[request.id] = slot
            self.expected.granted(request)
            self.meter.waited(self._now - request.arrived_at)
            self._do(Grant(request, slot.address))

    def _boot_missing(self) -> None:
        """Boot for the first request that lacks a desktop, and up to the least number of them."""
        while len(self.fleet) < self.most and self.fleet.states[State.BOOTING] < self._config.max_booting:
            wanted = self.queue.unmet(self.fleet.supply, self._may_boot)
            if wanted is None and len(self.fleet) < self.fewest:
                wanted = self._spare()
            if wanted is None or not self._may_boot(wanted):
                return
            slot = Slot(self._new_id(), wanted, State.BOOTING, self._now, untried=True)
            self.fleet.add(slot)
            self._do(Boot(slot.id, wanted))

    def _recycle_idle(self) -> None:
        """Where there is no room: make an idle desktop, which fits nobody who waits, into one that somebody wants."""
        while idle := self.fleet.ready_specs():
            stopping = self.fleet.states[State.STOPPING] - len(self._retries)
            room = max(0, self.most - len(self.fleet)) + stopping
            wanted = self.queue.unmet(self.fleet.supply, self._may_boot)
            if wanted is None or self.queue.lacking(self.fleet.supply, self._may_boot) <= room:
                return
            slot = self.fleet.idle()[0] if len(idle) > 1 else self.fleet.ready(idle[0])
            if slot is None:
                return
            if self._revertible(slot.spec, wanted):
                self._revert(slot, wanted)
            else:
                self._stop(slot, "another kind of desktop is wanted")

    def _stop_unwanted(self) -> None:
        """Where all leases are told: stop what stands ready for nobody."""
        for spec in self.fleet.ready_specs() if self._all_told else ():
            wanted = max(self.queue.waiting(spec), self.expected.to_come.get(spec, 0))
            idle = self.fleet.idle(spec)
            for slot in idle[: max(0, len(idle) - wanted)]:
                self._stop(slot, "no more leases are to come")

    def _spare(self) -> DesktopSpec | None:
        """What a desktop that nobody waits for should be like; None: there is no use for one."""
        return self._lacked_later(self._config.spec) if self._all_told else self._config.spec

    def _lacked_later(self, first: DesktopSpec) -> DesktopSpec | None:
        """Of what kind more are still to be leased than there are or will be: `first`, or what is lacked most."""
        short = {spec: number - self.fleet.supply[spec] for spec, number in self.expected.to_come.items()}
        if short.get(first, 0) > 0:
            return first
        allowed = [spec for spec, number in short.items() if number > 0 and self._may_boot(spec)]
        return max(allowed, key=short.__getitem__, default=None)

    def _may_boot(self, spec: DesktopSpec) -> bool:
        backoff = self._backoffs.get(spec)
        return backoff is None or backoff.allows(self.fleet.untried[spec], self._now)

    def _check(self, slot: Slot) -> None:
        if slot.address is not None:
            self._do(Check(slot.id, slot.address, slot.generation))

    def _let_go(self, lease_id: str, *, settled: bool) -> None:
        """End a lease and recycle its desktop, for whoever lacks one most. `settled`: its holder is through with it."""
        slot = self.leases.pop(lease_id, None)
        if slot is None or slot.request is None:
            return
        request, slot.request = slot.request, None
        self.queue.freed(request, self._now)
        target = self.queue.unmet(self.fleet.supply, self._may_boot) or self._next_use(slot, request)
        if slot.doomed or self._surplus():
            self._stop(slot, slot.doomed or "the pool was made smaller")
        elif target is None:
            self._stop(slot, "no more leases are to come")
        elif not settled and self._can.fence is Fence.TIMED:
            self._stop(slot, "its holder may still touch it")
        elif not self._revertible(slot.spec, target):
            self._stop(slot, "it is replaced after use")
        else:
            self._revert(slot, target)

    def _next_use(self, slot: Slot, request: Request) -> DesktopSpec | None:
        """What a desktop that comes free should become when nobody waits; None: there is no use for it."""
        if self._all_told or (request.plan in self.expected and self.fleet.staying > self.fewest):
            return self._lacked_later(slot.spec)
        return self._config.spec if self._revertible(slot.spec, self._config.spec) else slot.spec

    def _revertible(self, old: DesktopSpec, new: DesktopSpec) -> bool:
        return self._can.recycling is Recycling.REVERT and all(
            getattr(old, name) == getattr(new, name) or name in self._can.revertible
            for name in DesktopSpec.__struct_fields__
        )

    def _revert(self, slot: Slot, target: DesktopSpec) -> None:
        self.fleet.enter(slot, State.RECYCLING, self._now, target)
        self._do(Revert(slot.id, target))

    def _doom(self, slot: Slot, reason: str) -> None:
        """Have a desktop stopped: now, or as soon as what goes on with it has ended."""
        if slot.state is State.READY:
            self._stop(slot, reason)
        elif slot.state is not State.STOPPING:
            self.fleet.doom(slot, reason)

    def _broken(self, slot: Slot, reason: str) -> None:
        if slot.untried or (slot.generation == 1 and not slot.leases):
            self._boot_failure(slot, DesktopLost(reason))  # it came up, but nobody could ever use it
        self.last_error = reason
        self._do(Report(DesktopBroken(desktop=slot.id, reason=reason, during=str(slot.state))))
        self._stop(slot, reason)

    def _stop(self, slot: Slot, reason: str) -> None:
        self.fleet.enter(slot, State.STOPPING, self._now)
        slot.doomed = slot.doomed or reason
        self._do(Stop(slot.id))

    def _surplus(self) -> bool:
        return self.draining or self.fleet.staying > self.most

    def _boot_failure(self, slot: Slot, error: DeskrollError) -> None:
        """Hold off such boots for a while; refuse who waits for one when there is no hope."""
        config = self._config
        backoff = self._backoffs.setdefault(slot.spec, BootFailures(self._backoff))
        backoff.failed(slot.created_at, self._now, error, final=isinstance(error, _FINAL))
        self.last_error = str(error)
        pause = backoff.until - self._now
        event = DesktopNotBooted(desktop=slot.id, reason=str(error), in_a_row=backoff.failures, pause_s=pause)
        self._do(Report(event))
        if backoff.final is None and (backoff.failures < config.give_up_after or self._any_working(slot.spec)):
            return
        why = f"cannot be served: {backoff.failures} boots in a row failed, the last one with: {error}"
        for request in self.queue.all():
            if request.spec == slot.spec:
                self._refuse(
                    request, again(backoff.final) if backoff.final else NoDesktop(f"request {request.id} {why}")
                )

    def _any_working(self, spec: DesktopSpec) -> bool:
        return any(
            slot.spec == spec and not slot.doomed and not slot.untried and slot.state is not State.STOPPING
            for slot in self.fleet.slots.values()
        )

    def _refuse(self, request: Request, error: DeskrollError) -> None:
        self.queue.discard(request.id, self._now)
        self._do(Refuse(request.id, error))

    # --- what others want to know ---

    def load(self) -> Load:
        """What goes on at this moment."""
        count = self.fleet.states
        booting = sum(self.fleet.untried.values())
        coming = sum(count[s] for s in (State.BOOTING, State.CHECKING, State.RECYCLING, State.STOPPING))
        return Load(
            leased=count[State.LEASED],
            resetting=coming - booting,
            booting=booting,
            alive=len(self.fleet),
            waiting=len(self.queue) - self.queue.parked,
            parked=self.queue.parked,
            failing=bool(self._backoffs),
        )

    def failures_in_a_row(self) -> int:
        """How many boots have failed without one that succeeded, of the kind that fails most."""
        return max((backoff.failures for backoff in self._backoffs.values()), default=0)

    def limit(self) -> str:
        """One line that says what limits now."""
        if self.draining:
            return "draining: no more desktops are handed out"
        if failures := self.failures_in_a_row():
            return f"boots: the last {failures} failed; {self.last_error}"
        return self.meter.limit()

    def describe(self) -> str:
        """The desktops in a few words."""
        error = f"; last error: {self.last_error}" if self._backoffs else ""
        return f"desktops: {self.fleet.describe()} (at most {self.most}){error}"


def again(error: DeskrollError) -> DeskrollError:
    """The same error once more: one that is raised to many would gather all their tracebacks."""
    return type(error)(str(error))
