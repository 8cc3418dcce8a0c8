"""SimSettings: how long simulated desktops take, what they can do, and how often which part of it goes wrong."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer

from deskroll.config import Settings
from deskroll.desktops.base import Fence, Recycling
from deskroll.desktops.providers.sim.times import Shape, Times
from deskroll.errors import DeathCause, InputError


def _read_times(value: object) -> object:
    try:
        return Times.parse(str(value)) if isinstance(value, str | int | float) else value
    except InputError as error:
        raise ValueError(str(error)) from None


def _split(value: object) -> object:
    return tuple(filter(None, (name.strip() for name in value.split(",")))) if isinstance(value, str) else value


Duration = Annotated[Times, BeforeValidator(_read_times), PlainSerializer(str)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class SimSettings(Settings):
    """What the desktops of a provider are like. Options as a person writes them: `boot=1..3`, `boot_fails=0.2`.

    Probabilities are for each boot, reset, step and so on. Something that hangs does so until it is cancelled.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    boot: Duration = Times.fixed(0.05)
    reset: Duration = Times.fixed(0.05)
    step: Duration = Times.fixed(0.01)
    check: Duration = Times.fixed(0.0)
    stop: Duration = Times.fixed(0.0)
    seed: int = 0
    """Everything random follows from it."""
    fence: Fence = Fence.HARD
    recycling: Recycling = Recycling.REVERT
    snapshots: Annotated[tuple[str, ...], BeforeValidator(_split)] = ()
    """Names that a spec's snapshot may have, beside none."""
    proxy: bool = True
    """Whether a spec may ask for a proxy."""
    fixed_ip: bool = True
    """Whether a spec may ask for a fixed address."""
    boot_fails: Probability = 0.0
    """The boot takes its time, then raises; nothing is left."""
    boot_hangs: Probability = 0.0
    boot_leaks: Probability = 0.0
    """The boot raises, and the machine stays alive until it is stopped."""
    reset_fails: Probability = 0.0
    reset_hangs: Probability = 0.0
    reset_slow: Probability = 0.0
    """The reset takes `slow_factor` times as long."""
    slow_factor: float = Field(default=10.0, ge=0, le=1e6, allow_inf_nan=False)
    step_crashes: Probability = 0.0
    """The machine dies in mid-step."""
    step_hangs: Probability = 0.0
    """The step never answers, and nothing else does until the desktop is reset."""
    dies_idle: Probability = 0.0
    """A clean desktop dies by itself, unless somebody used it before that."""
    dies_after: Duration = Times(shape=Shape.EXPONENTIAL, first=1.0)
    """How long after it became clean."""
    dies_of: DeathCause = DeathCause.UNKNOWN
    """Where the cause of each death lies: `inside`, `outside`, or nobody can tell."""
    stop_fails: Probability = 0.0
    """The stop raises, and the machine stays."""
