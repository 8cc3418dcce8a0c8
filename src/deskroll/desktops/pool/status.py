"""PoolStatus: what a pool does at this moment, for people and programs."""

from __future__ import annotations

import msgspec

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.pool.meter import Waits
from deskroll.desktops.pool.roster import Roster
from deskroll.desktops.pool.slot import Slot, State
from deskroll.types import Record


class DesktopStatus(Record, frozen=True, omit_defaults=False):
    """One desktop."""

    id: str
    state: State
    since_s: float
    """How long it has been in this state."""
    spec: DesktopSpec
    """What it is like, but for its password."""
    lease: str = ""
    client: str = ""
    group: str = ""
    leases: int = 0
    """How many holders it has had."""
    doomed: str = ""
    """Why it is, or will be, stopped."""
    seconds: dict[State, float] = msgspec.field(default_factory=dict)
    """Time by state."""


class PoolStatus(Record, frozen=True, omit_defaults=False):
    """All of a pool."""

    provider: str
    min_vms: int
    num_vms: int
    draining: bool
    desktops: tuple[DesktopStatus, ...]
    states: dict[State, int]
    waiting: int
    parked: int
    """How many of those that wait are held back by their client's quota."""
    waits: Waits
    utilisation: float
    """The share of desktop-seconds that are leased, over the last minute or so."""
    leased_s: float
    alive_s: float
    """Desktop-seconds since the pool was opened."""
    cost_usd: float
    limit: str
    """What limits now, in one line."""
    boot_failures: int
    """Boots that failed in a row."""
    last_error: str


def status_of(roster: Roster, provider: str, usd_per_hour: float, now: float) -> PoolStatus:
    """The state of a pool as a record."""
    roster.meter.advance(now, roster.load())
    return PoolStatus(
        provider=provider,
        min_vms=roster.fewest,
        num_vms=roster.most,
        draining=roster.draining,
        desktops=tuple(_desktop(slot, now) for slot in roster.fleet.slots.values()),
        states={state: roster.fleet.states[state] for state in State},
        waiting=len(roster.queue),
        parked=roster.queue.parked,
        waits=roster.meter.waits(),
        utilisation=roster.meter.utilisation,
        leased_s=roster.meter.leased_s,
        alive_s=roster.meter.alive_s,
        cost_usd=roster.meter.alive_s / 3600 * usd_per_hour,
        limit=roster.limit(),
        boot_failures=roster.failures_in_a_row(),
        last_error=roster.last_error,
    )


def _desktop(slot: Slot, now: float) -> DesktopStatus:
    return DesktopStatus(
        id=slot.id,
        state=slot.state,
        since_s=now - slot.since,
        spec=msgspec.structs.replace(slot.spec, client_password=""),
        lease=slot.request.id if slot.request else "",
        client=slot.request.client if slot.request else "",
        group=slot.request.group if slot.request else "",
        leases=slot.leases,
        doomed=slot.doomed,
        seconds=slot.seconds_until(now),
    )
