"""How a pool behaves. Every field has a default; times are in seconds."""

from __future__ import annotations

from pydantic import Field, InstanceOf

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.pool.queue import Quotas
from deskroll.desktops.settings import PoolSettings, Seconds


class PoolConfig(PoolSettings):
    """Size, limits and patience of a pool."""

    spec: InstanceOf[DesktopSpec] = DesktopSpec()
    """What desktops are like unless a request asks for something else; spares are like this."""
    max_booting: int = Field(default=8, ge=1)
    """The most desktops that boot at a time."""
    quotas: InstanceOf[Quotas] = Quotas()
    """How many desktops each client may hold at a time."""
    boot_timeout: Seconds = 120.0
    reset_timeout: Seconds = 120.0
    check_timeout: Seconds = 15.0
    stop_timeout: Seconds = 60.0
    check_every: Seconds = 30.0
    """A desktop that stands ready is checked again after this long."""
    idle_after: Seconds = 300.0
    """A desktop beyond `min_vms` that nobody wanted for this long is stopped."""
    backoff: Seconds = 0.5
    """Pause after a second failed boot in a row; doubled with each further one."""
    backoff_max: Seconds = 60.0
    give_up_after: int = Field(default=5, ge=1)
    """After so many failed boots in a row, and without any desktop that works, waiting requests are refused."""
