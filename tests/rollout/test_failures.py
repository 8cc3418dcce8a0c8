"""Whose fault it was: for each class of failure, what is tried again, what is scored, what the report says of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from deskroll.errors import BackendLost, DeathCause, FailureClass, ModelError, StoreError
from deskroll.models.scripted import ScriptedServer
from deskroll.report.results import Results
from deskroll.rollout.session import Session
from deskroll.store import AttemptWriter
from deskroll.store.journal import Failed
from deskroll.types import Episode, Stage, StopReason
from tests.models.servers import said
from tests.rollout.conftest import ANSWER, CALCULATE, CLICK, Runs, questions, script, until

FAILING = "tests.rollout.parts:FailingEnv"
ODD = "tests.rollout.parts:OddEnv"
ONE_BY_ONE = {"env": "tests.rollout.parts:DyingEnv", "provider": "sim", "num_rollouts": 1}
RETRIES = {"model": 1, "desktop": 1, "setup": 1, "evaluator": 1, "backoff": 0.01}

ROWS = [
    # what fails,                                          whose fault,            score, attempts
    ({"agent": "tests.rollout.parts:BrokenAgent"}, {}, FailureClass.AGENT, 0.0, 1),
    ({"agent": "tests.rollout.parts:ForsakenAgent"}, {}, FailureClass.MODEL, None, 2),
    ({"env": FAILING}, {"fails": "desktop"}, FailureClass.DESKTOP, None, 2),
    ({"env": FAILING}, {"fails": "wedged"}, FailureClass.DESKTOP, None, 2),
    (ONE_BY_ONE, {}, FailureClass.AGENT, 0.0, 2),
    (ONE_BY_ONE, {"cause": "unknown"}, FailureClass.DESKTOP, None, 2),
    (ONE_BY_ONE, {"cause": "outside"}, FailureClass.DESKTOP, None, 2),
    ({"agent": "tests.rollout.parts:BabblingAgent"}, {}, FailureClass.AGENT, 0.0, 1),
    ({"agent": "tests.rollout.parts:LeavingAgent"}, {}, FailureClass.AGENT, 0.0, 1),
    ({"agent": "tests.rollout.parts:LeavingAgent", "backend": "process"}, {}, FailureClass.AGENT, 0.0, 1),
    ({"agent": "tests.rollout.parts:InterruptingAgent", "backend": "process"}, {}, FailureClass.AGENT, 0.0, 1),
    ({"agent": "tests.rollout.parts:WordyAgent"}, {}, FailureClass.AGENT, 0.0, 1),
    ({"agent": "tests.rollout.parts:SilentAgent"}, {}, FailureClass.AGENT, 0.0, 1),
    ({"env": ODD}, {"odd": "tools"}, FailureClass.ENV, None, 2),
    ({"env": ODD}, {"odd": "decode"}, FailureClass.ENV, None, 2),
    ({"env": ODD}, {"odd": "nan"}, FailureClass.EVALUATOR, None, 2),
    ({"env": ODD, "backend": "process"}, {"odd": "float"}, FailureClass.EVALUATOR, None, 2),
    ({"env": FAILING}, {"fails": "setup"}, FailureClass.SETUP, None, 2),
    ({"env": FAILING}, {"fails": "bug"}, FailureClass.ENV, None, 2),
    ({"env": "tests.rollout.parts:BuggyDesktopEnv", "provider": "sim"}, {}, FailureClass.ENV, None, 2),
    ({"env": FAILING}, {"fails": "score"}, FailureClass.EVALUATOR, None, 2),
    ({"env": "tests.rollout.parts:CrashingEnv", "backend": "process"}, {"crash": "exit"}, FailureClass.WORKER, None, 2),
]
IDS = [
    "agent", "model", "desktop", "wedged", "died twice", "died, nobody knows why", "killed twice", "babble",
    "exit", "exit of a worker", "interrupt", "no action", "no decision",
    "bad tools", "bad decode", "nan", "no score", "setup", "bug", "bug on a desktop", "evaluator", "worker",
]  # fmt: skip


@pytest.mark.parametrize(("settings", "task", "blamed", "score", "attempts"), ROWS, ids=IDS)
async def test_each_class_of_failure(
    runs: Runs, settings: dict[str, Any], task: dict[str, str], blamed: FailureClass, score: float | None, attempts: int
) -> None:
    alike = "agent" in settings or "provider" in settings  # then every task fails, not only the first
    tasks = questions(3, **task) if alike else [*questions(1, **task), *questions(3)[1:]]
    say = script(CLICK, ANSWER) if settings.get("provider") else script(CALCULATE, ANSWER)
    await runs.run(say, tasks, **settings, retries=RETRIES, workers=1)
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


@pytest.mark.parametrize("agent", ["IdleAgent", "PuzzledAgent"])
async def test_an_agent_that_decides_nothing_comes_to_its_last_turn(runs: Runs, agent: str) -> None:
    limits = {"max_turns": 12}
    outcomes = await runs.run(script(ANSWER), questions(2), agent=f"tests.rollout.parts:{agent}", limits=limits)
    assert [(each.stop, each.steps, each.score.value) for each in outcomes] == [(StopReason.MAX_TURNS, 12, 0.0)] * 2


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
    download = {"files": [{"url": "http://127.0.0.1:9/x", "path": "/tmp/x"}]}
    tasks = questions(1, config=[{"type": "download", "parameters": download}])
    (outcome,) = await runs.run(script(ANSWER), tasks, env="osworld", provider="sim", num_vms=1, retries={"setup": 2},
                                env_options={"allow_private_downloads": True})  # fmt: skip
    run = runs.read()
    desktops = [each.episode.desktop for each in run.records(Failed)] + [outcome.desktop]
    assert len(set(desktops)) == 3
    assert outcome.failure is not None
    assert "could not be fetched" in outcome.failure.message


@pytest.mark.parametrize("backend", ["inline", "process"])
async def test_an_environment_that_cannot_be_closed_costs_nobody_anything(
    runs: Runs, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "deskroll")
    tasks = [*questions(1, odd="close"), *questions(3)[1:]]
    outcomes = await runs.run(script(ANSWER), tasks, env=ODD, backend=backend)
    assert [(each.score.value, each.attempt) for each in outcomes] == [(1.0, 1)] * 3
    assert caplog.text.count("could not be closed") == 1, "a worker's last words are heard"


async def test_desktops_that_die_at_the_same_time_die_of_their_host(runs: Runs) -> None:
    """Whatever each of them says of itself: two deaths of each, and no agent is blamed."""
    outcomes = await runs.run(
        script(CLICK, ANSWER), questions(3, together=3), env="tests.rollout.parts:DyingEnv", provider="sim",
        num_vms=3, num_rollouts=3, retries={**RETRIES, "desktop": 2},
    )  # fmt: skip
    assert [(each.score.value, each.attempt) for each in outcomes] == [(None, 3)] * 3
    failures = [each.episode.failure for each in runs.read().records(Failed)]
    assert {failure and failure.cause for failure in failures} == {DeathCause.OUTSIDE}


async def test_the_step_in_which_a_desktop_died_is_kept(runs: Runs) -> None:
    (outcome,) = await runs.run(
        script(CLICK, ANSWER), questions(1), env="tests.rollout.parts:DyingEnv", provider="sim", retries=RETRIES
    )
    (step,) = runs.read().attempt(outcome.key, outcome.attempt).steps()
    assert step.completion is not None
    assert (outcome.actions, outcome.usage.calls) == (1, 1)


async def test_what_cannot_be_written_down_is_nobodys_zero(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that fails in the middle of the agent's turn stops the run; nothing is scored by it."""

    def full(self: AttemptWriter, stored: bytes) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(AttemptWriter, "message", full)
    with pytest.raises(StoreError, match="the disk is full"):
        await runs.run(script(ANSWER), questions(2))
    assert runs.read().outcomes() == []


async def test_waiting_for_a_model_slot_takes_none_of_the_episodes_time(runs: Runs) -> None:
    outcomes = await runs.run(
        script(ANSWER, latency=0.3), questions(8), num_rollouts=8, model={"max_in_flight": 1}, limits={"max_time": 1.0}
    )
    assert [(each.stop, each.score.value) for each in outcomes] == [("answer", 1.0)] * 8


async def test_a_server_that_answers_nobody_is_not_the_agents_time_limit(runs: Runs) -> None:
    (outcome,) = await runs.run(
        script(ANSWER, latency=3600.0), questions(1), limits={"max_time": 0.5}, retries={"model": 0}
    )
    assert outcome.failure is not None
    assert (outcome.failure.failure_class, outcome.score.value) == (FailureClass.MODEL, None)
    assert "silent" in outcome.failure.message


async def test_a_silent_server_is_not_the_time_limit_of_an_agent_that_asks_it_again_and_again(runs: Runs) -> None:
    (outcome,) = await runs.run(
        script(ANSWER, latency=3600.0), questions(1), agent="tests.rollout.parts:ImpatientAgent",
        limits={"max_time": 2.0}, retries={"model": 0},
    )  # fmt: skip
    assert outcome.failure is not None
    assert (outcome.failure.failure_class, outcome.score.value) == (FailureClass.MODEL, None)


async def test_what_is_known_of_a_result_stays_however_the_environment_is_closed(runs: Runs) -> None:
    env = "tests.rollout.parts:LeavingEnv"
    (outcome,) = await runs.run(script(ANSWER), questions(1), env=env, backend="process", workers=1)
    assert (outcome.failure, outcome.score.value) == (None, 1.0)


@pytest.mark.parametrize(("agent", "latency"), [("SlowAgent", 0.0), ("PonderingAgent", 0.0), ("HesitantAgent", 3600.0)])
async def test_an_agent_that_takes_its_time_is_no_silence_of_the_model(runs: Runs, agent: str, latency: float) -> None:
    (outcome,) = await runs.run(
        script(ANSWER, latency=latency), questions(1), agent=f"tests.rollout.parts:{agent}", limits={"max_time": 0.5}
    )
    assert (outcome.stop, outcome.failure, outcome.score.value) == (StopReason.MAX_TIME, None, 0.0)


async def test_the_silence_that_another_episode_waits_through_is_not_this_ones(runs: Runs) -> None:
    """They share a client: one waits for its first answer, the other has had it and takes its time."""
    async with _silent_for("(0)") as url:
        config = runs.config(
            None, model={"base_url": url}, agent="tests.rollout.parts:PonderingAgent", limits={"max_time": 2.0},
            retries={"model": 0}, num_rollouts=2,
        )  # fmt: skip
        async with Session.open(config, questions(2)) as session:
            waited, pondered = await session.run()
    assert (pondered.stop, pondered.failure) == (StopReason.MAX_TIME, None)
    assert waited.failure is not None
    assert waited.failure.failure_class is FailureClass.MODEL


@asynccontextmanager
async def _silent_for(text: str) -> AsyncIterator[str]:
    """A server that answers what holds a text never, and everything else at once."""
    over = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        if text in await request.text():
            await over.wait()
        return web.json_response(said("42"))

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    async with TestServer(app) as server:
        try:
            yield str(server.make_url("/v1"))
        finally:
            over.set()


async def test_a_key_that_is_refused_in_the_middle_stops_the_run_and_spends_nothing_more(runs: Runs) -> None:
    async with ScriptedServer(script(ANSWER), token="right") as server:
        config = runs.config(server, model={"api_key": "wrong"}, num_rollouts=2)
        with pytest.raises(ModelError, match="the run stops here: mend that, and resume it"):
            async with Session.open(config, questions(50)) as session:
                await session.run()
    assert runs.read().outcomes() == []


@pytest.mark.parametrize("status", [402, 429])
async def test_an_account_without_quota_stops_the_run_at_its_first_answer(runs: Runs, status: int) -> None:
    async with _refusing(status, {"message": "pay first", "type": "insufficient_quota"}) as (url, asked):
        config = runs.config(None, model={"base_url": url}, num_rollouts=1)
        with pytest.raises(ModelError, match=r"no quota left.*the run stops here"):
            async with Session.open(config, questions(50)) as session:
                await session.run()
    assert len(asked) == 1
    assert runs.read().outcomes() == []


async def test_one_request_that_is_refused_costs_its_own_episode_only(runs: Runs) -> None:
    """A gateway may answer 403 to one prompt that it has flagged: no reason to stop, and none to blame the key."""
    async with _moderated("(1)") as url:
        config = runs.config(None, model={"base_url": url, "api_key": "right"}, retries=RETRIES)
        async with Session.open(config, questions(6)) as session:
            outcomes = await session.run()
    assert [each.score.value for each in outcomes] == [1.0, None, *[1.0] * 4]
    failure = outcomes[1].failure
    assert failure is not None
    assert failure.failure_class is FailureClass.MODEL
    assert "status 403: it was flagged (if every request is refused, check the key and the model)" in failure.message


@asynccontextmanager
async def _moderated(flagged: str) -> AsyncIterator[str]:
    """A server that refuses what holds a text, and answers everything else."""

    async def answer(request: web.Request) -> web.Response:
        if flagged in await request.text():
            return web.json_response({"error": {"message": "it was flagged"}}, status=403)
        return web.json_response(said("42"))

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/v1"))


@asynccontextmanager
async def _refusing(status: int, error: dict[str, str]) -> AsyncIterator[tuple[str, list[str]]]:
    """A server that refuses everybody, and what it was asked."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(await request.text())
        return web.json_response({"error": error}, status=status)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/v1")), asked


async def test_a_model_slot_that_is_waited_for_is_no_silence_of_the_model(runs: Runs) -> None:
    """The time of whoever waits for one stands still, also for the watchdog; that of whoever asks goes on."""
    async with runs.open(script(ANSWER, latency=3600.0), questions(2), model={"max_in_flight": 1}) as session:
        work = asyncio.create_task(session.run())

        def apart() -> float:
            since = [each.since for each in session.status().activities if each.stage is Stage.MODEL]
            return max(since) - min(since) if len(since) == 2 else 0.0

        await until(lambda: apart() > 1.0, "only one of them is silent")
        session.stop(now=True)
        await work


async def test_a_server_that_fails_for_everybody_stops_the_run(runs: Runs) -> None:
    broken = script(ANSWER, faults={"rate": 1.0, "kinds": [500]})
    with pytest.raises(ModelError, match="attempts in a row failed by the model's server"):
        await runs.run(broken, questions(100), model={"retries": 0}, num_rollouts=4)
    assert len(await runs.run(script(ANSWER), questions(100), resume=True)) == 100


@pytest.mark.parametrize("backend", ["inline", "process"])
async def test_a_stop_that_comes_at_any_moment_is_answered(runs: Runs, backend: str) -> None:
    """Also one that comes before the attempt has begun, and one that comes while it is being written."""
    for n in range(12):
        async with runs.open(script(ANSWER), questions(20), backend=backend, run_id=f"run-{n}", workers=1) as session:
            work = asyncio.create_task(session.run())
            await until(lambda goal=n, now=session: now.state.standing().done >= goal, "some are done")
            session.stop(now=True)
            await asyncio.wait_for(work, 20)
            assert session.engine.running == {}


async def test_what_earlier_starts_learned_of_an_episode_is_not_forgotten(runs: Runs) -> None:
    """A task that took its worker with it runs alone after a resume, too."""
    tasks = questions(1, crash="exit")
    settings = {"env": "tests.rollout.parts:CrashingEnv", "backend": "process", "workers": 1}
    async with runs.open(script(ANSWER), tasks, **settings) as session:
        session.engine.on_judged.append(lambda episode, again: session.stop())
        assert await session.run() == [], "it crashed once, and then the run was stopped"
    (outcome,) = await runs.run(script(ANSWER), tasks, resume=True, **settings)
    assert (outcome.attempt, outcome.score.value) == (2, None)


async def test_a_killed_zygote_stops_the_run_and_seals_nothing(runs: Runs) -> None:
    async with runs.open(script(ANSWER, latency=0.2), questions(60), backend="process", workers=2) as session:
        work = asyncio.create_task(session.run())
        await until(lambda: session.state.standing().done >= 2, "it is under way")
        psutil.Process(psutil.Process(session.status().workers[0].pid).ppid()).kill()
        with pytest.raises(BackendLost, match="was killed, and all workers with it"):
            await work
    assert all(each.score.value == 1.0 for each in runs.read().outcomes())
    assert len(await runs.run(script(ANSWER), questions(60), resume=True)) == 60
