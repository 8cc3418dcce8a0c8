"""What goes to and fro between a pool's service and its clients, and where a service listens."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from deskroll.desktops.base import Address, DesktopSpec
from deskroll.errors import (
    BootError,
    ConfigError,
    DeathCause,
    DeskrollError,
    DesktopError,
    InputError,
    LeaseLost,
    MissingDependency,
    NoDesktop,
    PoolGone,
)
from deskroll.host.listen import Listen
from deskroll.host.runtime_folder import runtime_root
from deskroll.types import Record

Word = Annotated[str, Meta(max_length=200)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
SESSION_HEADER = "Deskroll-Session"
MOST_LEASES = 1_000_000
"""Of one kind, that a plan may be told to come to."""
MOST_KINDS = 1000
"""That a plan may be told to have."""


def pool_address(text: str = "") -> Listen:
    """Where a pool is served: `unix:PATH` or `HOST:PORT`; nothing: the usual socket of this user."""
    return Listen.parse(text or f"unix:{runtime_root() / 'pool.sock'}")


class Hello(Record, frozen=True, forbid_unknown_fields=True):
    """A holder process begins a session."""

    client: Word = ""
    """Its name: what quotas count by, and people read."""
    boot: Word = ""
    """The boot of its host: desktops that only their own host reaches go to nobody else."""
    plan: Word = ""
    """The plan that its leases belong to, where somebody tells how many that comes to (POST /expect)."""


class Welcome(Record, frozen=True, omit_defaults=False):
    """The session of a holder process."""

    session: str
    ttl_s: float
    """It ends this long after the last sign of life."""
    watched: bool
    """Whether it ends at once with its connection to /events instead."""


class Ask(Record, frozen=True, forbid_unknown_fields=True):
    """A holder wants a desktop. The answer comes when it has one."""

    lease: Name
    """Its name, chosen by the holder, so that it can give back what it never heard of."""
    spec: DesktopSpec | None = None
    """None: as the pool's desktops are."""
    priority: int = 0
    group: Annotated[str, Meta(max_length=400)] = ""
    timeout: float | None = None


class Kind(Record, frozen=True, forbid_unknown_fields=True):
    """So many leases of desktops of one kind."""

    spec: DesktopSpec
    leases: Annotated[int, Meta(ge=0, le=MOST_LEASES)]


class Expect(Record, frozen=True, forbid_unknown_fields=True):
    """How many leases the session's plan comes to in all, those that it has had included.

    What was told last holds until the last session of the plan that told anything is over.

    Beyond its least number of desktops the pool then keeps none that nobody will lease.
    """

    kinds: Annotated[tuple[Kind, ...], Meta(max_length=MOST_KINDS)]


class Granted(Record, frozen=True):
    """A holder has a desktop."""

    lease: str
    address: Address
    spec: DesktopSpec


class Return(Record, frozen=True, forbid_unknown_fields=True):
    """A holder gives a desktop back."""

    lease: Name
    settled: bool = True
    """Whether every request that the holder made to the desktop was answered, so that none can arrive later."""
    suspect: str = ""
    """Why the holder thinks that something is wrong with it; empty: nothing is."""


class Lost(Record, frozen=True):
    """One line of /events: a lease was taken from its holder. Empty ones only show that the service is there."""

    lease: str = ""
    reason: str = ""
    death: DeathCause | None = None
    """Where its cause lies, when the desktop died; then the lease itself goes on."""


class Alive(Record, frozen=True, omit_defaults=False):
    """The answer to a heartbeat: what the session holds."""

    leases: tuple[str, ...]


class Resize(Record, frozen=True, forbid_unknown_fields=True):
    """How many desktops there shall be."""

    num_vms: int
    min_vms: int | None = None


class Free(Record, frozen=True, forbid_unknown_fields=True):
    """Take a desktop from its holder."""

    desktop: Word
    reason: Word = "an operator took it back"


class Done(Record, frozen=True, omit_defaults=False):
    """It was done."""

    ok: bool = True


class Problem(Record, frozen=True, omit_defaults=False):
    """Why it was not."""

    error: str
    kind: str = "DesktopError"
    """The name of the error's class in `errors.py`."""

    def as_error(self) -> DeskrollError:
        """The error as the client raises it."""
        kind = _KINDS.get(self.kind, DesktopError)
        return kind(self.error)


_KINDS: dict[str, type[DeskrollError]] = {
    kind.__name__: kind
    for kind in (NoDesktop, PoolGone, LeaseLost, InputError, ConfigError, MissingDependency, BootError)
}
