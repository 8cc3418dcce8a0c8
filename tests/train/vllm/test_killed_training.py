"""A real training run is killed with -9 at ten random moments, wherever it hurts, and comes to its end all the same.

The example of examples/rl: grpo-local, a real vLLM that is given new weights after every step, worker processes. What
is killed, in turn: the run itself (which is resumed), its trainer, processes of its model server, a worker.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest
import yaml

from deskroll.store import Run
from deskroll.train.log import EvalRecord, TrainLog
from tests.commands import clean_environment
from tests.train.vllm.there import PYTHON, ROOT
from tests.waiting import wait_until

KILLS, STEPS, SEED = 10, 60, 7
PARTS = ("run", "trainer", "server", "worker")
MARKS = {"trainer": "deskroll.train.child", "server": "vllm", "worker": "deskroll.host.zygote.process"}
"""What the command lines of these processes hold."""
PATIENCE_S = 900.0
pytestmark = pytest.mark.timeout(5400)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The example with its model and tasks."""
    if not PYTHON.exists():
        pytest.skip("there is no .venv-vllm: run make vllm")
    files = shutil.ignore_patterns("__pycache__", "results")
    folder = shutil.copytree(ROOT / "examples" / "rl", tmp_path / "rl", ignore=files)
    subprocess.run([sys.executable, "buttons.py", ".", "--seed=1"], cwd=folder, check=True)
    subprocess.run([str(PYTHON), "model.py", "model", "--seed=1"], cwd=folder, check=True, capture_output=True)
    settings = yaml.safe_load((folder / "train.yaml").read_text())
    settings |= {"steps": STEPS, "trainer_python": str(PYTHON)}
    settings["models"]["vllm_command"] = [str(PYTHON.with_name("vllm"))]
    settings["models"]["restarts"] = {"most": 20}
    (folder / "train.yaml").write_text(yaml.safe_dump(settings))
    return folder


class Killed:
    """A training run that somebody kills again and again."""

    def __init__(self, place: Path, env: dict[str, str]) -> None:
        self.place, self.env = place, env
        self.dice = random.Random(SEED)
        self.log = TrainLog(place / "run")
        self.start("train.yaml", "--log-path=run")

    def start(self, *words: str) -> None:
        with (self.place / "said").open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "deskroll", "train", *words], cwd=self.place, env=self.env, stdout=said,
                stderr=said,
            )  # fmt: skip

    def family(self, part: str) -> list[psutil.Process]:
        """The processes of a part; of workers, those that a zygote has forked."""
        found = []
        for each in psutil.Process(self.process.pid).children(recursive=True):
            try:
                above = each.parent()
                forked = above is not None and MARKS["worker"] in " ".join(above.cmdline())
                if MARKS[part] in " ".join(each.cmdline()).lower() and (part != "worker" or forked):
                    found.append(each)
            except psutil.NoSuchProcess:
                continue
        return found

    def wait_for_moment(self) -> None:
        """Until something has happened since the last kill, more or less of it."""
        journal = self.place / "run" / "journal.jsonl"
        size = journal.stat().st_size if journal.exists() else 0
        wanted = size + self.dice.randrange(50_000, 1_500_000)

        def is_time() -> bool:
            return self.process.poll() is not None or (journal.exists() and journal.stat().st_size >= wanted)

        wait_until(is_time, "the run goes on", timeout=PATIENCE_S)

    def kill(self, part: str) -> bool:
        """Kill it; False: the run is over."""
        self.wait_for_moment()
        if self.process.poll() is not None:
            return False
        if part == "run":
            self.process.kill()
            self.process.wait()
            self.start("--resume", "run")
            return True
        victims = wait_until(lambda: self.process.poll() is not None or self.family(part), f"there is a {part}")
        if isinstance(victims, list):
            self.dice.choice(victims).kill()
        return True


def test_it_comes_to_its_end(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    env = clean_environment(tmp_path_factory.mktemp("r"))
    run = Killed(place, env)
    try:
        killed = [part for part in (PARTS * KILLS)[:KILLS] if run.kill(part)]
        assert run.process.wait(PATIENCE_S * 2) == 0, (place / "said").read_text()[-3000:]
    finally:
        run.process.kill()
        run.process.wait()
    print(f"killed: {', '.join(killed)}")
    check(run.log, place)
    assert wait_until(lambda: nothing_is_left(place), "nothing of it runs")


def check(log: TrainLog, place: Path) -> None:
    log.open()
    assert [each.step for each in log.steps] == list(range(1, STEPS + 1))
    used = Counter((group.round, group.task) for each in log.steps for group in each.groups)
    assert set(used.values()) == {1}, "none is trained on twice"
    passed = Counter(name for each in log.steps for name in (*each.no_signal, *each.failed, *each.withheld))
    assert not set(passed) & set(used)
    stored = Run.open(place / "run")
    assert stored.verify() == []
    outcomes = list(stored.outcomes())
    assert set(Counter(each.key for each in outcomes).values()) == {1}
    assert all(each.points is not None for each in outcomes if each.key.phase != "train"), "every evaluation is scored"
    gaps = [each.report.logprob_gap for each in log.steps if each.report.logprob_gap is not None]
    assert max(gaps) < 0.01
    evaluations = [each for each in log.records if isinstance(each, EvalRecord)]
    assert log.evaluated == {("baseline", 0), *(("eval", step) for step in range(10, STEPS + 1, 10))}
    assert all(len(each.versions) == 1 for each in evaluations)
    assert (evaluations[-1].mean_score or 0.0) >= 0.9


def nothing_is_left(place: Path) -> bool:
    mine = str(place)
    for each in psutil.process_iter():
        try:
            if each.pid != os.getpid() and mine in " ".join(each.cmdline()):
                return False
        except psutil.NoSuchProcess:
            continue
    return True
