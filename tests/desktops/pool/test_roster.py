"""The pool's state machine under any sequence of events: hypothesis plays the desktops, the holders and the clock."""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from deskroll.desktops.base import Address, Capabilities, DesktopSpec, Fence, Recycling
from deskroll.desktops.pool.config import PoolConfig
from deskroll.desktops.pool.effects import Boot, Check, Effect, Grant, Refuse, Revert, Revoke, Stop
from deskroll.desktops.pool.queue import TICKET_KEPT_S, Quotas, Request
from deskroll.desktops.pool.roster import Roster
from deskroll.desktops.pool.slot import State
from deskroll.errors import BootError, DesktopLost, InputError, NoDesktop, ResetError

PLAIN = DesktopSpec()
SPECS = [PLAIN, DesktopSpec(snapshot="office"), DesktopSpec(width=800, height=600)]
"""As they come, another snapshot of the same machine, and another machine."""
CLIENTS = ["", "ann", "bob"]


@dataclasses.dataclass
class Group:
    ticket: int
    active: int = 0
    idle_since: float = 0.0


@dataclasses.dataclass
class Machine:
    """A desktop as it really is, beside what the roster believes."""

    clean: bool = False
    checked: bool = False
    holder: str = ""
    dead: bool = False
    revoked: bool = False
    """Whether its last holder may still be there."""
    spec: DesktopSpec = PLAIN


class PoolUnderTest(RuleBasedStateMachine):
    @initialize(
        revert=st.booleans(), hard=st.booleans(), most=st.integers(1, 4), fewest=st.none() | st.integers(0, 4),
        quota=st.none() | st.integers(1, 2), at_once=st.integers(1, 4),
        told=st.none() | st.dictionaries(st.sampled_from(SPECS), st.integers(0, 6)),
    )  # fmt: skip
    def start(
        self, revert: bool, hard: bool, most: int, fewest: int | None, quota: int | None, at_once: int,
        told: dict[DesktopSpec, int] | None,
    ) -> None:  # fmt: skip
        self.open(revert, hard, most, fewest, quota, at_once, told)

    def open(
        self, revert: bool, hard: bool, most: int, fewest: int | None, quota: int | None, at_once: int,
        told: dict[DesktopSpec, int] | None = None,
    ) -> None:  # fmt: skip
        self.config = PoolConfig(
            num_vms=most, min_vms=None if fewest is None else min(fewest, most), max_booting=at_once,
            quotas=Quotas(named={} if quota is None else {"ann": quota}), give_up_after=3, idle_after=60.0,
        )  # fmt: skip
        self.can = Capabilities(
            recycling=Recycling.REVERT if revert else Recycling.REPLACE, revertible=("snapshot",),
            fence=Fence.HARD if hard else Fence.TIMED,
        )  # fmt: skip
        self.quota = quota
        self.now = 100.0
        numbers = itertools.count(1)
        self.told = told
        """All leases that there will be, by kind; None: nobody has told."""
        self.granted: Counter[DesktopSpec] = Counter()
        self.roster = Roster(self.config, self.can, lambda: f"d{next(numbers)}", self.now, expected=told)
        self.requests = itertools.count(1)
        self.machines: dict[str, Machine] = {}
        self.work: list[Boot | Check | Revert | Stop] = []
        self.waiting: dict[str, Request] = {}
        self.order: dict[str, tuple[int, int, int]] = {}
        self.groups: dict[tuple[str, str], Group] = {}
        self.made: dict[str, Request] = {}
        self.holders: dict[str, str] = {}
        self.clients: dict[str, str] = {}
        self.draining = False
        self.shrunk = False
        self.do(self.roster.tick(self.now))

    # --- carrying out what the roster wants, and checking it ---

    def do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Boot(desktop_id, spec):
                    assert desktop_id not in self.machines
                    assert len(self.machines) < self.roster.most, "more desktops alive than the pool may have"
                    self.machines[desktop_id] = Machine(spec=spec)
                    self.is_for_somebody(spec)
                    self.begin(effect)
                case Revert(desktop_id, spec):
                    assert self.can.recycling is Recycling.REVERT or not self.machines[desktop_id].spec
                    assert not self.machines[desktop_id].holder, "reset while somebody holds it"
                    assert not self.machines[desktop_id].revoked or self.can.fence is Fence.HARD, "not fenced"
                    self.machines[desktop_id].spec = spec
                    self.is_for_somebody(spec)
                    self.begin(effect)
                case Check():
                    self.work.append(effect)  # beside the lease, where it was handed out meanwhile
                case Stop(desktop_id):
                    assert not self.machines[desktop_id].holder, "stopped while somebody holds it"
                    self.begin(effect)
                case Grant(request, address):
                    self.grant(request, address)
                case Refuse(request_id, error):
                    assert isinstance(error, NoDesktop | InputError)
                    self.waiting.pop(request_id, None)
                    self.leave(request_id)
                case Revoke(lease_id, desktop_id, client, _):
                    assert client == self.clients[lease_id]
                    assert self.holders.pop(lease_id) == desktop_id
                    self.leave(lease_id)
                    self.machines[desktop_id].holder = ""
                    self.machines[desktop_id].revoked = True

    def is_for_somebody(self, spec: DesktopSpec) -> None:
        """What is booted or reset is waited for, or will be, where all leases were told beforehand."""
        if self.told is not None:
            to_come = self.told.get(spec, 0) - self.granted[spec]
            wanted = max(to_come, sum(each.spec == spec for each in self.waiting.values()))
            assert self.roster.fleet.supply[spec] <= wanted, "made for nobody"

    def begin(self, effect: Boot | Revert | Stop) -> None:
        busy = [work for work in self.work if work.id == effect.id and not isinstance(work, Check)]
        assert not busy, f"{effect} while {busy} goes on"
        self.work.append(effect)

    def grant(self, request: Request, address: Address) -> None:
        machine = self.machines[address.id]
        assert not machine.holder, "leased twice"
        assert machine.clean, "handed out dirty"
        assert machine.checked, "handed out unchecked"
        assert not machine.dead, "handed out dead"
        assert machine.spec == request.spec, "not what was asked for"
        before = [
            other for other in self.waiting.values()
            if other.spec == request.spec and self.order[other.id] < self.order[request.id]
            and not (other.client == "ann" and self.quota is not None)
        ]  # fmt: skip
        assert not before, f"{request.id} was served before {before[0].id}"
        del self.waiting[request.id]
        self.granted[request.spec] += 1
        machine.holder, machine.clean, machine.checked = request.id, False, False
        self.holders[request.id] = address.id
        self.clients[request.id] = request.client
        held = sum(self.clients[lease] == "ann" for lease in self.holders)
        assert self.quota is None or held <= self.quota, "more than the quota"

    # --- holders ---

    @rule(
        spec=st.sampled_from(SPECS), priority=st.integers(0, 1), group=st.sampled_from(["", "g", "h"]),
        client=st.sampled_from(CLIENTS), patience=st.none() | st.floats(1, 100), planned=st.booleans(),
    )  # fmt: skip
    def ask(
        self, spec: DesktopSpec, priority: int, group: str, client: str, patience: float | None, planned: bool
    ) -> None:
        self.submit(spec, priority, group, client, patience, "plan" if planned and self.told is None else "")

    def submit(
        self, spec: DesktopSpec, priority: int, group: str, client: str, patience: float | None, plan: str = ""
    ) -> None:
        number = next(self.requests)
        request = Request(
            id=f"r{number}", spec=spec, client=client, group=group, plan=plan, priority=priority, arrived_at=self.now,
            deadline=None if patience is None else self.now + patience,
        )  # fmt: skip
        known = self.groups.get((plan or client, group))
        if known is None or (not known.active and self.now - known.idle_since > TICKET_KEPT_S):
            known = Group(number)
        self.order[request.id] = (-priority, known.ticket if group else number, number)
        self.made[request.id] = request
        self.waiting[request.id] = request
        effects = self.roster.request(request, self.now)
        if not any(isinstance(effect, Refuse) and effect.request_id == request.id for effect in effects):
            known.active += 1  # a group's place is that of its first request that could wait
            self.groups[plan or client, group] = known
        else:
            del self.made[request.id]
        self.do(effects)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up_waiting(self, data: st.DataObject) -> None:
        self.withdraw(data.draw(st.sampled_from(sorted(self.waiting))))

    def leave(self, request_id: str) -> None:
        """Neither waits nor holds any more."""
        request = self.made.pop(request_id, None)
        if request is not None:
            group = self.groups[request.plan or request.client, request.group]
            group.active -= 1
            group.idle_since = self.now

    def withdraw(self, request_id: str) -> None:
        del self.waiting[request_id]
        self.leave(request_id)
        self.do(self.roster.cancel(request_id, self.now))

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), how=st.sampled_from(["release", "cancel", "revoke"]))
    def end_lease(self, data: st.DataObject, how: str) -> None:
        self.end(data.draw(st.sampled_from(sorted(self.holders))), how)

    def end(self, lease_id: str, how: str) -> None:
        if how == "revoke":
            self.do(self.roster.revoke(lease_id, "its holder is dead", self.now))
            return
        self.machines[self.holders.pop(lease_id)].holder = ""
        self.leave(lease_id)
        self.do((self.roster.release if how == "release" else self.roster.cancel)(lease_id, self.now))

    @rule()
    def release_late(self) -> None:
        self.do(self.roster.release("r0", self.now))

    # --- desktops ---

    @precondition(lambda self: self.work)
    @rule(data=st.data(), well=st.sampled_from([True, True, True, False]), final=st.booleans())
    def finish(self, data: st.DataObject, well: bool, final: bool) -> None:
        self.complete(data.draw(st.sampled_from(self.work)), well, final)

    @precondition(lambda self: self.work)
    @rule(times=st.integers(1, 4))
    def all_goes_well(self, times: int) -> None:
        self.all_well(times)

    def all_well(self, times: int = 4) -> None:
        for _ in range(times):
            for work in list(self.work):
                if work in self.work:
                    self.complete(work, well=True)

    def complete(self, work: Boot | Check | Revert | Stop, well: bool, final: bool = False) -> None:
        self.work.remove(work)
        machine = self.machines.get(work.id)
        match work:
            case Boot() | Revert() if well:
                assert machine is not None
                machine.clean, machine.checked, machine.revoked = True, False, False
                address = Address(id=work.id, endpoint="unix:nowhere")
                self.do(self.roster.made_clean(work.id, address, self.now))
            case Boot():
                error = InputError("no such snapshot") if final else BootError("no luck")
                self.do(self.roster.boot_failed(work.id, error, self.now))
            case Revert():
                self.do(self.roster.revert_failed(work.id, ResetError("no luck"), self.now))
            case Check(generation=generation) if well:
                current = self.roster.fleet.slots.get(work.id)
                if machine is not None and current is not None and current.generation == generation:
                    machine.checked = machine.clean
                self.do(self.roster.checked(work.id, generation, self.now))
            case Check(generation=generation):
                self.do(self.roster.check_failed(work.id, generation, DesktopLost("dead screen"), self.now))
            case Stop() if well:
                del self.machines[work.id]
                self.do(self.roster.stopped(work.id, self.now))
            case Stop():
                self.do(self.roster.stop_failed(work.id, BootError("no luck"), self.now))

    @precondition(lambda self: self.machines)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.kill(data.draw(st.sampled_from(sorted(self.machines))))

    def kill(self, desktop_id: str) -> None:
        self.machines[desktop_id].dead = not self.machines[desktop_id].holder
        self.do(self.roster.lost(desktop_id, "it died", self.now))

    @precondition(lambda self: self.can.recycling is Recycling.REVERT)
    @rule(adopt=st.booleans())
    def find(self, adopt: bool) -> None:
        desktop_id = f"found{next(self.requests)}"
        self.machines[desktop_id] = Machine()
        self.do(self.roster.found([desktop_id], adopt=adopt, now=self.now))

    @precondition(lambda self: self.told is not None)
    @rule(spec=st.sampled_from(SPECS), more=st.integers(-2, 3))
    def tell(self, spec: DesktopSpec, more: int) -> None:
        assert self.told is not None
        self.told[spec] = max(0, self.told.get(spec, 0) + more)
        self.do(self.roster.expect("", self.told, self.now))

    @rule(spec=st.sampled_from(SPECS), leases=st.none() | st.integers(0, 3))
    def another_client_tells(self, spec: DesktopSpec, leases: int | None) -> None:
        if self.told is None:
            self.do(self.roster.expect("plan", None if leases is None else {spec: leases}, self.now))

    # --- the operator and the clock ---

    @rule(seconds=st.sampled_from([0.1, 1.0, 10.0, 70.0]))
    def wait(self, seconds: float) -> None:
        self.pass_time(seconds)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.do(self.roster.tick(self.now))

    @precondition(lambda self: self.draining)
    @rule()
    def go_on(self) -> None:
        self.draining = False
        self.do(self.roster.resize(self.config.fewest, self.config.num_vms, self.now))

    @rule(most=st.integers(1, 5), fewest=st.integers(0, 5), really=st.integers(0, 3))
    def resize(self, most: int, fewest: int, really: int) -> None:
        if really:
            return
        self.draining = False
        self.do(self.roster.resize(min(fewest, most), most, self.now))

    @rule(really=st.integers(0, 7))
    def drain(self, really: int) -> None:
        if really:
            return
        self.draining = True
        self.do(self.roster.drain(self.now))
        assert not self.waiting

    # --- what always holds ---

    @invariant()
    def nobody_waits_beside_a_ready_desktop(self) -> None:
        for spec in SPECS:
            assert not (self.roster.fleet.ready(spec) and self.roster.queue.waiting(spec) and not self.draining)

    @invariant()
    def no_desktop_is_forgotten(self) -> None:
        slots = self.roster.fleet.slots
        assert set(slots) == set(self.machines)
        busy = {work.id for work in self.work}
        for slot in slots.values():
            assert slot.id in busy or slot.state in (State.READY, State.LEASED) or slot.retry_at > 0
            assert (slot.state is State.LEASED) == bool(self.machines[slot.id].holder)

    @invariant()
    def the_books_agree(self) -> None:
        fleet = self.roster.fleet
        for state in State:
            assert fleet.states[state] == sum(slot.state is state for slot in fleet.slots.values())
        assert set(self.roster.leases) == set(self.holders)
        assert {request.id for request in self.roster.queue.all()} == set(self.waiting)
        load = self.roster.load()
        assert load.resetting >= 0
        assert load.booting >= 0

    def teardown(self) -> None:
        """From wherever we are: when all goes well from now on, everybody is served and the pool is complete again."""
        if not hasattr(self, "roster"):
            return
        if self.draining:
            self.draining = False
            self.do(self.roster.resize(1, 2, self.now))
        for _ in range(200 + 20 * len(self.waiting)):
            if self.work:
                self.complete(self.work[0], well=True)
            elif self.holders:
                lease_id, desktop_id = next(iter(self.holders.items()))
                self.machines[desktop_id].holder = ""
                del self.holders[lease_id]
                self.leave(lease_id)
                self.do(self.roster.release(lease_id, self.now))
            elif (
                self.waiting
                or len(self.machines) != self.roster.fleet.staying
                or (len(self.machines) < self.roster.fewest and self.told is None)
            ):
                self.now = max(self.now, self.roster.next_wake())
                self.do(self.roster.tick(self.now))
            else:
                break
        assert not self.waiting, "somebody was never served"
        assert len(self.machines) <= self.roster.most
        if self.told is None:
            assert self.roster.fewest <= len(self.machines)


def always_holds(pool: PoolUnderTest) -> None:
    for fact in (pool.nobody_waits_beside_a_ready_desktop, pool.no_desktop_is_forgotten, pool.the_books_agree):
        fact()


@pytest.mark.parametrize("seed", range(40))
def test_a_long_and_busy_life(seed: int) -> None:
    """Deeper than hypothesis goes by itself: hundreds of leases, most things going well, some not."""
    dice = random.Random(seed)
    pool = PoolUnderTest()
    pool.open(seed % 2 == 0, seed % 4 < 2, dice.randint(1, 4), dice.choice([None, 0, 2]), dice.choice([None, 1, 2]), 2)
    stubborn, quiet = seed % 3 == 0, seed % 5 == 0
    for _ in range(600):
        act = dice.random() + (0.2 if quiet else 0.0)
        if act < 0.5 and pool.work:
            work = dice.choice(pool.work)
            sure = 0.2 if stubborn and isinstance(work, Stop) else 0.85
            pool.complete(work, well=dice.random() < sure, final=dice.random() < 0.1)
        elif act < 0.7 and len(pool.waiting) < 8:
            spec, patience = dice.choice(SPECS), dice.choice([None, None, 5.0])
            pool.submit(spec, dice.randint(0, 1), dice.choice(["", "g", "h"]), dice.choice(CLIENTS), patience)
        elif act < 0.85 and pool.holders:
            pool.end(dice.choice(sorted(pool.holders)), dice.choice(["release", "release", "cancel", "revoke"]))
        elif act < 0.88 and pool.waiting:
            pool.withdraw(dice.choice(sorted(pool.waiting)))
        elif act < 0.91 and pool.machines:
            pool.kill(dice.choice(sorted(pool.machines)))
        else:
            pool.pass_time(dice.choice([0.1, 1.0, 1.0, 10.0, 40.0] if not quiet else [1.0, 40.0]))
        always_holds(pool)
    assert pool.roster.meter.granted > (0 if stubborn else 10)
    pool.teardown()


def small(most: int = 1) -> PoolUnderTest:
    """A pool to be led by hand."""
    pool = PoolUnderTest()
    pool.open(revert=True, hard=True, most=most, fewest=None, quota=None, at_once=2)
    return pool


@pytest.mark.parametrize("seed", range(40))
def test_as_many_are_made_as_are_leased(seed: int) -> None:
    """A run whose plan is told, some of its attempts made again: each boot and each reset is for one lease."""
    dice = random.Random(seed)
    plan = dice.choice([1, 2, 5, 9, 30])
    pool = PoolUnderTest()
    most = dice.randint(1, 4)
    pool.open(dice.random() < 0.7, True, most, dice.choice([None, 0, 1]), None, dice.randint(1, 4), {PLAIN: plan})
    asked, made = 0, 0
    while asked < plan or pool.waiting or pool.holders:
        act = dice.random()
        if act < 0.5 and pool.work:
            work = dice.choice(pool.work)
            made += isinstance(work, Boot | Revert)
            pool.complete(work, well=True)
        elif act < 0.7 and asked < plan:
            pool.submit(PLAIN, 0, "", "", None)
            asked += 1
        elif act < 0.9 and pool.holders:
            pool.end(dice.choice(sorted(pool.holders)), "release")
            if dice.random() < 0.1:  # it is made again, which is known a little later
                plan += 1
                pool.told = {PLAIN: plan}
                pool.do(pool.roster.expect("", pool.told, pool.now))
        else:
            pool.pass_time(dice.choice([0.1, 1.0, 10.0]))
    made += sum(isinstance(work, Boot | Revert) for work in pool.work)
    assert made == plan == pool.roster.meter.granted


def test_one_that_comes_free_after_the_last_lease_of_a_plan_is_not_reset() -> None:
    """In a pool for everybody: beyond its least number of desktops, and only where the plan was told."""
    pool = PoolUnderTest()
    pool.open(revert=True, hard=True, most=3, fewest=1, quota=None, at_once=3)
    pool.do(pool.roster.expect("plan", {PLAIN: 2}, pool.now))
    for plan in ("plan", "plan", ""):
        pool.submit(PLAIN, 0, "", "", None, plan)
    pool.all_well()
    for lease, after in (("r3", Revert), ("r1", Stop), ("r2", Stop)):
        pool.end(lease, "release")
        assert [type(work) for work in pool.work] == [after]
        pool.all_well()
    assert pool.roster.load().alive == 1


def test_a_check_of_an_earlier_life_proves_nothing() -> None:
    pool = small()
    pool.all_well()
    pool.pass_time(40.0)
    (probe,) = pool.work  # it stands ready and is checked again
    pool.submit(PLAIN, 0, "", "", None)
    pool.end("r1", "release")
    (reset,) = (work for work in pool.work if isinstance(work, Revert))
    pool.complete(reset, well=True)
    pool.submit(PLAIN, 0, "", "", None)
    pool.complete(probe, well=True)
    assert pool.holders == {}, "checked before its reset, not after"
    pool.all_well()
    assert list(pool.holders) == ["r2"]


def test_a_group_that_was_gone_for_long_goes_to_the_end_of_the_line() -> None:
    pool = small()
    pool.submit(PLAIN, 0, "g", "", None)
    pool.all_well()
    pool.end("r1", "release")
    pool.all_well()
    pool.pass_time(TICKET_KEPT_S + 1)
    pool.submit(PLAIN, 0, "", "", None)  # r2 holds the desktop
    pool.all_well()
    pool.submit(PLAIN, 0, "h", "", None)
    pool.submit(PLAIN, 0, "g", "", None)
    pool.end("r2", "release")
    pool.all_well()
    assert list(pool.holders) == ["r3"]


def test_one_that_cannot_be_stopped_holds_nobody_up() -> None:
    pool = small(most=2)
    pool.all_well()
    first, second = sorted(pool.machines)
    pool.kill(first)
    (stop,) = pool.work
    pool.complete(stop, well=False)
    pool.submit(SPECS[1], 0, "", "", None)
    pool.all_well()
    assert pool.holders == {"r1": second}, "the idle one became what was wanted"


TestPool = PoolUnderTest.TestCase
TestPool.settings = settings(
    derandomize=True,
    database=None,
    max_examples=int(os.environ.get("POOL_EXAMPLES", "300")),
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
