"""What becomes of an attempt, by the class of its failure: the table in `retry.py`, row by row."""

from __future__ import annotations

import random

import pytest

from deskroll.errors import FailureClass
from deskroll.rollout.retry import Retries, Verdict, is_infrastructure, judge
from deskroll.types import Episode, EpisodeKey, Failure, Score, StopReason

KEY = EpisodeKey(phase="eval", round=0, task="t", sample=0)
RETRIES = Retries(model=2, desktop=3, setup=1, evaluator=1, backoff=1.0, backoff_max=3.0)


def attempt(failure: FailureClass | None, kind: str = "Error", *, actions: int = 0, desktop: str = "") -> Episode:
    """An attempt that ended so."""
    if failure is None:
        return Episode(key=KEY, attempt=1, stop=StopReason.DONE, score=Score(value=1.0, reason="as expected"))
    score = Score(value=0.0 if failure is FailureClass.AGENT else None, reason="it failed")
    return Episode(
        key=KEY, attempt=1, stop=StopReason.FAILURE, score=score, actions=actions, desktop=desktop,
        failure=Failure(failure_class=failure, kind=kind, message="it failed"),
    )  # fmt: skip


def decide(*history: Episode, alone: bool = False) -> Verdict:
    return judge(history, RETRIES, alone=alone, dice=random.Random(1))


def test_success_is_sealed() -> None:
    assert decide(attempt(None)).seal is not None


@pytest.mark.parametrize("failure", [FailureClass.AGENT, FailureClass.TIMEOUT])
def test_what_is_the_episodes_own_is_never_tried_again(failure: FailureClass) -> None:
    assert decide(attempt(failure)) == Verdict(seal=attempt(failure))


@pytest.mark.parametrize(
    ("failure", "retries"),
    [(FailureClass.MODEL, 2), (FailureClass.DESKTOP, 3), (FailureClass.SETUP, 1), (FailureClass.EVALUATOR, 1)],
)
def test_infrastructure_is_tried_again_and_then_not_scored(failure: FailureClass, retries: int) -> None:
    history = []
    for n in range(retries):
        history.append(attempt(failure))
        verdict = decide(*history)
        assert verdict.again and verdict.seal is None
        assert 0 < verdict.pause <= min(2**n, 3.0)
    history.append(attempt(failure))
    sealed = decide(*history).seal
    assert sealed is not None and sealed.score.value is None
    assert is_infrastructure(sealed)


def test_classes_are_counted_each_by_itself() -> None:
    history = [attempt(FailureClass.MODEL), attempt(FailureClass.DESKTOP), attempt(FailureClass.MODEL)]
    assert decide(*history, attempt(FailureClass.SETUP)).again


@pytest.mark.parametrize("kind", ["DesktopLost", "DesktopTimeout"])
def test_a_second_death_after_the_agent_acted_is_the_agents(kind: str) -> None:
    first, second = (attempt(FailureClass.DESKTOP, kind, actions=1, desktop=name) for name in ("d-1", "d-2"))
    assert decide(first).again
    assert decide(first, first).again, "on the same desktop, it may well be the desktop's own doing"
    sealed = decide(first, attempt(FailureClass.MODEL), second).seal
    assert sealed is not None and sealed.failure is not None
    assert (sealed.failure.failure_class, sealed.failure.kind) == (FailureClass.AGENT, "desktop_lost")
    assert sealed.score.value == 0.0
    assert "it failed" in sealed.score.reason
    assert not is_infrastructure(sealed)


def test_a_death_before_the_agent_acted_is_never_the_agents() -> None:
    death = attempt(FailureClass.DESKTOP, "DesktopLost")
    sealed = decide(death, death, death, death).seal
    assert sealed is not None and sealed.score.value is None


@pytest.mark.parametrize("kind", ["LeaseLost", "GuestError", "NoDesktop"])
def test_a_lease_that_was_taken_away_is_never_the_agents(kind: str) -> None:
    lost = attempt(FailureClass.DESKTOP, kind, actions=3)
    assert decide(lost, lost, lost).again


def test_a_lost_worker_is_tried_again_alone_and_only_once() -> None:
    lost = attempt(FailureClass.WORKER)
    assert decide(lost) == Verdict(again=True, isolated=True)
    sealed = decide(lost, lost, alone=True).seal
    assert sealed is not None and sealed.score.value is None


def test_what_was_alone_stays_alone_when_something_else_fails() -> None:
    assert decide(attempt(FailureClass.WORKER), attempt(FailureClass.MODEL), alone=True).isolated


def test_what_was_stopped_has_no_outcome() -> None:
    assert decide(attempt(FailureClass.CANCELLED)) == Verdict()
