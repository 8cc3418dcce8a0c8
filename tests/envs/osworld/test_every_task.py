"""Every step of OSWorld's own tasks, where they are at hand, is known and understood."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from deskroll.desktops.guest.client import GuestDesktop
from deskroll.envs import Ending, EnvContext
from deskroll.envs.osworld.env import OSWorldEnv
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.envs.osworld.setup import STEPS, check_steps
from deskroll.errors import EvaluatorError, InputError
from deskroll.tasks import parse_task
from deskroll.types import StopReason, Task

OSWORLD = Path(__file__).parents[4] / "shared" / "osworld"
"""Where they are, in the workshop; nothing of them is part of the project."""
needs_osworld = pytest.mark.skipif(not OSWORLD.is_dir(), reason="OSWorld's task files are not here")


def every_task() -> list[Task]:
    folders = (OSWORLD / "examples", OSWORLD / "examples_windows")
    files = [file for folder in folders for file in sorted(folder.rglob("*.json"))]
    return [parse_task(json.loads(file.read_text(encoding="utf-8")), file.name) for file in files]


@needs_osworld
def test_every_step_of_every_task_has_code_and_its_parameters_are_understood() -> None:
    tasks = every_task()
    assert len(tasks) == 369 + 49
    kinds: Counter[str] = Counter()
    for task in tasks:
        check_steps(task)
        kinds.update(step["type"] for step in (*task.setup, *task.evaluator.get("postconfig", [])))
    assert set(kinds) == set(STEPS), "no step is missing, and none is there that no task has"


@needs_osworld
def test_only_tasks_with_an_account_are_refused_without_one() -> None:
    refused = []
    for task in every_task():
        try:
            check_steps(task, OSWorldSettings())
        except InputError as error:
            assert "needs an account at Google, and none is given; set env_options.google_" in str(error)
            refused.append(task)
    with_account = {"login", "googledrive"}
    assert len(refused) == 10
    assert all(with_account & {step["type"] for step in task.setup} for task in refused)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"config": [{"type": "fly"}]}, r"config\[0\].type is 'fly'; there is no such step; known: execute"),
        ({"config": [{"type": "sleep"}]}, r"config\[0\] \(sleep\): parameters: .*`seconds`"),
        ({"config": [{"type": "open", "parameters": {"path": ""}}]}, r"config\[0\] \(open\): .*length"),
        ({"config": [{"type": "open", "parameters": {"path": "a", "x": 1}}]}, r"unknown field `x`"),
        ({"evaluator": {"postconfig": [{"type": "fly"}]}}, r"evaluator.postconfig\[0\].type is 'fly'"),
        ({"evaluator": {"postconfig": "fly"}}, r"evaluator.postconfig is not a list of steps"),
        ({"evaluator": {"postconfig": ["fly"]}}, r"evaluator.postconfig\[0\] is not an object"),
        (
            {"config": [{"type": "execute", "parameters": {"command": "ls", "stdout": "../x"}}]},
            r"config\[0\] \(execute\): .*stdout",
        ),
        (
            {"config": [{"type": "googledrive", "parameters": {"operation": ["delete"], "args": []}}]},
            "1 operations have 0 args",
        ),
        (
            {"config": [{"type": "googledrive", "parameters": {"operation": ["delete"], "args": [{}]}}]},
            "it would empty the whole drive",
        ),
    ],
)
def test_a_step_that_can_never_be_done_is_refused_before_anything_starts(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_steps(parse_task({"id": "t", "instruction": "do it", **fields}, "here"))


def test_a_run_without_the_account_is_refused_as_a_whole() -> None:
    login = {"type": "login", "parameters": {"platform": "googledrive"}}
    tasks = [parse_task({"id": "t", "instruction": "do it", "config": [login]}, "here")]
    with pytest.raises(InputError, match=r"task 't': config\[0\] \(login\): it needs an account at Google"):
        OSWorldEnv.prepare(tasks, OSWorldSettings(), Path())


async def test_what_is_done_before_judging_has_the_runs_own_settings(local: GuestDesktop, tmp_path: Path) -> None:
    file = {"url": "https://files.invalid/a", "path": "/home/user/a.txt"}
    evaluator = {
        "func": "exact_match",
        "result": {"type": "vm_file", "path": "/home/user/a.txt"},
        "expected": {"type": "rule", "rules": {"expected": "hello"}},
        "postconfig": [{"type": "download", "parameters": {"files": [file]}}],
    }
    task = parse_task({"id": "t", "instruction": "do it", "evaluator": evaluator}, "here")
    settings = OSWorldSettings(cache_dir=str(tmp_path / "cache"), offline=True)
    ending = Ending(stop=StopReason.DONE)
    with pytest.raises(EvaluatorError, match=r"offline is set; put the file at .*cache/t/.*_a\.txt"):
        await OSWorldEnv(task, settings, EnvContext(desktop=local)).score(ending)
    tmp_path.joinpath("a").write_text("hello")
    mirrored = settings.model_copy(update={"mirrors": {"https://files.invalid/": f"{tmp_path.as_uri()}/"}})
    assert (await OSWorldEnv(task, mirrored, EnvContext(desktop=local)).score(ending)).value == 1.0
