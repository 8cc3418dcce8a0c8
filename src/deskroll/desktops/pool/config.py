"""How a pool behaves. Every field has a default; times are in seconds."""

from __future__ import annotations

import msgspec

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.pool.queue import Quotas
from deskroll.errors import ConfigError
from deskroll.types import Record

_TIMES = (
    "boot_timeout", "reset_timeout", "check_timeout", "stop_timeout", "check_every", "idle_after", "backoff",
    "backoff_max",
)  # fmt: skip
TOO_LONG = 1e9
MOST_VMS = 100_000


class PoolConfig(Record, frozen=True):
    """Size, limits and patience of a pool."""

    num_vms: int = 3
    """The most desktops alive at a time, in whatever state, spares included."""
    min_vms: int | None = None
    """The fewest; None: always `num_vms`. Fewer than that, and the pool grows and shrinks with the demand."""
    spec: DesktopSpec = msgspec.field(default_factory=DesktopSpec)
    """What desktops are like unless a request asks for something else; spares are like this."""
    max_booting: int = 8
    """The most desktops that boot at a time."""
    resource_timeout: float | None = None
    """How long a request waits for a desktop; None: as long as it takes while the pool is healthy."""
    quotas: Quotas = msgspec.field(default_factory=Quotas)
    """How many desktops each client may hold at a time."""
    boot_timeout: float = 120.0
    reset_timeout: float = 120.0
    check_timeout: float = 15.0
    stop_timeout: float = 60.0
    check_every: float = 30.0
    """A desktop that stands ready is checked again after this long."""
    idle_after: float = 300.0
    """A desktop beyond `min_vms` that nobody wanted for this long is stopped."""
    backoff: float = 0.5
    """Pause after a second failed boot in a row; doubled with each further one."""
    backoff_max: float = 60.0
    give_up_after: int = 5
    """After so many failed boots in a row, and without any desktop that works, waiting requests are refused."""

    def __post_init__(self) -> None:
        if not 1 <= self.num_vms <= MOST_VMS:
            raise ConfigError(f"num_vms is {self.num_vms}; allowed: 1 to {MOST_VMS:,}")
        if self.min_vms is not None and not 0 <= self.min_vms <= self.num_vms:
            raise ConfigError(f"min_vms is {self.min_vms}; allowed: 0 to num_vms ({self.num_vms})")
        for name in ("max_booting", "give_up_after"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; allowed: 1 and more")
        for name in _TIMES:
            if not 0 < getattr(self, name) < TOO_LONG:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be a number of seconds above 0")
        if self.resource_timeout is not None and not 0 < self.resource_timeout < TOO_LONG:
            raise ConfigError(f"resource_timeout is {self.resource_timeout}; above 0, or none")

    @property
    def fewest(self) -> int:
        """How many desktops are kept even when nobody wants one."""
        return self.num_vms if self.min_vms is None else self.min_vms
