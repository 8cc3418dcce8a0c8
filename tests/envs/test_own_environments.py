"""The examples in docs/environments.md, as files that a run names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.commands import Commands

PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
SAFE, SHELL = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SAFE_TASK, SHELL_TASK = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)


def run(deskroll: Commands, env: dict[str, str], place: Path, task: str, turns: list[object], *flags: str) -> dict:
    (place / "t.jsonl").write_text(task)
    (place / "s.yaml").write_text(json.dumps({"replies": [{"turns": turns}]}))
    flags = ("--model", "scripted:s.yaml", "--set", "workers=1", "--run-id", "one", "--json", *flags)
    ended = deskroll("run", "t.jsonl", *flags, cwd=place, env=env)
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def call(tool: str, **arguments: object) -> dict[str, object]:
    return {"tools": [{"name": tool, "arguments": arguments}]}


@pytest.mark.parametrize(
    ("numbers", "tries", "score"), [([5, 8, 7], 5, 1), ([5, 8, 7], 2, 0), ([1, 2, 3, 4, 5, 7], 5, 0)]
)
def test_questions_with_tools(
    deskroll: Commands, env: dict[str, str], tmp_path: Path, numbers: list[int], tries: int, score: int
) -> None:
    (tmp_path / "safe.py").write_text(SAFE)
    turns = [*(call("try_number", number=each) for each in numbers), {"text": "that is all"}]
    option = f"env_options.tries={tries}"
    found = run(deskroll, env, tmp_path, SAFE_TASK, turns, "--env", "safe.py:SafeEnv", "--set", option)
    assert found["overall"]["successes"] == score
    lines = (tmp_path / "results/one/episodes/eval/0/safe-1/0/1/steps.jsonl").read_text().splitlines()
    said = [json.loads(line).get("results", [""])[0] for line in lines]
    assert said[0] == "larger"


def test_with_a_desktop(deskroll: Commands, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "shell.py").write_text(SHELL)
    turns = [call("shell", command="mkdir ~/done && echo made"), {"text": "it is there"}]
    found = run(deskroll, env, tmp_path, SHELL_TASK, turns, "--env", "shell.py:ShellEnv", "--num-vms", "1")
    assert found["overall"]["successes"] == 1
    steps = (tmp_path / "results/one/episodes/eval/0/list/0/1/steps.jsonl").read_text()
    assert "made\\n[exit code 0]" in steps


def test_a_task_that_the_example_refuses(deskroll: Commands, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "shell.py").write_text(SHELL)
    (tmp_path / "t.jsonl").write_text('{"id": "x", "instruction": "y"}')
    flags = ["--env", "shell.py:ShellEnv", "--agent", "noop", "--dry-run"]
    refused = deskroll("run", "t.jsonl", *flags, cwd=tmp_path, env=env)
    assert refused.code == 2
    assert "task 'x': it has no check" in refused.err
