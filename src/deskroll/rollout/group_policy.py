"""GroupPolicy: when a group of episodes is closed before all of it has come to its end by itself. Pure.

A policy is a value: a part of a job's spec. What it decides goes by the scores that are there, whatever order they came
in, so that a resume decides the same.

    min_scored         fewer than so many can be scored any more    failed: the rest is given up
    no_signal_after    so many are scored, and all alike            no_signal: the rest is given up
    straggler_factor   all are scored but one, which takes long     enough: that one is given up
    fill_up            one ends unscored                            it is sampled anew
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal, Self

from pydantic import Field, model_validator

from deskroll.config import Settings
from deskroll.types import GroupEnd


class GroupPolicy(Settings):
    """When a group is closed, and what is done about members without a score; a text names one: fail_fast, ..."""

    fill_up: int = Field(default=0, ge=0)
    """So many times in a group, one that infrastructure left unscored is sampled anew, beyond its retries."""
    min_scored: int | Literal["all"] = 0
    """With fewer members scored, the group has failed; all: every one must be. What is left is then given up."""
    no_signal_after: int | None = Field(default=None, ge=2)
    """Once so many are scored, and all alike, the rest is given up; none: never."""
    straggler_factor: float | None = Field(default=None, gt=1)
    """With all but one scored, that one is given up after so many times the median of the others; none: never."""

    @model_validator(mode="before")
    @classmethod
    def _read_name(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if (named := _NAMED.get(value)) is None:
            raise ValueError(f"there is no policy {value!r}; there are {', '.join(_NAMED)}")
        return named().model_dump()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.min_scored != "all" and self.min_scored < 0:
            raise ValueError("min_scored is below 0")
        if self.straggler_factor is not None and self.min_scored == "all":
            raise ValueError("straggler_factor gives a member up, and with min_scored 'all' its group fails by that")
        return self

    def misfit(self, size: int, evaluate: bool) -> str:
        """Why it cannot be meant for groups of so many; empty: it can."""
        wanted = self.wanted(size)
        if wanted > size:
            return f"policy.min_scored is {wanted}, and a group has {size}"
        if self.straggler_factor is not None and wanted == size > 0:
            return f"policy.straggler_factor gives a member up, and policy.min_scored wants all {size}"
        if (self.no_signal_after or 0) > size:
            return f"policy.no_signal_after is {self.no_signal_after}, and a group has {size}"
        if wanted and not evaluate:
            return "policy.min_scored wants scores, and evaluate is switched off"
        return ""

    def wanted(self, size: int) -> int:
        """How many members of a group must be scored."""
        return size if self.min_scored == "all" else self.min_scored

    def decide(self, size: int, scores: Sequence[float], unscored: int) -> GroupEnd | None:
        """How a group ends, given the scores that are there and how many members ended without; None: not yet."""
        left = size - len(scores) - unscored
        if len(scores) + left < self.wanted(size):
            return GroupEnd.FAILED
        if self.no_signal_after is not None and len(scores) >= self.no_signal_after and len(set(scores)) == 1:
            return GroupEnd.NO_SIGNAL
        return None if left else GroupEnd.COMPLETE

    def conclude(self, size: int, scores: Sequence[float], unscored: int, given_up: int) -> GroupEnd:
        """How a group has ended, all of whose members have their outcome: by these alone, whenever somebody asks.

        `unscored`: members without a score, those that were given up left out.
        """
        if not given_up:
            return self.decide(size, scores, unscored) or GroupEnd.COMPLETE
        if (end := self.decide(size, scores, unscored)) is not None:
            return end
        # Scores differ: one of the last came in while the others were being given up, or the last one took too long.
        straggler = self.straggler_factor is not None and len(scores) == size - given_up == size - 1
        return GroupEnd.ENOUGH if straggler else GroupEnd.NO_SIGNAL

    def patience(self, seconds: Sequence[float]) -> float | None:
        """How many seconds the last member of a group may take, given what the others took; None: any number."""
        return None if self.straggler_factor is None or not seconds else self.straggler_factor * median(seconds)


class FailFast(GroupPolicy):
    """Every member must be scored: with the first that is not, the group fails and the rest is given up."""

    min_scored: int | Literal["all"] = "all"


class FillUp(GroupPolicy):
    """Every member must be scored: those that are not are sampled anew, so many times in a group."""

    fill_up: int = Field(default=4, ge=0)
    min_scored: int | Literal["all"] = "all"


class MinViable(GroupPolicy):
    """So many scored members are enough to learn from; with fewer the group fails."""

    min_scored: int | Literal["all"] = 2


_NAMED: dict[str, type[GroupPolicy]] = {"fail_fast": FailFast, "fill_up": FillUp, "min_viable": MinViable}
