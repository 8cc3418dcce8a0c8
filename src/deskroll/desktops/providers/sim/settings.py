"""SimSettings: how long simulated desktops take, what they can do, and how often which part of it goes wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from deskroll.desktops.base import Fence, Recycling
from deskroll.desktops.providers.sim.times import Shape, Times
from deskroll.errors import DeathCause, InputError
from deskroll.types import Record


class Faults(Record, frozen=True):
    """Probabilities, for each boot, reset, step and so on. Something that hangs does so until it is cancelled."""

    boot_fails: float = 0.0
    """The boot takes its time, then raises; nothing is left."""
    boot_hangs: float = 0.0
    boot_leaks: float = 0.0
    """The boot raises, and the machine stays alive until it is stopped."""
    reset_fails: float = 0.0
    reset_hangs: float = 0.0
    reset_slow: float = 0.0
    """The reset takes `slow_factor` times as long."""
    slow_factor: float = 10.0
    step_crashes: float = 0.0
    """The machine dies in mid-step."""
    step_hangs: float = 0.0
    """The step never answers, and nothing else does until the desktop is reset."""
    dies_idle: float = 0.0
    """A clean desktop dies by itself, unless somebody used it before that."""
    dies_after: Times = Times(shape=Shape.EXPONENTIAL, first=1.0)
    """How long after it became clean."""
    dies_of: DeathCause = DeathCause.UNKNOWN
    """Where the cause of each death lies: `inside`, `outside`, or nobody can tell."""
    stop_fails: float = 0.0
    """The stop raises, and the machine stays."""

    def __post_init__(self) -> None:
        for name in _PROBABILITIES:
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name)}; allowed: a probability from 0 to 1")
        if not 0 <= self.slow_factor <= 1e6:
            raise InputError(f"slow_factor is {self.slow_factor}; allowed: 0 to 1000000")


_PROBABILITIES = tuple(
    name for name in Faults.__struct_fields__ if name not in ("slow_factor", "dies_after", "dies_of")
)


class SimSettings(Record, frozen=True):
    """What the desktops of a provider are like."""

    boot: Times = Times.fixed(0.05)
    reset: Times = Times.fixed(0.05)
    step: Times = Times.fixed(0.01)
    check: Times = Times.fixed(0.0)
    stop: Times = Times.fixed(0.0)
    seed: int = 0
    """Everything random follows from it."""
    faults: Faults = Faults()
    fence: Fence = Fence.HARD
    recycling: Recycling = Recycling.REVERT
    snapshots: tuple[str, ...] = ()
    """Names that a spec's snapshot may have, beside none."""
    proxy: bool = True
    """Whether a spec may ask for a proxy."""
    fixed_ip: bool = True
    """Whether a spec may ask for a fixed address."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SimSettings:
        """Read options as a person writes them, e.g. `boot=1..3`, `boot_fails=0.2`, `snapshots=a,b`."""
        allowed = (*(name for name in cls.__struct_fields__ if name != "faults"), *Faults.__struct_fields__)
        fields: dict[str, object] = {}
        faults: dict[str, object] = {}
        for key, text in options.items():
            if key not in allowed:
                raise InputError(f"simulated desktops have no option {key!r}; allowed: {', '.join(allowed)}")
            (faults if key in Faults.__struct_fields__ else fields)[key] = _read(key, text)
        settings = _convert(fields, cls)
        return msgspec.structs.replace(settings, faults=_convert(faults, Faults))


_ALLOWED = {
    "recycling": "; allowed: revert, replace", "fence": "; allowed: hard, timed",
    "dies_of": "; allowed: inside, outside, unknown",
    "proxy": "; allowed: true, false", "fixed_ip": "; allowed: true, false",
}  # fmt: skip
_TIMES = ("boot", "reset", "step", "check", "stop", "dies_after")
S = TypeVar("S", bound=Record)


def _convert(fields: dict[str, object], kind: type[S]) -> S:
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        field = str(error).rpartition(".")[2].rstrip("`")
        raise InputError(f"options of simulated desktops: {error}{_ALLOWED.get(field, '')}") from None


def _read(key: str, text: str) -> object:
    if key in _TIMES:
        try:
            return msgspec.to_builtins(Times.parse(text))
        except InputError as error:
            raise InputError(f"{key}: {error}") from None
    return [name.strip() for name in text.split(",") if name.strip()] if key == "snapshots" else text.strip()
