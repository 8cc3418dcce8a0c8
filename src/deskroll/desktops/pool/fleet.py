"""The fleet: every desktop of a pool by state and by spec, and the only place where a state changes.

Guarantees: the counts and indexes always agree with the desktops themselves. Plain data: no clock, no tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.pool.slot import SUPPLY, Slot, State

GONE = "gone"
"""What follows the last state of a desktop."""


class Fleet:
    """The desktops that are alive, or may be."""

    def __init__(self) -> None:
        self.slots: dict[str, Slot] = {}
        self.states: Counter[State] = Counter()
        self.supply: Counter[DesktopSpec] = Counter()
        """By spec: desktops that are ready, or will be."""
        self.untried: Counter[DesktopSpec] = Counter()
        """By spec: desktops that boot, or are checked for the first time after that."""
        self._ready: dict[DesktopSpec, dict[str, Slot]] = {}
        self.on_change: Callable[[Slot, str], None] | None = None
        """Told of each state that a desktop enters; `gone` is the last one."""

    def __len__(self) -> int:
        """How many are alive, those that are being stopped included."""
        return len(self.slots)

    @property
    def staying(self) -> int:
        """How many are alive and not being stopped."""
        return len(self.slots) - self.states[State.STOPPING]

    def add(self, slot: Slot) -> None:
        """A desktop is about to exist."""
        self.slots[slot.id] = slot
        self._count(slot, 1)
        self._tell(slot, slot.state)

    def remove(self, desktop_id: str) -> None:
        """A desktop is gone."""
        slot = self.slots.pop(desktop_id)
        self._count(slot, -1)
        self._tell(slot, GONE)

    def enter(self, slot: Slot, state: State, now: float, spec: DesktopSpec | None = None) -> None:
        """Change a desktop's state, and what it is like where a revert makes it so."""
        self._count(slot, -1)
        slot.enter(state, now)
        slot.spec = spec or slot.spec
        if state in (State.READY, State.STOPPING):
            slot.untried = False
        self._count(slot, 1)
        self._tell(slot, state)

    def doom(self, slot: Slot, reason: str) -> None:
        """It must be stopped as soon as what goes on with it has ended: no longer a supply."""
        self._count(slot, -1)
        slot.doomed = slot.doomed or reason
        self._count(slot, 1)

    def ready(self, spec: DesktopSpec) -> Slot | None:
        """A desktop that can be handed out: the last one used, so that the others may become idle."""
        line = self._ready.get(spec)
        return next(reversed(line.values())) if line else None

    def ready_specs(self) -> list[DesktopSpec]:
        """What kinds of desktops stand ready."""
        return list(self._ready)

    def idle(self, spec: DesktopSpec | None = None) -> list[Slot]:
        """Desktops (of one kind) that stand ready, the one that has done so longest first."""
        lines = self._ready.values() if spec is None else [self._ready.get(spec, {})]
        return sorted((slot for line in lines for slot in line.values()), key=lambda slot: slot.since)

    def describe(self) -> str:
        """The desktops in a few words: `6 leased, 2 recycling`."""
        return ", ".join(f"{count} {state}" for state, count in self.states.items() if count) or "none"

    def _tell(self, slot: Slot, state: str) -> None:
        if self.on_change is not None:
            self.on_change(slot, state)

    def _count(self, slot: Slot, sign: int) -> None:
        """Put a desktop into the books (1) or take it out (-1), as it is now."""
        self.states[slot.state] += sign
        if slot.state in SUPPLY and not slot.doomed:
            _add(self.supply, slot.spec, sign)
        if slot.untried:
            _add(self.untried, slot.spec, sign)
        if slot.state is State.READY:
            line = self._ready.setdefault(slot.spec, {})
            if sign > 0:
                line[slot.id] = slot
            else:
                del line[slot.id]
                if not line:
                    del self._ready[slot.spec]


def _add(counts: Counter[DesktopSpec], spec: DesktopSpec, number: int) -> None:
    """Count, and forget what there is none of: specs are many in the long run."""
    counts[spec] += number
    if not counts[spec]:
        del counts[spec]
