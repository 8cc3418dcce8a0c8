"""One desktop as the pool sees it: its state, since when, and how long it has been in each.

    booting ─→ checking ─→ ready ─→ leased ─→ recycling ─→ checking ...      the machine stays (revert)
       │          │          │         │          │
       └──────────┴──────────┴─────────┴──────────┴──→ stopping ─→ gone      broken, surplus, or replaced

A desktop is handed out in one state only, `ready`, and gets there only by a check that succeeded after its last boot
or reset. What is `stopping` counts as alive until it is known to be gone.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from deskroll.desktops.base import Address, DesktopSpec
from deskroll.desktops.pool.queue import Request


class State(enum.StrEnum):
    """What goes on with a desktop."""

    BOOTING = "booting"
    CHECKING = "checking"
    """Its health is checked, after a boot or a reset."""
    READY = "ready"
    LEASED = "leased"
    RECYCLING = "recycling"
    """It goes back to a snapshot."""
    STOPPING = "stopping"


SUPPLY = (State.BOOTING, State.CHECKING, State.READY, State.RECYCLING)
"""States that lead to a desktop that can be handed out."""


@dataclass(slots=True)
class Slot:
    """One desktop, from before its boot until it is known to be gone."""

    id: str
    spec: DesktopSpec
    state: State
    since: float
    untried: bool = False
    """Whether it was booted here and has not been ready yet."""
    address: Address | None = None
    request: Request | None = None
    """Whom it is leased to."""
    generation: int = 0
    """Raised by the boot and by each reset."""
    doomed: str = ""
    """Why it must be stopped as soon as what goes on with it has ended; empty: it need not."""
    leases: int = 0
    checked_at: float = 0.0
    probing: bool = False
    """Whether it is being checked while it stands ready."""
    retry_at: float = 0.0
    """When to try again to stop it."""
    stop_failures: int = 0
    seconds: dict[State, float] = field(default_factory=dict)
    created_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.created_at = self.since

    def enter(self, state: State, now: float) -> None:
        """Change the state and account for the time in the old one."""
        self.seconds[self.state] = self.seconds.get(self.state, 0.0) + now - self.since
        self.state, self.since = state, now

    def seconds_until(self, now: float) -> dict[State, float]:
        """Time by state, the current one included."""
        return {**self.seconds, self.state: self.seconds.get(self.state, 0.0) + now - self.since}
