"""`deskroll train` as a person uses it: to its end, killed with -9 and resumed, refused where settings changed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from deskroll.store import Run
from deskroll.train.log import TrainLog
from tests.commands import clean_environment
from tests.models.vllm.scripted_vllm import write_command
from tests.models.weights.files import one_file
from tests.waiting import wait_until

CONFIG = """
model_name: policy
models: {{ckpt_path: policy, gpus: none, vllm_command: {command}}}
lora_rank: 0
env: math
tasks: {{source_type: file, file_path: t.jsonl}}
eval_tasks: {{source_type: file, file_path: e.jsonl}}
trainer: scripted
steps: 4
eval_every: 2
max_steps_off_policy: 1
log_path: run
run: {{backend: inline}}
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with tasks, weights, a server that stands in for vLLM, and settings."""
    for name, count in (("t", 6), ("e", 3)):
        lines = [{"id": f"{name}{n}", "question": f"6*7? ({name}{n})", "answer": "42"} for n in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    one_file(tmp_path / "policy")
    command = json.dumps(write_command(tmp_path, "42", "7"))
    (tmp_path / "train.yaml").write_text(CONFIG.format(command=command))
    return tmp_path


@pytest.fixture
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return clean_environment(tmp_path_factory.mktemp("r"))


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "deskroll", "train", *args]


def run_to_end(place: Path, env: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*args), cwd=place, env=env, capture_output=True, text=True, timeout=150, check=False)


def check_run(place: Path, steps: int) -> None:
    log = TrainLog(place / "run")
    log.open()
    assert [each.step for each in log.steps] == list(range(1, steps + 1))
    used = Counter((group.round, group.task) for each in log.steps for group in each.groups)
    assert set(used.values()) == {1}, "none is trained on twice"
    evaluated = [(phase, step) for phase, step in sorted(log.evaluated)]
    assert evaluated == [("baseline", 0), *(("eval", step) for step in range(2, steps + 1, 2))]
    run = Run.open(place / "run")
    assert run.verify() == []
    assert set(Counter(each.key for each in run.outcomes()).values()) == {1}


def nothing_is_left(place: Path) -> bool:
    mine = str(place).encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mine in (entry / "cmdline").read_bytes():
                    return False
            except OSError:
                continue
    return True


def test_from_nothing_to_the_last_step(place: Path, env: dict[str, str]) -> None:
    ended = run_to_end(place, env, "train.yaml")
    assert ended.returncode == 0, ended.stderr
    assert "4 of 4 steps taken" in ended.stdout
    assert "[Concurrency] Set max concurrent rollouts to 8" in ended.stderr
    check_run(place, 4)
    last = ended.stderr.splitlines()[-2]
    assert re.match(r"step 4/4 \| reward 0\.\d+ \| eval after step 4: .* \| version 4 \| lag \d", last)
    assert "success" not in ended.stderr, "phases are not mixed into one rate"
    report = [sys.executable, "-m", "deskroll", "report", "run", "--train-csv", "-"]
    rows = subprocess.run(report, cwd=place, env=env, capture_output=True, text=True, timeout=80, check=True).stdout
    named = [row.split(",")[:3] for row in rows.splitlines()]
    evaluated = [row for row in named if row[0] != "train"][1:]
    assert evaluated == [["baseline", "0", "0"], ["eval", "2", "2"], ["eval", "4", "4"]]
    assert [row[1] for row in named if row[0] == "train"] == ["1", "2", "3", "4"]
    assert sorted(path.name for path in (place / "run/weights").iterdir()) == ["step_0", "step_3", "step_4"]
    again = run_to_end(place, env, "--resume", "run", "--json")
    assert again.returncode == 0, again.stderr
    assert len(json.loads(again.stdout)["steps"]) == 4
    changed = run_to_end(place, env, "--resume", "run", "--learning-rate", "0.5")
    assert changed.returncode == 2
    assert "learning_rate was 1e-05 and is 0.5" in changed.stderr
    assert wait_until(lambda: nothing_is_left(place), "nothing of it runs")


def test_killed_again_and_again_it_goes_on(place: Path, env: dict[str, str]) -> None:
    arguments = ["train.yaml", "--steps", "12", "--set", "trainer_options.seconds=0.05"]
    log = TrainLog(place / "run")
    for kill in range(3):
        with subprocess.Popen(command(*arguments), cwd=place, env=env, stderr=subprocess.DEVNULL) as process:
            wanted = 2 + 3 * kill

            def reached(wanted: int = wanted, process: subprocess.Popen[bytes] = process) -> bool:
                if (place / "run/train.jsonl").exists():
                    log.open()
                return len(log.steps) >= wanted or process.poll() is not None

            wait_until(reached, f"{wanted} steps are taken")
            os.kill(process.pid, signal.SIGKILL)
        arguments = ["--resume", "run"]
    ended = run_to_end(place, env, *arguments)
    assert ended.returncode == 0, ended.stderr
    check_run(place, 12)
    assert wait_until(lambda: nothing_is_left(place), "nothing of it runs")
