"""Storm: runs whose parts are killed, stopped and put on another clock at random, and resumed until all is done.

A deck holds blows, each a role and what is done to it; the seed decides their order and their moments. Every role that
a run has on this machine has its turn: coordinator, the parent of workers, workers, the parent of desktops, keepers,
and the parts of a desktop that no agent reaches. What must hold afterwards, `check_run` says.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from deskroll.desktops.base import Address
from deskroll.desktops.providers.local import places
from deskroll.errors import DeskrollError
from deskroll.rollout.asking import ask
from deskroll.rollout.status import RunStatus
from deskroll.store import Run
from deskroll.store.journal import Opened, Reopened, Sealed, Started
from tests.desktops.conftest import host_processes, leftovers

SOAK = int(os.environ.get("DESKROLL_SOAK", "0"))
"""How many decks are struck, by `make soak`; 0: a part of one."""
JUMPING_CLOCK = Path(__file__).parent.parent / "jumping_clock"
CLOCK_STEP_S = 3600.0
PATIENCE_S = 180.0
"""Without a new outcome for so long, a storm has found a run that hangs."""
_INSIDE = ("Xvfb", "openbox", "deskroll-guest", "first", "bwrap")
_ZYGOTES = {
    "zygote of workers": "deskroll.rollout.backends.worker:work",
    "zygote of desktops": "deskroll.desktops.providers.local.keeper:keep",
}


@dataclass(frozen=True)
class Blow:
    """One thing that is done to one part."""

    role: str
    how: str = "kill"
    """kill, stop (and let go on later), or step (of the clock that the run's processes read)."""
    seconds: float = 0.0
    """How long a part is stopped."""

    @property
    def name(self) -> str:
        return f"{self.how} {self.role}"


@dataclass
class Weather:
    """What a storm is made of."""

    settings: Mapping[str, Any]
    """Of `deskroll run`."""
    tasks: list[dict[str, Any]]
    """Of each run; a storm that outlasts a run begins another."""
    blows: list[Blow]
    script: str = ""
    """What the model says; none: the agent asks no model."""
    pace: tuple[float, float] = (0.05, 0.4)
    """Seconds between blows, at least and at most."""


@dataclass
class Storm:
    """Use `rage`, then `check`; whatever happens, `ended` leaves nothing running."""

    folder: Path
    weather: Weather
    dice: random.Random
    struck: Counter[str] = field(default_factory=Counter)
    run_ids: list[str] = field(default_factory=list)
    starts: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _stopped: dict[psutil.Process, float] = field(default_factory=dict)
    _clock_s: float = 0.0

    def __post_init__(self) -> None:
        self._write("tasks.jsonl", "".join(json.dumps(each) + "\n" for each in self.weather.tasks))
        self._write("run.yaml", json.dumps(dict(self.weather.settings)))
        self._write("script.yaml", self.weather.script)
        self._write("clock", "0")

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    @property
    def root(self) -> Path:
        return self.folder / "results" / self.run_ids[-1]

    @property
    def roots(self) -> list[Path]:
        return [self.folder / "results" / each for each in self.run_ids]

    def log(self) -> str:
        return (self.folder / "log.txt").read_text()[-3000:]

    @contextlib.contextmanager
    def ended(self) -> Iterator[None]:
        """Whatever the test finds, its run does not go on after it."""
        try:
            yield
        finally:
            self._let_go(everything=True)
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def rage(self) -> None:
        """Strike until the deck is empty, then let the last run come to its end."""
        deck = list(self.weather.blows)
        self.dice.shuffle(deck)
        while deck:
            self._begin_run()
            self._strike_through(deck)
        self._let_go(everything=True)
        assert self._process is not None
        self._process.wait(PATIENCE_S * 2)
        for root in self.roots:
            self._finish(root)

    def _finish(self, root: Path) -> None:
        """Resume a run until each of its episodes is scored: no machine is at fault any more."""
        for _ in range(8):
            if _is_scored(root):
                return
            self._start(root.name)
            assert self._process is not None
            assert self._process.wait(PATIENCE_S * 2) in (0, 1), self.log()

    def _begin_run(self) -> None:
        self.run_ids.append(f"run-{len(self.run_ids)}")
        self._start(self.run_ids[-1])

    def _strike_through(self, deck: list[Blow]) -> None:
        """Strike at one run until it is done, or the deck is empty; resume it whenever it has ended before that."""
        heard = time.monotonic()
        done = -1
        while deck:
            assert self._process is not None
            time.sleep(self.dice.uniform(*self.weather.pace))
            self._let_go()
            if self._process.poll() is not None:
                if self._process.returncode == 0:
                    return
                heard = time.monotonic()
                self._start(self.run_ids[-1])
            status = self._status(self._process.pid)
            if status is not None and status.standing.done != done:
                done, heard = status.standing.done, time.monotonic()
            assert time.monotonic() - heard < PATIENCE_S, f"no progress: {status and status.standing}; {self.log()}"
            if status is not None and status.in_flight:
                blow = self.dice.choice(deck)
                if self._strike(blow, status):
                    deck.remove(blow)
                    self.struck[blow.name] += 1

    def _start(self, run_id: str) -> None:
        """The coordinator of a run: for the first time, or again."""
        command = [sys.executable, "-m", "deskroll", "run"]
        root = self.folder / "results" / run_id
        if (root / "run.json").exists():
            command += ["--resume", str(root)]
        else:
            command += ["tasks.jsonl", "--config", "run.yaml", "--set", f"run_id={run_id}"]
            if self.weather.script:
                command += ["--model", "scripted:script.yaml"]
        with (self.folder / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, env=self._environment())
        self.starts += 1

    def _environment(self) -> dict[str, str]:
        """Where the deck steps the clock: one that a file moves, for the coordinator and its workers."""
        if not any(each.how == "step" for each in self.weather.blows):
            return dict(os.environ)
        path = os.pathsep.join(filter(None, [str(JUMPING_CLOCK), os.environ.get("PYTHONPATH")]))
        return {**os.environ, "PYTHONPATH": path, "JUMPING_CLOCK": str(self.folder / "clock")}

    def _status(self, pid: int) -> RunStatus | None:
        sockets = Path(os.environ["DESKROLL_RUNTIME_DIR"]) / "runs"
        for path in sockets.glob(f"run-*-{pid}-*.sock"):
            with contextlib.suppress(DeskrollError, OSError):
                return asyncio.run(ask(path))
        return None

    def _strike(self, blow: Blow, status: RunStatus) -> bool:
        """Whether there was something to strike at."""
        if blow.how == "step":
            self._clock_s += self.dice.choice((CLOCK_STEP_S, CLOCK_STEP_S, -CLOCK_STEP_S))
            self._write("clock", f"{self._clock_s:+.0f}")
            return True
        # Whatever is to be struck may be gone by now, or not be there yet.
        with contextlib.suppress(psutil.Error, OSError, StopIteration, KeyError, AssertionError):
            victim = self._find(blow.role, status)
            if victim is None or victim in self._stopped:
                return False
            if blow.how == "kill":
                victim.kill()
            else:
                victim.suspend()
                self._stopped[victim] = time.monotonic() + blow.seconds
            return True
        return False

    def _let_go(self, *, everything: bool = False) -> None:
        """Let stopped parts go on, those whose time is over."""
        now = time.monotonic()
        for process, until in list(self._stopped.items()):
            if everything or now > until:
                del self._stopped[process]
                with contextlib.suppress(psutil.Error):
                    process.resume()

    def _find(self, role: str, status: RunStatus) -> psutil.Process | None:
        coordinator = psutil.Process(status.pid)
        if role == "coordinator":
            return coordinator
        if role == "worker":
            return psutil.Process(self.dice.choice(status.workers).pid) if status.workers else None
        if role in _ZYGOTES:
            return next(each for each in coordinator.children() if _ZYGOTES[role] in each.cmdline())
        leased = [each.id for each in status.pool.desktops if each.state == "leased"] if status.pool else []
        if not leased:
            return None
        desktop = self.dice.choice(leased)
        if role == "keeper":
            return next(psutil.Process(note.keeper_pid) for note in places.notebook().list() if note.id == desktop)
        assert role in _INSIDE, role
        return host_processes(Address(id=desktop, endpoint=""))[role]


def _is_scored(root: Path) -> bool:
    run = Run.open(root)
    return run.unfinished() == [] and all(each.score.value is not None for each in run.outcomes())


def check_run(root: Path, episodes: int, runtime: Path) -> None:
    """One outcome for each episode, no score ever taken back, and none below 1: the agent knows what to do."""
    run = Run.open(root)
    outcomes = run.outcomes()
    assert len(outcomes) == len({each.key for each in outcomes}) == episodes
    assert run.unfinished() == []
    wrong = {each.key: each.score for each in outcomes if each.score.value != 1.0}
    assert wrong == {}
    sealed = Counter(each.episode.key for each in run.records(Sealed))
    reopened = Counter(each.key for each in run.records(Reopened))
    assert all(sealed[each.key] == 1 + reopened[each.key] for each in outcomes)
    scored = Counter(each.episode.key for each in run.records(Sealed) if each.episode.score.value is not None)
    assert set(scored.values()) == {1}, "a score was given twice"
    attempts = [(each.key, each.attempt) for each in run.records(Started)]
    assert len(attempts) == len(set(attempts)), "an attempt's number was given twice"
    assert list(run.records(Opened))
    _check_folders(run, attempts)
    for desktop in {each.desktop for each in run.desktop_changes()}:
        assert leftovers(desktop, runtime) == []


def _check_folders(run: Run, attempts: list[tuple[Any, int]]) -> None:
    """Every folder can be read, also those that were cut off; those of the outcomes are whole, to the byte."""
    assert run.verify() == []
    for each in run.outcomes():
        reader = run.attempt(each.key, each.attempt)
        assert len(reader.steps()) == each.steps
        assert reader.episode() == each
    for key, attempt in attempts:
        folder = run.attempt(key, attempt)
        with contextlib.suppress(DeskrollError):  # one that was never begun has no folder
            folder.steps()
            folder.messages()
    lines = (Path(run.root) / "results.jsonl").read_text().splitlines()
    assert len(lines) == len(run.outcomes())
