"""One episode, from reset to score: limits, phases, what is written down."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deskroll.actions import Click
from deskroll.clocks import running_time
from deskroll.errors import DeskrollError, EvaluatorError
from deskroll.events import AttemptStarted, EpisodeUnclosed, EventSink
from deskroll.rollout.backends.inline import InlineBackend
from deskroll.rollout.events import EventHub, RunState
from deskroll.rollout.live_attempt import LiveAttempt
from deskroll.rollout.orders import Activity, Order, WorkerSetup
from deskroll.rollout.spec import Definition, EpisodeSpec
from deskroll.types import EpisodeKey, Stage, StopReason
from tests.models.servers import Noted
from tests.rollout import parts
from tests.rollout.conftest import ANSWER, CALCULATE, DONE, INFEASIBLE, Runs, questions, script, until


async def test_a_whole_episode(runs: Runs) -> None:
    (episode,) = await runs.run(script(CALCULATE, ANSWER), questions(1, domain="sums"))
    assert (episode.stop, episode.score.value, episode.answer) == (StopReason.ANSWER, 1.0, "42")
    assert (episode.steps, episode.actions, episode.domain) == (2, 2, "sums")
    assert episode.usage.calls == 2
    assert episode.usage.prompt_tokens > 0
    assert episode.usage.cost_usd is None, "nobody knows the price of a scripted model, and a made-up 0 would be a lie"
    steps = runs.read().attempt(episode.key, 1).steps()
    assert [step.results for step in steps] == [("6*7 = 42",), ()]
    assert runs.read().attempt(episode.key, 1).task() == questions(1, domain="sums")[0]


async def test_what_a_model_is_let_off_is_noted_in_the_step_and_costs_no_turn(runs: Runs) -> None:
    arguments = {"action_type": "CLICK", "parameters": {"x": 9000, "y": 5, "why": "so"}}
    say = script({"tools": [{"name": "computer", "arguments": arguments}]}, DONE)
    (episode,) = await runs.run(say, questions(1, evaluator=INFEASIBLE), env="osworld", provider="sim")
    assert (episode.steps, episode.actions) == (2, 2)
    first, second = runs.read().attempt(episode.key, 1).steps()
    assert first.actions == (Click("left", 1919, 5),)
    assert first.notes == (
        "CLICK has the unknown parameter 'why', which was ignored",
        "CLICK: (9000, 5) is off the 1920x1080 screen; taken: (1919, 5)",
    )
    assert second.notes == ()


async def test_every_second_belongs_to_one_phase(runs: Runs) -> None:
    (episode,) = await runs.run(script(CALCULATE, ANSWER, latency=1.0), questions(1))
    assert set(episode.seconds) <= set(Stage)
    assert episode.seconds[Stage.MODEL] > 1.9
    lived = episode.ended_at - episode.started_at + episode.seconds[Stage.PERMIT]
    assert sum(episode.seconds.values()) == pytest.approx(lived, abs=0.5)


@pytest.mark.parametrize(
    ("limits", "model", "stop"),
    [
        ({"max_turns": 3}, {}, StopReason.MAX_TURNS),
        ({"max_tokens": 150}, {}, StopReason.MAX_TOKENS),
        ({"max_cost_usd": 0.001}, {"price": {"input": 5, "output": 10}}, StopReason.MAX_COST),
        ({"max_time": 0.5}, {}, StopReason.MAX_TIME),
    ],
)
async def test_a_limit_ends_it_and_what_was_done_is_scored(
    runs: Runs, limits: dict[str, Any], model: dict[str, Any], stop: StopReason
) -> None:
    (episode,) = await runs.run(script(CALCULATE, latency=0.1), questions(1), limits=limits, model=model)
    assert episode.stop is stop
    assert episode.failure is None
    assert episode.score.value == 0.0, "no answer was given"
    assert 0 < episode.steps < 20


@pytest.mark.parametrize(
    ("fails", "limit", "blamed"),
    [("slow setup", "setup_timeout", "setup"), ("slow score", "score_timeout", "evaluator")],
)
async def test_set_up_and_scoring_have_limits_of_their_own(runs: Runs, fails: str, limit: str, blamed: str) -> None:
    (episode,) = await runs.run(
        script(ANSWER), questions(1, fails=fails), env="tests.rollout.parts:FailingEnv", limits={limit: 0.1},
        retries={"setup": 0, "evaluator": 0},
    )  # fmt: skip
    assert episode.failure is not None
    assert (episode.failure.failure_class, episode.score.value) == (blamed, None)
    assert "0.1 s" in episode.failure.message


async def test_a_reply_that_could_not_be_used_is_no_turn(runs: Runs) -> None:
    bad = {"tools": [{"name": "abacus", "arguments": {}}]}
    (episode,) = await runs.run(script(bad, bad, ANSWER), questions(1), limits={"max_turns": 1})
    assert (episode.stop, episode.score.value, episode.steps, episode.actions) == (StopReason.ANSWER, 1.0, 3, 1)
    steps = runs.read().attempt(episode.key, 1).steps()
    assert "there is no tool 'abacus'" in steps[0].results[0]


KEY = EpisodeKey(phase="eval", round=0, task="task-0", sample=0)
MODEL = {"name": "none", "base_url": "http://127.0.0.1:9/v1"}


@asynccontextmanager
async def inline(
    folder: Path, env: str, sink: EventSink | None = None, **limits: float
) -> AsyncIterator[tuple[InlineBackend, Order]]:
    """A backend, and the order for an episode whose agent answers at once."""
    (folder / "run.json").write_text("{}")
    agent = "tests.rollout.parts:AnsweringAgent"
    spec = EpisodeSpec.model_validate({"env": env, "agent": agent, "model": MODEL, "limits": limits})
    definition = Definition.of(spec)
    async with InlineBackend(WorkerSetup(storage=str(folder)), sink=sink) as backend:
        backend.define(definition)
        yield backend, Order(key=KEY, attempt=1, task=questions(1)[0], spec=definition.digest)


CLINGING = "tests.rollout.parts:ClingingEnv"
"""An environment that never lets go."""


@pytest.mark.parametrize("why", [None, EvaluatorError("it took too long")], ids=["unwanted", "watchdog"])
async def test_a_stop_while_it_is_closed_takes_no_score_away(tmp_path: Path, why: DeskrollError | None) -> None:
    parts.ClingingEnv.closing = 0
    async with inline(tmp_path, CLINGING) as (backend, order):
        work = asyncio.create_task(backend.run(order))
        await until(lambda: parts.ClingingEnv.closing, "it is being closed")
        backend.stop(KEY, 1, why)
        episode = await work
    assert (episode.stop, episode.score.value, episode.failure) == (StopReason.ANSWER, 1.0, None)


@pytest.mark.parametrize("why", [None, EvaluatorError("it took too long")], ids=["unwanted", "watchdog"])
async def test_one_that_is_stopped_before_it_begins_is_written_down_as_any_other(
    tmp_path: Path, why: DeskrollError | None
) -> None:
    async with inline(tmp_path, "math") as (backend, order):
        work = asyncio.create_task(backend.run(order))
        while not backend.workers()[0].vitals.running:
            await asyncio.sleep(0)
        backend.stop(KEY, 1, why)
        episode = await work
    assert episode.score.value is None
    assert (episode.failure.failure_class if episode.failure else None) == ("evaluator" if why else "cancelled")


async def test_closing_has_a_limit_of_its_own_and_says_when_it_was_cut(tmp_path: Path) -> None:
    sink = Noted()
    async with inline(tmp_path, CLINGING, sink, close_timeout=0.1) as (backend, order):
        episode = await backend.run(order)
    assert (episode.score.value, episode.failure) == (1.0, None)
    (event,) = [each for each in sink.events if isinstance(each, EpisodeUnclosed)]
    assert (event.key.task, event.attempt) == ("task-0", 1)
    assert event.reason == "closing it did not end within 0.1 s"


async def test_waiting_for_its_turn_is_no_time_in_a_phase() -> None:
    """Else the watchdog would take it for the silence of whoever is asked then."""
    hub = EventHub(str, enabled=False)
    state, live = RunState(hub), LiveAttempt(Order(key=KEY, attempt=1, task=questions(1)[0]), hub)
    hub.emit(AttemptStarted(key=KEY, attempt=1))

    def activity() -> Activity:
        (found,) = state.activities({os.getpid(): running_time()})
        return found

    live.enter(Stage.MODEL)
    with live.waiting():
        since = activity().since
        await until(lambda: activity().since > since + 0.05, "its time stands still")
        with live.waiting():
            held = activity().seconds
        assert activity().seconds == held
    assert activity().seconds < held + 0.05
    live.enter(Stage.ACT)
    await until(lambda: activity().seconds > 0.05, "its time goes on")
