"""Whose fault it was: for each class of failure, what is tried again, what is scored, what the report says of it."""

from __future__ import annotations

from typing import Any

import pytest

from deskroll.errors import FailureClass
from deskroll.report.results import Results
from deskroll.store.journal import Failed
from deskroll.types import Episode
from tests.rollout.conftest import ANSWER, CALCULATE, Runs, questions, script

FAILING = "tests.rollout.parts:FailingEnv"
RETRIES = {"model": 1, "desktop": 1, "setup": 1, "evaluator": 1, "backoff": 0.01}

ROWS = [
    # what fails,                                          whose fault,            score, attempts
    ({"agent": "tests.rollout.parts:BrokenAgent"}, {}, FailureClass.AGENT, 0.0, 1),
    ({"agent": "tests.rollout.parts:ForsakenAgent"}, {}, FailureClass.MODEL, None, 2),
    ({"env": FAILING}, {"fails": "desktop"}, FailureClass.DESKTOP, None, 2),
    ({"env": FAILING}, {"fails": "wedged"}, FailureClass.DESKTOP, None, 2),
    ({"env": "tests.rollout.parts:DyingEnv"}, {}, FailureClass.AGENT, 0.0, 2),
    ({"env": FAILING}, {"fails": "setup"}, FailureClass.SETUP, None, 2),
    ({"env": FAILING}, {"fails": "score"}, FailureClass.EVALUATOR, None, 2),
    ({"env": "tests.rollout.parts:CrashingEnv", "backend": "process"}, {"crash": "exit"}, FailureClass.WORKER, None, 2),
]
IDS = ["agent", "model", "desktop", "wedged", "died twice", "setup", "evaluator", "worker"]


@pytest.mark.parametrize(("settings", "task", "blamed", "score", "attempts"), ROWS, ids=IDS)
async def test_each_class_of_failure(
    runs: Runs, settings: dict[str, Any], task: dict[str, str], blamed: FailureClass, score: float | None, attempts: int
) -> None:
    tasks = [*questions(1, **task), *questions(3)[1:]]
    alike = "agent" in settings or "DyingEnv" in settings.get("env", "")  # then every task fails, not only the first
    await runs.run(script(CALCULATE, ANSWER), tasks, **settings, retries=RETRIES, workers=1)
    run = runs.read()
    outcomes = {each.key.task: each for each in run.outcomes()}
    assert len(outcomes) == 3
    failed = outcomes["task-0"]
    assert failed.failure is not None
    assert (failed.failure.failure_class, failed.score.value) == (blamed, score)
    assert failed.attempt == attempts
    retried = [each.episode for each in run.records(Failed) if each.episode.key.task == "task-0"]
    assert len(retried) == attempts - 1
    assert all(each.score.value is None for each in retried), "an attempt that is made again was never scored"
    _check_report(runs, list(outcomes.values()), blamed, alike=alike)


def _check_report(runs: Runs, outcomes: list[Episode], blamed: FailureClass, *, alike: bool) -> None:
    """Both denominators: attempts count all, scored only what has a score; 0 is for the agent alone."""
    overall = Results.read(runs.folder / "run").summary().overall
    failed = 3 if alike else 1
    unscored = 0 if blamed is FailureClass.AGENT else failed
    assert (overall.attempted, overall.scored, overall.successes) == (3, 3 - unscored, 3 - failed)
    assert overall.over_attempted.value == pytest.approx((3 - failed) / 3)
    expected = (3 - failed) / (3 - unscored) if unscored < 3 else None
    assert overall.over_scored.value == (pytest.approx(expected) if expected is not None else None)
    assert sum(overall.unscored_by.values()) == unscored


async def test_a_worker_that_died_for_another_reason_costs_its_episodes_nothing(runs: Runs) -> None:
    """They run again, each alone, and come to their own end."""
    tasks = [
        *questions(1, crash="exit", once=str(runs.folder / "crashed")),
        *questions(8)[1:],
    ]
    outcomes = await runs.run(
        script(ANSWER, latency=0.3), tasks, env="tests.rollout.parts:CrashingEnv", backend="process", workers=1,
        num_rollouts=8,
    )  # fmt: skip
    assert [each.score.value for each in outcomes] == [1.0] * 8
    lost = [each.episode for each in runs.read().records(Failed)]
    assert lost
    assert all(each.failure and each.failure.failure_class is FailureClass.WORKER for each in lost)


async def test_what_fails_on_one_desktop_is_tried_again_on_another(runs: Runs) -> None:
    """Also where desktops go back to a snapshot after use, and there is only one at a time."""
    tasks = questions(1, config=[{"type": "teleport"}])
    (outcome,) = await runs.run(script(ANSWER), tasks, env="osworld", provider="sim", num_vms=1, retries={"setup": 2})
    run = runs.read()
    desktops = [each.episode.desktop for each in run.records(Failed)] + [outcome.desktop]
    assert len(set(desktops)) == 3
    assert outcome.failure is not None
    assert "there is no such step" in outcome.failure.message
