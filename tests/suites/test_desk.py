"""suite:desk: its solutions score 1 on real desktops, its near misses and doing nothing score 0.

Tasks on LibreOffice and Chromium take minutes: one of each domain is played, all of them with DESKROLL_ALL_TASKS=1.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from deskroll.agents.oracle import NEAR_MISSES, solution
from deskroll.envs.osworld.env import OSWorldEnv
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.rollout.loading import load_run
from deskroll.rollout.session import Session
from deskroll.suites import DESK, small_tasks
from deskroll.tasks import load_tasks
from deskroll.types import Episode, StopReason, Task

TASKS = load_tasks(Path("suite:desk"))
DOMAINS = {
    "editor", "calculator", "files", "terminal", "writer", "calc", "impress", "browser", "several", "infeasible",
}  # fmt: skip
PROGRAMS = {
    "libreoffice_writer": "lowriter", "libreoffice_calc": "localc", "libreoffice_impress": "loimpress",
    "chromium": "chromium", "mousepad": "mousepad", "galculator": "galculator", "pcmanfm": "pcmanfm",
    "lxterminal": "lxterminal",
}  # fmt: skip
"""Each name that tasks give an app, and what shows that it is here."""
BY_TASK = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)


def apps(task: Task) -> list[str]:
    named: list[str] = task.metadata["related_apps"]
    return named


def runnable() -> list[Task]:
    """The tasks whose programs are on this machine: all on small ones, and of each domain on large ones the first."""
    here = [task for task in TASKS if all(shutil.which(PROGRAMS[app]) for app in apps(task))]
    if os.environ.get("DESKROLL_ALL_TASKS"):
        return here
    small = small_tasks(here)
    first = {task.domain: task for task in reversed(here) if task not in small and task.domain != "several"}
    return [*small, *first.values()]


def written(task: Task) -> Iterator[tuple[str, list[Any]]]:
    yield "solution", task.metadata["solution"]
    yield from task.metadata[NEAR_MISSES].items()


def actions(turns: list[Any]) -> Iterator[Any]:
    for turn in turns:
        yield from turn if isinstance(turn, list) else [turn]


# --- as they are written ---------------------------------------------------------------------------------------------


def test_there_are_enough_tasks_of_every_kind() -> None:
    counts = Counter(task.domain for task in TASKS)
    assert set(counts) == DOMAINS
    assert len(TASKS) >= 40
    assert min(counts.values()) >= 3
    files = {path.stem for path in (DESK / "examples").rglob("*.json")}
    assert files == {task.id for task in TASKS}


def test_every_input_is_used() -> None:
    used = {
        file["url"]
        for task in TASKS
        for step in [*task.setup, *task.evaluator.get("postconfig", [])]
        if step["type"] == "download"
        for file in step["parameters"]["files"]
    }
    assert used == {str(path.relative_to(DESK)) for path in (DESK / "inputs").rglob("*") if path.is_file()}


@BY_TASK
def test_a_task_is_whole(task: Task) -> None:
    assert task.id.startswith(f"{task.domain}-")
    assert set(apps(task)) <= set(PROGRAMS)
    OSWorldEnv.prepare([task], OSWorldSettings(evaluators="native", offline=True), DESK)
    assert not any(step["type"] == "sleep" for step in task.setup)
    for name, turns in written(task):
        assert solution(task, (1920, 1080), name) is not None
        for each in actions(turns):  # whatever the screen's size: elements, no pixels
            assert not {"x", "y"} & set(json.dumps(each).replace('"', " ").split()), (name, each)
    assert task.metadata[NEAR_MISSES]


# --- on real desktops ------------------------------------------------------------------------------------------------


PATIENCE_S = 180.0
"""What a solution may wait for a program that takes 5 s to start on an idle machine."""


async def played(folder: Path, agent: str, tasks: list[Task] | None = None, **options: Any) -> list[Episode]:
    """These tasks, or all that can run here, each once, on two desktops."""
    given: dict[str, Any] = {
        "tasks": "suite:desk", "agent": agent, "agent_options": options, "provider": "local", "num_vms": 2,
        "num_rollouts": 2, "env_options": {"screen_width": 1280, "screen_height": 800}, "output_dir": str(folder),
    }  # fmt: skip
    config, _ = load_run(None, [f"{name}={json.dumps(value)}" for name, value in given.items()])
    async with Session.open(config, tasks or runnable()) as session:
        episodes = await session.run()
    assert [each.key.task for each in episodes if not each.score.scored] == []
    # Played to their end, not broken off:
    assert [each.key.task for each in episodes if each.stop not in (StopReason.DONE, StopReason.FAIL)] == []
    return episodes


def wrong(episodes: list[Episode], expected: float) -> list[tuple[str, str]]:
    return [
        (each.key.task, each.failure.message if each.failure else each.score.reason)
        for each in episodes
        if each.score.value != expected
    ]


@pytest.mark.timeout(600)
def test_the_demo_plays_the_solutions_on_small_programs(env: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "deskroll", "demo", "--output-dir", str(out)]
    result = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    count = len(small_tasks(TASKS))
    assert count >= 25
    assert f"{count} of {count} tasks came out right" in result.stdout
    assert {path.name for path in out.iterdir()} == {"runs", "report.html", "desktops.png"}
    with Image.open(out / "desktops.png") as picture:
        assert picture.size == (1304, 824)
    page = (out / "report.html").read_text()
    assert all(task.id in page for task in small_tasks(TASKS))


@pytest.mark.timeout(900)
async def test_the_solutions_on_large_programs_score_one(tmp_path: Path) -> None:
    small = {task.id for task in small_tasks(TASKS)}
    large = [task for task in runnable() if task.id not in small]
    if not large:
        pytest.skip("neither LibreOffice nor Chromium is here")
    assert wrong(await played(tmp_path, "oracle", large, patience=PATIENCE_S), 1.0) == []


@pytest.mark.timeout(900)
async def test_the_near_misses_score_zero(tmp_path: Path) -> None:
    assert wrong(await played(tmp_path, "oracle", play="near_miss", patience=PATIENCE_S), 0.0) == []


@pytest.mark.timeout(900)
async def test_doing_nothing_scores_zero(tmp_path: Path) -> None:
    assert wrong(await played(tmp_path, "noop"), 0.0) == []
