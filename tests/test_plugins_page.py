"""docs/plugins.md: its examples pass the contract suites of their kinds, and run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from deskroll.registry import BASES, KINDS
from tests.commands import Commands
from tests.contract.test_contract import suite

PAGE = (Path(__file__).parents[1] / "docs" / "plugins.md").read_text()
KEYS, NAMES, ECHO, UP = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
DESK_TASK = {"id": "t", "instruction": "Save it.", "evaluator": {"func": "infeasible"}}


def test_every_kind_is_on_the_page_with_its_base() -> None:
    for kind, base in BASES.items():
        module, _, name = base.partition(":")
        place = module.removesuffix(".base") if kind in ("env", "agent", "backend") else module
        assert f"| `{kind}` | `{place}.{name}`" in PAGE
    assert len(KINDS) == 8


def test_the_action_space_and_the_observation(deskroll: Commands, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "keys.py").write_text(KEYS)
    (tmp_path / "names.py").write_text(NAMES)
    example = json.dumps({"keys": ["a", "ctrl+s"]})
    for kind, name, more in (
        ("action_space", f"{tmp_path}/keys.py:Keys", ("--plugin-example", example)),
        ("observation", f"{tmp_path}/names.py:Names", ()),
    ):
        code, said = suite(kind, name, more=more)
        assert code == 0, said
    (tmp_path / "t.jsonl").write_text(json.dumps(DESK_TASK))
    calls = [{"tools": [{"name": "keys", "arguments": {"keys": keys}}]} for keys in (["x", "ctrl+s"], ["a"] * 9, [])]
    (tmp_path / "t.script.yaml").write_text(json.dumps({"replies": [{"turns": calls}]}))
    options = ("action_space=keys.py:Keys", "action_space_options.most=3", "observation_type=names.py:Names")
    flags = [part for each in options for part in ("--set", f"env_options.{each}")]
    args = ("run", "t.jsonl", "--model", "scripted", "--provider", "sim", "--run-id", "one", "--set", "workers=1")
    ended = deskroll(*args, *flags, cwd=tmp_path, env=env)
    assert ended.code == 0, ended.err
    lines = (tmp_path / "results/one/episodes/eval/0/t/0/1/steps.jsonl").read_text().splitlines()
    assert [each["type"] for each in json.loads(lines[0])["actions"]] == ["PRESS", "HOTKEY"]
    assert "at most 3 keys at a time" in lines[1]
    info = json.loads((tmp_path / "results/one/run.json").read_text())
    assert set(info["plug_ins"]) == {f"{tmp_path}/keys.py:Keys", f"{tmp_path}/names.py:Names"}
    with (tmp_path / "keys.py").open("a") as file:
        file.write("\n")
    refused = deskroll("run", "--resume", "results/one", cwd=tmp_path, env=env)
    assert refused.code == 2
    assert "keys.py has changed" in refused.err


@pytest.mark.parametrize(
    ("page", "kind", "name", "task"),
    [
        ("environments", "env", "SafeEnv", {"id": "t", "question": "Open the safe.", "number": 7}),
        (
            "environments",
            "env",
            "ShellEnv",
            {"id": "t", "question": "Make ~/done.", "check": "test -d ~/done && echo yes"},
        ),
        ("agents", "agent", "PointerAgent", {"id": "t", "question": "Click."}),
    ],
)
def test_examples_of_other_pages(tmp_path: Path, page: str, kind: str, name: str, task: dict[str, object]) -> None:
    text = (Path(__file__).parents[1] / "docs" / f"{page}.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "mine.py").write_text(next(block for block in blocks if f"class {name}(" in block))
    (tmp_path / "t.jsonl").write_text(json.dumps(task))
    code, said = suite(kind, f"{tmp_path}/mine.py:{name}", more=("--plugin-tasks", f"{tmp_path}/t.jsonl"))
    assert code == 0, said


def test_the_model(deskroll: Commands, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "echo.py").write_text(ECHO)
    code, said = suite("model", f"{tmp_path}/echo.py:EchoModel", more=("--plugin-options", '{"name": "m"}'))
    assert code == 0, said
    (tmp_path / "t.jsonl").write_text('{"id": "m", "question": "is what?", "answer": "42 is what?"}\n')
    flags = ("--model", "any", "--set", "model.kind=echo.py:EchoModel", "--set", "model.options.before='42 '")
    args = ("run", "t.jsonl", "--env", "math", *flags, "--json")
    ended = deskroll(*args, "--set", "workers=1", cwd=tmp_path, env=env)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["overall"]["scored"] == 1
    wrong = deskroll(*args, "--set", "model.options.bfore=x", cwd=tmp_path, env=env)
    assert wrong.code == 2
    assert "model.options: bfore: there is no such field; did you mean before?" in wrong.err


@pytest.mark.parametrize("checks", ["answers or noted or stopped", "killed or leaving"])
def test_the_provider(tmp_path: Path, runtime_folder: Path, checks: str) -> None:
    (tmp_path / "up.py").write_text(UP)
    env = {"DESKROLL_RUNTIME_DIR": str(runtime_folder)}
    code, said = suite("provider", f"{tmp_path}/up.py:UpProvider", more=("-k", checks), env=env)
    assert code == 0, said
