"""What people set of a pool, for a run of their own or where it is served. Light, so that `--help` can read it."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from deskroll.config import Settings

TOO_LONG = 1e9
MOST_VMS = 100_000
Seconds = Annotated[float, Field(gt=0, lt=TOO_LONG)]


class PoolSettings(Settings):
    """The size of a pool, and the patience of those who wait for it: what a run says of it, too."""

    num_vms: int = Field(default=3, ge=1, le=MOST_VMS)
    """The most desktops alive, in whatever state, spares included."""
    min_vms: int | None = Field(default=None, ge=0)
    """The fewest; none: always num_vms. Fewer than that, and the pool grows and shrinks with the demand."""
    resource_timeout: Seconds | None = None
    """The longest wait for a desktop, in seconds; none: as long as it takes while the pool is healthy."""

    @model_validator(mode="after")
    def _check_fewest(self) -> Self:
        if self.min_vms is not None and self.min_vms > self.num_vms:
            raise ValueError(f"min_vms is {self.min_vms}; allowed: 0 to num_vms ({self.num_vms})")
        return self

    @property
    def fewest(self) -> int:
        """How many desktops are kept even when nobody wants one."""
        return self.num_vms if self.min_vms is None else self.min_vms
