"""Cancellation: one that nobody has sent is a failure of the code that let it escape; one that was sent is a stop.

Whatever an agent makes of being stopped, it is neither its failure nor its success.
"""

from __future__ import annotations

import asyncio

import pytest

from deskroll.errors import FailureClass, ModelError
from deskroll.store.journal import Failed
from deskroll.types import Failure
from tests.rollout.conftest import ANSWER, CALCULATE, Runs, questions, script, until

PLACES = ["setup", "step", "score", "close"]
BACKENDS = pytest.mark.parametrize("backend", ["inline", "process"])
NONE = {"model": 0, "desktop": 0, "setup": 0, "env": 0, "evaluator": 0}


@BACKENDS
async def test_of_an_environment(runs: Runs, backend: str) -> None:
    tasks = [questions(len(PLACES), leaks=place)[n] for n, place in enumerate(PLACES)]
    work = runs.run(
        script(CALCULATE, ANSWER), tasks, env="tests.rollout.parts:LeakyEnv", backend=backend, workers=1, retries=NONE
    )
    outcomes = await asyncio.wait_for(work, 60)
    assert [_blamed(each.failure) for each in outcomes] == [
        FailureClass.ENV, FailureClass.ENV, FailureClass.EVALUATOR, None
    ]  # fmt: skip
    assert [each.score.value for each in outcomes] == [None, None, None, 1.0]
    assert all("cancelled from within" in each.failure.message for each in outcomes if each.failure)


@BACKENDS
async def test_of_an_agent(runs: Runs, backend: str) -> None:
    work = runs.run(
        script(ANSWER), questions(2), agent="tests.rollout.parts:LeakyAgent", backend=backend, workers=1, retries=NONE
    )
    outcomes = await asyncio.wait_for(work, 60)
    assert [(_blamed(each.failure), each.score.value) for each in outcomes] == [(FailureClass.AGENT, 0.0)] * 2


@BACKENDS
async def test_of_the_task_itself_is_that_of_a_worker(runs: Runs, backend: str) -> None:
    """It cannot be told from the end of the process: the attempt is lost, and not for ever under way."""
    work = runs.run(
        script(ANSWER), questions(1), agent="tests.rollout.parts:SelfCancellingAgent", backend=backend, workers=1
    )
    (outcome,) = await asyncio.wait_for(work, 60)
    assert (_blamed(outcome.failure), outcome.score.value, outcome.attempt) == (FailureClass.WORKER, None, 2)


@pytest.mark.parametrize("agent", ["WrappingAgent", "StubbornAgent"])
@pytest.mark.parametrize("error", [None, ModelError("the server is silent")], ids=["unwanted", "by the watchdog"])
@BACKENDS
async def test_that_was_sent_is_no_doing_of_the_agent(
    runs: Runs, backend: str, error: ModelError | None, agent: str
) -> None:
    async with runs.open(
        script(ANSWER), questions(1), agent=f"tests.rollout.parts:{agent}", backend=backend, workers=1, retries=NONE
    ) as session:
        work = asyncio.ensure_future(session.run())
        await until(lambda: session.status().stages.get("model"), "the agent thinks")
        if error is None:
            session.stop(now=True)
        else:
            ((key, attempt),) = session.engine.running
            session.engine.backend.stop(key, attempt, error)
        outcomes = await asyncio.wait_for(work, 60)
    assert [(_blamed(each.failure), each.score.value) for each in outcomes] == [(FailureClass.MODEL, None)] * bool(
        error
    )
    if error is None:
        (failed,) = runs.read().records(Failed)
        assert (_blamed(failed.episode.failure), failed.episode.score.value) == (FailureClass.CANCELLED, None)


def _blamed(failure: Failure | None) -> FailureClass | None:
    return failure.failure_class if failure else None
