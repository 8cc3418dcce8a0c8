"""Times: how long something takes, as a distribution. Guarantees: no sample is negative, none is endless."""

from __future__ import annotations

import enum
import math
import random
import re

from deskroll.errors import InputError
from deskroll.types import Record

MAX_S = 1e6
"""The largest duration that can be asked for, in seconds."""
MAX_SIGMA = 10.0
_NUMBER = r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
_ALLOWED = (
    "allowed: '0.5' (always), '1..3' (uniform), 'exp 0.5' (mean), 'lognormal 0.5 0.3' (median, sigma), in seconds"
)


class Shape(enum.StrEnum):
    """Kinds of distributions."""

    FIXED = "fixed"
    """Always `first`."""
    UNIFORM = "uniform"
    """Anything from `first` to `second`."""
    EXPONENTIAL = "exponential"
    """Mean `first`."""
    LOGNORMAL = "lognormal"
    """Median `first`, and `second` the standard deviation of the logarithm."""


_PATTERNS = (
    (Shape.FIXED, re.compile(_NUMBER)),
    # The dots of '1..3' belong to neither number, so the first one may not end with one.
    (Shape.UNIFORM, re.compile(r"((?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?)\.\." + _NUMBER)),
    (Shape.EXPONENTIAL, re.compile(rf"exp\s+{_NUMBER}")),
    (Shape.LOGNORMAL, re.compile(rf"lognormal\s+{_NUMBER}\s+{_NUMBER}")),
)


class Times(Record, frozen=True):
    """A distribution of durations in seconds."""

    shape: Shape = Shape.FIXED
    first: float = 0.0
    second: float = 0.0

    def __post_init__(self) -> None:
        limit = MAX_SIGMA if self.shape is Shape.LOGNORMAL else MAX_S
        # Written so that nan fails too.
        if not (0 <= self.first <= MAX_S and 0 <= self.second <= limit):
            raise InputError(f"the time {self} is out of bounds: 0 to {MAX_S:g} s, sigma up to {MAX_SIGMA:g}")
        if self.shape is Shape.UNIFORM and self.first > self.second:
            raise InputError(f"the time {self} starts above its end")

    @classmethod
    def fixed(cls, seconds: float) -> Times:
        """Always the same."""
        return cls(first=seconds)

    @classmethod
    def parse(cls, text: str) -> Times:
        """Read `0.5`, `1..3`, `exp 0.5` or `lognormal 0.5 0.3`."""
        for shape, pattern in _PATTERNS:
            if match := pattern.fullmatch(text.strip()):
                return cls(shape=shape, **dict(zip(("first", "second"), map(float, match.groups()), strict=False)))
        raise InputError(f"{text!r} is not a time; {_ALLOWED}")

    def __str__(self) -> str:
        match self.shape:
            case Shape.FIXED:
                return repr(self.first)
            case Shape.UNIFORM:
                return f"{self.first!r}..{self.second!r}"
            case Shape.EXPONENTIAL:
                return f"exp {self.first!r}"
            case Shape.LOGNORMAL:
                return f"lognormal {self.first!r} {self.second!r}"

    @property
    def typical(self) -> float:
        """What to expect: the mean, or the median of a lognormal."""
        return (self.first + self.second) / 2 if self.shape is Shape.UNIFORM else self.first

    def sample(self, rng: random.Random) -> float:
        """One duration."""
        if self.first == 0 and self.shape is not Shape.UNIFORM:
            return 0.0
        match self.shape:
            case Shape.FIXED:
                return self.first
            case Shape.UNIFORM:
                return rng.uniform(self.first, self.second)
            case Shape.EXPONENTIAL:
                return rng.expovariate(1 / self.first)
            case Shape.LOGNORMAL:
                return rng.lognormvariate(math.log(self.first), self.second)
