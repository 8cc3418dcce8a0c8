"""A budget for a whole run: when it is used up nothing new starts, what runs ends, and a raised one goes on."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from deskroll.errors import ModelError
from deskroll.rollout.session import Session
from deskroll.store import CloseReason
from deskroll.store.journal import Failed
from tests.commands import Commands
from tests.models.servers import said
from tests.rollout.conftest import ANSWER, Runs, questions, script

PRICED = {"price": {"input": 0, "output": 1_000_000}}
"""A dollar for each token of an answer: `42` has a few, always as many."""


async def test_cost_over_resumes(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    tasks = questions(8)

    async def run(limit: float, *, resume: bool) -> int:
        episodes = await runs.run(
            script(ANSWER), tasks, resume=resume, model=PRICED, num_rollouts=1, limits={"run_cost_usd": limit}
        )
        return len(episodes)

    (first,) = await runs.run(script(ANSWER), tasks[:1], run_id="first", model=PRICED)
    cost = first.usage.cost_usd
    assert cost
    with caplog.at_level(logging.WARNING, "deskroll"):
        assert await run(2.5 * cost, resume=False) == 3, "the one that used it up came to its end"
    assert "limits.run_cost_usd is used up" in caplog.text
    closed = runs.read().index.closed
    assert closed is not None
    assert (closed.why, "run_cost_usd" in closed.note) == (CloseReason.STOPPED, True)
    assert await run(2.5 * cost, resume=True) == 3, "what earlier starts spent counts"
    assert await run(5.0 * cost, resume=True) == 5
    assert await run(50.0 * cost, resume=True) == 8
    assert all(entry.attempts == 1 for entry in runs.read().index.entries.values())


async def test_failed_attempts_cost_too(runs: Runs) -> None:
    env = "tests.rollout.parts:FailingEnv"
    fields = {"model": PRICED, "env": env, "retries": {"evaluator": 9, "backoff": 0.0}}
    tasks = questions(1, fails="score")
    (first,) = await runs.run(script(ANSWER), tasks, run_id="first", model=PRICED, env=env, retries={"evaluator": 0})
    cost = first.usage.cost_usd
    assert cost
    assert await runs.run(script(ANSWER), tasks, limits={"run_cost_usd": 2.5 * cost}, **fields) == []
    assert runs.read().index.attempts(first.key) == 3


async def test_no_warning_where_nothing_is_left_to_start(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    fields = {"model": PRICED, "num_rollouts": 2, "limits": {"run_cost_usd": 0.5}}
    with caplog.at_level(logging.WARNING, "deskroll"):
        for resume in (False, True):
            async with runs.open(script(ANSWER), questions(2), resume=resume, **fields) as session:
                assert len(await session.run()) == 2
                assert session.used_up == ""
        assert len(await runs.run(script(ANSWER), questions(2), run_id="timed", limits={"run_time": 30.0})) == 2
        over = await runs.run(script(ANSWER), questions(2), resume=True, run_id="timed", limits={"run_time": 1e-6})
        assert len(over) == 2
    assert "used up" not in caplog.text
    closed = runs.read().index.closed
    assert closed is not None
    assert closed.why is CloseReason.FINISHED


@pytest.mark.parametrize("backend", ["inline", "process"])
async def test_what_was_spent_when_an_error_ended_the_run_counts(runs: Runs, backend: str) -> None:
    """Its key is refused to one episode, when three others have had an answer and wait for the next."""
    fields = {"model": PRICED, "num_rollouts": 4, "backend": backend, "workers": 1}
    refusing = Spending(refused="(0)", paid=3)
    async with refusing.served() as url:
        with pytest.raises(ModelError, match="the run stops here"):
            config = runs.config(None, **fields | {"model": {**PRICED, "base_url": url}})
            async with Session.open(config, questions(4)) as session:
                await session.run()
    run = runs.read()
    spent = {each.episode.key.task: each.episode.usage for each in run.records(Failed)}
    assert {name: usage.calls for name, usage in spent.items()} == {"task-0": 0, "task-1": 1, "task-2": 1, "task-3": 1}
    cost = spent["task-1"].cost_usd
    assert cost
    async with runs.open(
        script(ANSWER), questions(4), resume=True, **fields, limits={"run_cost_usd": 2.5 * cost}
    ) as session:
        assert await session.run() == [], "what they had spent is more than that"
        assert "limits.run_cost_usd is used up" in session.used_up


class Spending:
    """A model that asks each episode for a calculation, and then falls silent; one is refused once the others paid."""

    def __init__(self, refused: str, paid: int) -> None:
        self._refused = refused
        self._left = paid
        self._all_paid = asyncio.Event()
        self._over = asyncio.Event()

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """Where it answers."""
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._answer)
        async with TestServer(app) as server:
            try:
                yield str(server.make_url("/v1"))
            finally:
                self._over.set()

    async def _answer(self, request: web.Request) -> web.Response:
        asked = await request.text()
        if self._refused in asked:
            await self._all_paid.wait()
            return web.json_response({"error": {"message": "no"}}, status=401)
        if '"role":"tool"' in asked:
            self._left -= 1
            if not self._left:
                self._all_paid.set()
            await self._over.wait()
        call = {"name": "calculator", "arguments": '{"expressions": ["6*7"]}'}
        message = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": call}]}
        return web.json_response(said(None, choices=[{"index": 0, "message": message, "finish_reason": "tool_calls"}]))


async def test_time(runs: Runs) -> None:
    tasks = questions(20)
    async with runs.open(script(ANSWER, latency=0.3), tasks, num_rollouts=1, limits={"run_time": 0.5}) as session:
        done = await session.run()
        assert "limits.run_time is used up" in session.used_up
        assert session.status().used_up == session.used_up
    assert len(done) < 20
    assert len(done) == len(runs.read().index.entries), "what had begun came to its end"
    again = await runs.run(script(ANSWER), tasks, resume=True, limits={"run_time": 0.5})
    assert len(again) == len(done), "the time of earlier starts counts"
    assert len(await runs.run(script(ANSWER), tasks, resume=True, limits={"run_time": 1000.0})) == 20


async def test_nothing_is_booted_where_it_is_used_up(runs: Runs) -> None:
    tasks = questions(2, evaluator={"func": "infeasible"})
    fields = {"env": "osworld", "agent": "noop", "provider": "sim", "limits": {"run_time": 1e-6}}
    assert await runs.run(script(ANSWER), tasks, **fields) == []
    before = len(runs.read().desktop_changes())
    assert await runs.run(script(ANSWER), tasks, resume=True, **fields) == []
    assert len(runs.read().desktop_changes()) == before


def test_on_the_command_line(deskroll: Commands, env: dict[str, str], tmp_path: Path) -> None:
    lines = [{"id": f"m{n}", "question": "6*7?", "answer": "42"} for n in range(4)]
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (tmp_path / "s.yaml").write_text('replies: [{turns: [{text: "42"}]}]\n')
    command = ["run", "t.jsonl", "--env", "math", "--model", "scripted:s.yaml", "--num-rollouts", "1"]
    command += ["--set", "backend=inline", "--set", "limits.run_cost_usd=0.5", "--run-id", "one"]
    unpriced = deskroll(*command, cwd=tmp_path, env=env)
    assert unpriced.code == 2
    assert "is not known: set model.price, too" in unpriced.err
    command += ["--set", "model.price={input: 0, output: 1000000}"]
    assert "0.5 USD, over all starts" in deskroll(*command, "--dry-run", cwd=tmp_path, env=env).out
    ended = deskroll(*command, cwd=tmp_path, env=env)
    assert ended.code == 1, ended.err
    assert "of 0.5 USD were spent: nothing more is started" in ended.err
    (hint,) = [line for line in ended.err.splitlines() if line.startswith("go on with:")]
    assert f"run --resume {tmp_path}/results/one --set limits.run_cost_usd=" in hint
    assert "stopped: 1 of 4 episodes" in ended.out
    (flags,) = [hint.split(" run ")[1].split()]
    assert deskroll("run", *flags[:-1], "limits.run_cost_usd=1000", cwd=tmp_path, env=env).code == 0
