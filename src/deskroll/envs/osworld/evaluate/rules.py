"""How the values of an evaluator's parts come to one score: OSWorld's own rules.

`and`: 0 as soon as one part is 0, else the mean; `or`: 1 as soon as one is 1, else the largest. Parts behind the one
that decides are not looked at. FAIL as the last action scores 1 where the task is infeasible, and 0 everywhere else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from deskroll.envs.osworld.evaluate.parts import Conj, Evaluation
from deskroll.types import Score, StopReason


def by_ending(evaluation: Evaluation, stop: StopReason) -> Score | None:
    """The score that the ending alone decides; None where the desktop has to be looked at."""
    gave_up = stop is StopReason.FAIL
    if evaluation.infeasible:
        said = "said so" if gave_up else "did not say so"
        reason = f"the task cannot be done, and the agent {said}"
        return Score(value=float(gave_up), reason=reason, found=stop.value, expected=StopReason.FAIL.value)
    return Score(value=0.0, reason="the agent gave up", found=stop.value) if gave_up else None


async def fold(conj: Conj, values: AsyncIterator[float]) -> float:
    """One value of many, asked for one by one."""
    seen: list[float] = []
    async for value in values:
        if conj is Conj.AND and value == 0.0:
            return 0.0
        if conj is Conj.OR and value == 1.0:
            return 1.0
        seen.append(value)
    return sum(seen) / len(seen) if conj is Conj.AND else max(seen)
