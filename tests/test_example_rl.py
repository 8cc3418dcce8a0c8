"""examples/rl: its tasks are the same with and without windows, its agent presses what the model says."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from deskroll.store import Run
from tests.commands import clean_environment

FILES = Path(__file__).parent.parent / "examples" / "rl"
KNOWING = [{"when": {"regex": rf"(?s)\b(\w+) {n}\n.*press \1\b"}, "turns": [{"text": str(n)}]} for n in range(1, 9)]
"""Finds the number beside the name, as the model is to learn it."""
FIRST = [{"turns": [{"text": "1"}]}]
SILLY = [{"turns": [{"text": "banana"}]}]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The example's files, with tasks."""
    folder = shutil.copytree(FILES, tmp_path / "rl", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "buttons.py", ".", "--seed", "5"], cwd=folder, check=True, timeout=60)
    return folder


def tasks(place: Path, name: str) -> list[dict]:
    return [json.loads(line) for line in (place / f"{name}.jsonl").read_text().splitlines()]


def play(place: Path, runtime_folder: Path, replies: list[dict], *more: str) -> dict[str, float | None]:
    """The score of each of the first tasks of the evaluation."""
    (place / "script.yaml").write_text(yaml.safe_dump({"replies": replies}))
    words = ["run", "eval.jsonl", "--agent", "buttons.py:PickAgent", "--model", "scripted:script.yaml", "--limit", "6"]
    ended = subprocess.run(
        [sys.executable, "-m", "deskroll", *words, *more], cwd=place, env=clean_environment(runtime_folder),
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    run = Run.open(max((place / "results").iterdir()))
    return {each.key.task: each.points for each in run.outcomes()}


def first_button(task: dict) -> str:
    """The one that people read first: the first of the first column."""
    return str(task["buttons"][0])


def test_what_is_evaluated_on_is_not_trained_on(place: Path) -> None:
    trained, evaluated = (
        {name for task in tasks(place, part) for name in task["buttons"]} for part in ("train", "eval")
    )
    assert len(trained) == 96
    assert len(evaluated) == 32
    assert not trained & evaluated
    assert all(task["press"] in task["buttons"] and len(set(task["buttons"])) == 8 for task in tasks(place, "eval"))


@pytest.mark.parametrize("where", ["table", "windows"])
def test_a_table_and_a_window_are_played_alike(place: Path, runtime_folder: Path, where: str) -> None:
    """What the model says is what is pressed: the right one each time, or always the first."""
    env = {
        "table": ("--env", "buttons.py:ButtonsEnv"),
        "windows": ("--env", "osworld", "--set", "env_options.observation_type=a11y_tree", "--num-vms", "2"),
    }[where]
    assert play(place, runtime_folder, KNOWING, *env) == {f"eval-{n:03}": 1.0 for n in range(6)}
    expected = {task["id"]: float(task["press"] == first_button(task)) for task in tasks(place, "eval")[:6]}
    assert play(place, runtime_folder, FIRST, *env) == expected


def test_a_reply_that_is_no_number_is_the_agents_failure(place: Path, runtime_folder: Path) -> None:
    scores = play(place, runtime_folder, SILLY, "--env", "buttons.py:ButtonsEnv")
    assert scores == {f"eval-{n:03}": 0.0 for n in range(6)}
