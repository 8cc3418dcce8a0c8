"""What becomes of an attempt, by the class of its failure: the table in `retry.py`, row by row."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskroll.errors import DeathCause, FailureClass
from deskroll.rollout.retry import Retries, Verdict, acquit, is_evidence, is_infrastructure, judge
from deskroll.types import Episode, EpisodeKey, Failure, Score, StopReason

KEY = EpisodeKey(phase="eval", round=0, task="t", sample=0)
RETRIES = Retries(model=2, desktop=3, setup=1, evaluator=1, backoff=1.0, backoff_max=3.0)


def attempt(
    failure: FailureClass | None,
    kind: str = "Error",
    *,
    actions: int = 0,
    desktop: str = "",
    cause: DeathCause | None = None,
) -> Episode:
    """An attempt that ended so."""
    if failure is None:
        return Episode(key=KEY, attempt=1, stop=StopReason.DONE, score=Score(value=1.0, reason="as expected"))
    score = Score(value=0.0 if failure is FailureClass.AGENT else None, reason="it failed")
    return Episode(
        key=KEY, attempt=1, stop=StopReason.FAILURE, score=score, actions=actions, desktop=desktop,
        failure=Failure(failure_class=failure, kind=kind, message="it failed", cause=cause),
    )  # fmt: skip


def decide(*history: Episode, alone: bool = False) -> Verdict:
    return judge(history, RETRIES, alone=alone, dice=random.Random(1))


def test_success_is_sealed() -> None:
    assert decide(attempt(None)).seal is not None


def test_what_is_the_agents_own_is_never_tried_again() -> None:
    assert decide(attempt(FailureClass.AGENT)) == Verdict(seal=attempt(FailureClass.AGENT))


@pytest.mark.parametrize(
    ("failure", "retries"),
    [
        (FailureClass.MODEL, 2),
        (FailureClass.DESKTOP, 3),
        (FailureClass.SETUP, 1),
        (FailureClass.ENV, 1),
        (FailureClass.EVALUATOR, 1),
    ],
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


def death(cause: DeathCause | None, desktop: str, *, actions: int = 1, kind: str = "DesktopLost") -> Episode:
    """An attempt whose desktop died."""
    return attempt(FailureClass.DESKTOP, kind, actions=actions, desktop=desktop, cause=cause)


def test_a_second_death_of_what_was_done_inside_is_the_agents() -> None:
    first, second = (death(DeathCause.INSIDE, name) for name in ("d-1", "d-2"))
    assert decide(first).again
    assert decide(first, first).again, "on the same desktop, it may well be the desktop's own doing"
    sealed = decide(first, attempt(FailureClass.MODEL), second).seal
    assert sealed is not None and sealed.failure is not None
    assert (sealed.failure.failure_class, sealed.failure.kind) == (FailureClass.AGENT, "desktop_lost")
    assert sealed.score.value == 0.0
    assert "it failed" in sealed.score.reason
    assert not is_infrastructure(sealed)


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (DeathCause.OUTSIDE, "DesktopLost"),
        (DeathCause.UNKNOWN, "DesktopLost"),
        (None, "DesktopTimeout"),
        (None, "DesktopStalled"),
        (None, "LeaseLost"),
        (None, "GuestError"),
        (None, "NoDesktop"),
    ],
)
def test_in_doubt_a_death_is_nobodys_and_the_episode_ends_unscored(cause: DeathCause | None, kind: str) -> None:
    deaths = [death(cause, f"d-{n}", actions=3, kind=kind) for n in range(RETRIES.desktop + 1)]
    assert all(decide(*deaths[:n]).again for n in range(1, len(deaths)))
    sealed = decide(*deaths).seal
    assert sealed is not None and sealed.score.value is None


def test_a_death_before_the_agent_acted_is_never_the_agents() -> None:
    sealed = decide(*(death(DeathCause.INSIDE, f"d-{n}", actions=0) for n in range(4))).seal
    assert sealed is not None and sealed.score.value is None


def test_what_dies_together_with_others_is_acquitted() -> None:
    first, second = (death(DeathCause.INSIDE, name) for name in ("d-1", "d-2"))
    assert acquit(first, 0) == first
    acquitted = acquit(second, 2)
    assert not is_evidence(acquitted)
    assert acquitted.score.value is None
    assert "2 others died at the same time" in acquitted.score.reason
    assert decide(first, acquitted).again
    assert acquit(attempt(None), 2) == attempt(None), "whose desktop lived on is not concerned"


FAILURES = st.builds(
    attempt,
    st.sampled_from([None, *FailureClass]),
    st.sampled_from(["DesktopLost", "DesktopTimeout", "DesktopStalled", "LeaseLost", "Error"]),
    actions=st.integers(0, 2),
    desktop=st.sampled_from(["", "d-1", "d-2", "d-3"]),
    cause=st.sampled_from([None, *DeathCause]),
)


@given(st.lists(FAILURES, min_size=1, max_size=8), st.booleans())
def test_nothing_but_the_agents_own_doing_is_ever_scored_0(history: list[Episode], alone: bool) -> None:
    verdict = decide(*history, alone=alone)
    assert not (verdict.again and verdict.seal)
    if verdict.seal is None or verdict.seal.score.value != 0.0:
        return
    last = history[-1]
    assert last.failure is not None
    proven = {each.desktop for each in history if each.failure and each.failure.cause is DeathCause.INSIDE}
    own = last.failure.failure_class is FailureClass.AGENT
    assert own or (last.failure.cause is DeathCause.INSIDE and last.actions > 0 and len(proven) > 1)


@given(st.lists(FAILURES, min_size=1, max_size=8), st.booleans(), st.integers(1, 3))
def test_acquitted_of_everything_an_episode_is_scored_0_for_its_own_failures_alone(
    history: list[Episode], alone: bool, others: int
) -> None:
    sealed = decide(*(acquit(each, others) if is_evidence(each) else each for each in history), alone=alone).seal
    if sealed is not None and sealed.score.value == 0.0:
        assert history[-1].failure is not None
        assert history[-1].failure.failure_class is FailureClass.AGENT


def test_a_lost_worker_is_tried_again_alone_and_only_once() -> None:
    lost = attempt(FailureClass.WORKER)
    assert decide(lost) == Verdict(again=True, isolated=True)
    sealed = decide(lost, lost, alone=True).seal
    assert sealed is not None and sealed.score.value is None


def test_what_was_alone_stays_alone_when_something_else_fails() -> None:
    assert decide(attempt(FailureClass.WORKER), attempt(FailureClass.MODEL), alone=True).isolated


def test_what_was_stopped_has_no_outcome() -> None:
    assert decide(attempt(FailureClass.CANCELLED)) == Verdict()
