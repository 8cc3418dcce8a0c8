"""Budget: what an attempt has used up, and which limit it has reached."""

from __future__ import annotations

from deskroll.rollout.spec import EpisodeLimits
from deskroll.types import Completion, Decision, StopReason, Usage

_UNUSABLE = 10
"""So many answers in a row that could not be used an episode may have, however few its turns are."""


class Budget:
    """Counts turns, tokens and cost against the limits; time is kept by the loop itself."""

    def __init__(self, limits: EpisodeLimits) -> None:
        self._limits = limits
        self.turns = 0
        self._unusable = 0
        """Answers in a row that could not be used."""
        self._prompt = self._completion = self._calls = 0
        self._cost = 0.0
        self._unpriced = 0

    def count(self, completion: Completion | None) -> None:
        """Count one answer of a model."""
        if completion is not None:
            self._calls += 1
            self._prompt += completion.prompt_tokens
            self._completion += completion.completion_tokens
            if completion.cost_usd is None:
                self._unpriced += 1
            else:
                self._cost += completion.cost_usd

    def count_turn(self, decision: Decision) -> None:
        """Count a turn. An answer that could not be used costs none, and yet there is an end to these, too."""
        if decision.actions or not decision.problem:
            self.turns += 1
            self._unusable = 0
        else:
            self._unusable += 1

    def reached(self) -> StopReason | None:
        """The limit that ends the episode now."""
        limits = self._limits
        if self.turns >= limits.max_turns or self._unusable >= max(limits.max_turns, _UNUSABLE):
            return StopReason.MAX_TURNS
        if limits.max_tokens is not None and self._prompt + self._completion >= limits.max_tokens:
            return StopReason.MAX_TOKENS
        if limits.max_cost_usd is not None and self._cost >= limits.max_cost_usd:
            return StopReason.MAX_COST
        return None

    def usage(self) -> Usage:
        """All of it so far."""
        return Usage(
            prompt_tokens=self._prompt,
            completion_tokens=self._completion,
            calls=self._calls,
            cost_usd=None if self._unpriced else self._cost,
        )
