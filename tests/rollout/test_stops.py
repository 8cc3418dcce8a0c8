"""Clocks that jump, and processes that are stopped for a while: nothing of that is charged to an agent."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from deskroll.errors import DeskrollError
from deskroll.rollout.asking import ask
from deskroll.rollout.status import RunStatus
from deskroll.store import Run
from deskroll.types import Stage, StopReason
from tests.rollout.conftest import CLICK, INFEASIBLE, Runs, questions, script, until
from tests.waiting import wait_until

JUMPING_CLOCK = Path(__file__).parent.parent / "jumping_clock"
TURNS = """
replies:
  - turns:
      - {tools: [{name: computer, arguments: {action_type: CLICK, parameters: {x: 5, y: 5}}}]}
      - {tools: [{name: computer, arguments: {action_type: MOVE_TO, parameters: {x: 9, y: 9}}}]}
      - {tools: [{name: computer, arguments: {action_type: CLICK, parameters: {x: 9, y: 9}}}]}
      - {tools: [{name: computer, arguments: {action_type: FAIL}}]}
"""
EPISODES = 3
FAIL = {"tools": [{"name": "computer", "arguments": {"action_type": "FAIL"}}]}


class Started:
    """A run in processes of its own, on simulated desktops that take a second or two for each action."""

    def __init__(self, folder: Path, env: dict[str, str], **settings: object) -> None:
        self._folder, self._env = folder, env
        tasks = [
            {"id": f"t{n}", "question": "Is it possible?", "evaluator": {"func": "infeasible"}} for n in range(EPISODES)
        ]
        (folder / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
        (folder / "script.yaml").write_text(TURNS)
        screen = {"observation_type": "screenshot", "screen_width": 320, "screen_height": 200}
        (folder / "run.yaml").write_text(
            json.dumps({"env_options": screen, "num_vms": EPISODES, "num_rollouts": EPISODES, "workers": 2, **settings})
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        """Its coordinator."""
        command = [sys.executable, "-m", "deskroll", "run", "tasks.jsonl", "--config", "run.yaml"]
        command += ["--model", "scripted:script.yaml", "--set", "run_id=run"]
        log = self._folder / "log.txt"
        with (
            log.open("w") as out,
            subprocess.Popen(command, cwd=self._folder, env=self._env, stdout=out, stderr=out, text=True) as process,
        ):
            try:
                yield process
                assert process.wait(120) == 0, log.read_text()
            finally:
                process.kill()

    def status(self) -> RunStatus | None:
        for path in Path(self._env["DESKROLL_RUNTIME_DIR"], "runs").glob("*.sock"):
            with contextlib.suppress(DeskrollError):
                return asyncio.run(ask(path))
        return None

    def all_act(self, turn: int = 0) -> bool:
        """Whether every episode waits for its desktop, in that turn or a later one."""
        status = self.status()
        acting = [] if status is None else [each for each in status.activities if each.stage is Stage.ACT]
        return len([each for each in acting if each.turn >= turn]) == EPISODES

    def scores(self) -> list[tuple[float | None, int]]:
        """The score of each outcome, and which attempt it was."""
        return [(each.score.value, each.attempt) for each in Run.open(self._folder / "results" / "run").outcomes()]


def test_a_clock_that_jumps_stops_nothing(tmp_path: Path, env: dict[str, str]) -> None:
    clock = tmp_path / "clock"
    clock.write_text("0")
    path = os.pathsep.join(filter(None, [str(JUMPING_CLOCK), env.get("PYTHONPATH")]))
    jumping = {"PYTHONPATH": path, "JUMPING_CLOCK": str(clock)}
    run = Started(tmp_path, env | jumping, provider="sim", provider_options={"step": "2"})
    with run.running():
        for turn, step in enumerate(("3600", "-7200")):
            wait_until(functools.partial(run.all_act, turn), "all of them act")
            clock.write_text(step)
    assert run.scores() == [(1.0, 1)] * EPISODES
    (first, *_) = Run.open(tmp_path / "results" / "run").outcomes()
    assert first.ended_at < first.started_at, "it did jump"


def test_a_coordinator_that_was_stopped_judges_by_what_arrives_then(tmp_path: Path, env: dict[str, str]) -> None:
    socket = f"unix:{env['DESKROLL_RUNTIME_DIR']}/p.sock"
    serve = [sys.executable, "-m", "deskroll", "pool", "serve", "--provider", "sim", "--num-vms", str(EPISODES)]
    serve += ["-o", "step=1", "--listen", socket]
    run = Started(tmp_path, env, pool=socket, watchdog={"act_timeout": 5.0}, hang_after=3.0)
    with subprocess.Popen(serve, env=env, stdout=subprocess.PIPE, text=True) as pool:
        try:
            assert pool.stdout is not None
            assert pool.stdout.readline().startswith("pool of")
            with run.running() as coordinator:
                wait_until(run.all_act, "all of them act")
                _stop_for(6.0, coordinator.pid)
        finally:
            pool.kill()
    assert run.scores() == [(1.0, 1)] * EPISODES
    assert "hung" not in (tmp_path / "log.txt").read_text()


async def test_time_in_which_workers_are_stopped_is_not_the_agents(runs: Runs) -> None:
    """They are stopped for longer than anything may take: the agent's turns, an answer of the model's, a phase."""
    tasks = questions(4, evaluator=INFEASIBLE)
    async with runs.open(
        script(CLICK, CLICK, FAIL, latency=0.5), tasks, env="osworld", provider="sim", num_vms=4,
        provider_options={"step": "0.5"}, env_options={"observation_type": "screenshot"}, backend="process", workers=2,
        limits={"max_time": 6.0},
        model={"timeout": 5.0, "retries": 0}, watchdog={"act_timeout": 5.0, "stalled_after": 5.0},
    ) as session:  # fmt: skip
        work = asyncio.create_task(session.run())
        await until(lambda: len(session.status().activities) == 4, "all of them run")
        await asyncio.to_thread(_stop_for, 7.0, *[each.pid for each in session.status().workers])
        outcomes = await work
    assert [(each.score.value, each.attempt, each.stop) for each in outcomes] == [(1.0, 1, StopReason.FAIL)] * 4


def _stop_for(seconds: float, *pids: int) -> None:
    """Stop processes for a time that is longer than something allows for."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
