"""Nothing is lost, whatever is killed: workers, desktops and the coordinator, at random moments."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from deskroll.desktops.base import Address
from deskroll.errors import DeskrollError
from deskroll.rollout.asking import ask
from deskroll.rollout.status import RunStatus
from deskroll.store import Run
from deskroll.store.journal import Opened, Reopened, Sealed, Started
from deskroll.types import Episode
from tests.desktops.conftest import host_processes, leftovers
from tests.waiting import wait_until

REPLIES = """
latency: [0.02, 0.3]
replies:
  - turns:
      - {tools: [{name: computer, arguments: {action_type: CLICK, parameters: {x: 5, y: 5}}}]}
      - {tools: [{name: computer, arguments: {action_type: MOVE_TO, parameters: {x: 9, y: 9}}}]}
      - {tools: [{name: computer, arguments: {action_type: FAIL}}]}
"""
KILLS_OF_THE_COORDINATOR = 3


class Storm:
    """A run that is killed again and again, and resumed each time."""

    def __init__(self, folder: Path, episodes: int, seed: int, settings: dict[str, Any]) -> None:
        self.dice = random.Random(seed)
        self.folder = folder
        self.episodes = episodes
        self.killed: Counter[str] = Counter()
        self.process: subprocess.Popen[bytes] | None = None
        (folder / "tasks.jsonl").write_text(
            "".join(
                json.dumps(
                    {"id": f"t/{n} ü", "question": f"Is it possible? ({n})", "evaluator": {"func": "infeasible"}}
                )
                + "\n"
                for n in range(episodes)
            )
        )
        (folder / "script.yaml").write_text(REPLIES)
        (folder / "run.yaml").write_text(json.dumps(settings))

    @property
    def root(self) -> Path:
        return self.folder / "results" / "run"

    def start(self) -> subprocess.Popen[bytes]:
        """The coordinator: for the first time, or again."""
        command = [sys.executable, "-m", "deskroll", "run"]
        if (self.root / "run.json").exists():
            command += ["--resume", str(self.root)]
        else:
            command += ["tasks.jsonl", "--config", "run.yaml", "--model", "scripted:script.yaml", "--set", "run_id=run"]
        log = (self.folder / "log.txt").open("ab")
        with log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        return self.process

    @contextlib.contextmanager
    def ended(self) -> Iterator[None]:
        """Whatever the test finds, its run does not go on after it."""
        try:
            yield
        finally:
            if self.process is not None:
                self.process.kill()
                self.process.wait()

    def log(self) -> str:
        return (self.folder / "log.txt").read_text()[-3000:]

    def rage(self) -> None:
        """Kill until the coordinator was killed often enough, then let the run come to its end."""
        for kill in range(KILLS_OF_THE_COORDINATOR):
            process = self.start()
            # At a moment that depends on how far it is, so that each start does some of the work.
            goal = self.episodes * (kill + 1) // (KILLS_OF_THE_COORDINATOR + 1)
            self._harass(process, goal - self.dice.randrange(max(1, self.episodes // 20)))
            process.kill()
            process.wait()
            self.killed["coordinator"] += 1
        process = self.start()
        self._harass(process, self.episodes * 19 // 20, last=True)
        assert process.wait(120) in (0, 1), self.log()

    def _harass(self, process: subprocess.Popen[bytes], goal: int, *, last: bool = False) -> None:
        """Kill workers and desktops until so many outcomes are known; the last start may be faster than we look."""
        deadline = time.monotonic() + 120
        while (status := self._status(process.pid)) is None or status.standing.done < goal:
            if last and process.poll() is not None:
                return
            assert process.poll() is None, f"it ended by itself: {self.log()}"
            assert time.monotonic() < deadline, f"no progress: {status and status.standing}; {self.log()}"
            time.sleep(self.dice.uniform(0.1, 0.5))
            if status is not None:
                self._kill_something(status)

    def _status(self, pid: int) -> RunStatus | None:
        sockets = Path(os.environ["DESKROLL_RUNTIME_DIR"]) / "runs"
        for path in sockets.glob(f"run-{pid}.sock"):
            with contextlib.suppress(DeskrollError):
                return asyncio.run(ask(path))
        return None

    def _kill_something(self, status: RunStatus) -> None:
        what = self.dice.choices(["worker", "desktop", "nothing"], [1, 1, 4])[0]
        leased = [each.id for each in status.pool.desktops if each.state == "leased"] if status.pool else []
        # Whatever is to be killed may be gone by now, or not be there yet.
        with contextlib.suppress(psutil.Error, OSError, StopIteration, KeyError, AssertionError):
            if what == "worker" and status.workers:
                os.kill(self.dice.choice(status.workers).pid, signal.SIGKILL)
                self.killed["worker"] += 1
            elif what == "desktop" and leased and status.pool and status.pool.provider == "local":
                parts = host_processes(Address(id=self.dice.choice(leased), endpoint=""))
                parts[self.dice.choice(["Xvfb", "deskroll-guest", "first"])].kill()
                self.killed["desktop"] += 1

    def outcomes(self) -> list[Episode]:
        return Run.open(self.root).outcomes()


@contextlib.contextmanager
def no_process_left() -> Iterator[None]:
    """After the block, nothing that was started in it lives on."""
    yield

    def gone() -> bool:
        return not any(map(_is_of_ours, psutil.process_iter()))

    wait_until(gone, "every process that the runs started is gone")


def _is_of_ours(process: psutil.Process) -> bool:
    """Whether a process was started by a run of these tests."""
    try:
        ours = process.environ().get("DESKROLL_RUNTIME_DIR") == os.environ["DESKROLL_RUNTIME_DIR"]
        return ours and process.pid != os.getpid() and "deskroll" in " ".join(process.cmdline())
    except psutil.Error:
        return False


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("episodes", "settings"),
    [
        pytest.param(
            400,
            {
                "provider": "sim", "num_vms": 12, "num_rollouts": 24, "workers": 3,
                "provider_options": {"step_crashes": 0.02, "boot_fails": 0.05, "reset_fails": 0.05, "dies_idle": 0.05},
                "env_options": {"observation_type": "screenshot", "screen_width": 320, "screen_height": 200},
            },
            id="400 simulated",
        ),
        pytest.param(
            100,
            {
                "provider": "local", "num_vms": 3, "num_rollouts": 6, "workers": 2,
                "env_options": {
                    "observation_type": "screenshot", "screen_width": 640, "screen_height": 400,
                    "sleep_after_execution": 0.3,
                },
            },
            id="100 local",
        ),
    ],
)  # fmt: skip
def test_nothing_is_lost_whatever_is_killed(
    tmp_path: Path, runtime_folder: Path, episodes: int, settings: dict[str, Any]
) -> None:
    storm = Storm(
        tmp_path, episodes, seed=episodes, settings={**settings, "env": "osworld", "retries": {"backoff": 0.05}}
    )
    with no_process_left(), storm.ended():
        storm.rage()
        run = Run.open(storm.root)
        while any(each.score.value is None for each in run.outcomes()):
            # Not scored for want of a machine: that is an outcome, and a resume does just these again.
            unscored = {each.key for each in run.outcomes() if each.score.value is None}
            assert storm.start().wait(120) in (0, 1), storm.log()
            run = Run.open(storm.root)
            assert {each.key for each in run.records(Reopened)} >= unscored
    assert storm.killed["coordinator"] == KILLS_OF_THE_COORDINATOR
    assert storm.killed["worker"] >= 3, storm.killed
    assert settings["provider"] == "sim" or storm.killed["desktop"] >= 3, storm.killed
    _check(run, episodes)
    for desktop in {each.desktop for each in run.desktop_changes()}:
        assert leftovers(desktop, runtime_folder) == []
    assert list((runtime_folder / "runs").iterdir()) == []


def _check(run: Run, episodes: int) -> None:
    outcomes = run.outcomes()
    assert len(outcomes) == len({each.key for each in outcomes}) == episodes
    assert run.unfinished() == []
    assert {each.score.value for each in outcomes} <= {0.0, 1.0}
    blamed = [each for each in outcomes if each.score.value == 0.0]
    assert all(each.failure is not None and each.failure.kind == "desktop_lost" for each in blamed)
    # What the journal says, record by record: one outcome a key, unless it was taken back in between.
    sealed = Counter(each.episode.key for each in run.records(Sealed))
    reopened = Counter(each.key for each in run.records(Reopened))
    assert all(sealed[each.key] == 1 + reopened[each.key] for each in outcomes)
    attempts = [(each.key, each.attempt) for each in run.records(Started)]
    assert len(attempts) == len(set(attempts)), "an attempt's number was given twice"
    assert len(list(run.records(Opened))) > KILLS_OF_THE_COORDINATOR
    # Every folder can be read, also those that were cut off; those of the outcomes are whole, to the byte.
    assert run.verify() == []
    for each in outcomes:
        if each.failure is None:
            reader = run.attempt(each.key, each.attempt)
            assert len(reader.steps()) == each.steps
            assert reader.episode() == each
            assert reader.messages()
    for key, attempt in attempts:
        folder = run.attempt(key, attempt)
        with contextlib.suppress(DeskrollError):  # one that was never begun has no folder
            folder.steps()
            folder.messages()
    lines = [json.loads(line) for line in (Path(run.root) / "results.jsonl").read_text().splitlines()]
    assert len(lines) == episodes
