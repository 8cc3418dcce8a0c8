"""How a pool behaves. Every field has a default; times are in seconds."""

from __future__ import annotations

import msgspec

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.pool.queue import Quotas
from deskroll.errors import ConfigError
from deskroll.types import Record


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
        if self.num_vms < 1:
            raise ConfigError(f"num_vms is {self.num_vms}; a pool needs at least 1 desktop")
        if self.min_vms is not None and not 0 <= self.min_vms <= self.num_vms:
            raise ConfigError(f"min_vms is {self.min_vms}; allowed: 0 to num_vms ({self.num_vms})")
        if self.max_booting < 1:
            raise ConfigError(f"max_booting is {self.max_booting}; allowed: 1 and more")
        for name in ("boot_timeout", "reset_timeout", "check_timeout", "stop_timeout", "check_every", "backoff_max"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be above 0")

    @property
    def fewest(self) -> int:
        """How many desktops are kept even when nobody wants one."""
        return self.num_vms if self.min_vms is None else self.min_vms
