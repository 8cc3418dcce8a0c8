"""The contract suites, as a plug-in's author runs them: every built-in one passes, every broken one is found out."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from deskroll.models.scripted import Script, ScriptedServer
from deskroll.registry import KINDS, TABLE
from tests.contract.broken import FOUND_BY
from tests.models.servers import canned, http

ROOT = Path(__file__).parents[2]
_LONGEST_S = 600
EXAMPLES = {
    "computer_13": {"action_type": "CLICK", "parameters": {"x": 5, "y": 6}},
    "pyautogui": {"code": "pyautogui.click(5, 6)"},
    "claude_computer_use": {"action": "left_click", "coordinate": [5, 6]},
}
SOLVED = {"id": "solved", "instruction": "Click it.", "solution": ["DONE"], "evaluator": {"func": "infeasible"}}


def suite(kind: str, *names: str, more: tuple[str, ...] = (), env: dict[str, str] | None = None) -> tuple[int, str]:
    """Run the suite of a kind against plug-ins of these names, elsewhere; the exit code, and what was printed."""
    flag = f"--{kind.replace('_', '-')}"
    chosen = [part for name in names for part in (flag, name)]
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=short", "-p", "no:cacheprovider"]
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run(
            [*command, "--pyargs", "deskroll.testing", *chosen, *more],
            cwd=folder, env={**os.environ, "COLUMNS": "400", "PYTHONPATH": str(ROOT), **(env or {})},
            capture_output=True, text=True, timeout=_LONGEST_S, check=False,
        )  # fmt: skip
    return ended.returncode, ended.stdout + ended.stderr


def passes(kind: str, *names: str, more: tuple[str, ...] = (), env: dict[str, str] | None = None) -> None:
    code, said = suite(kind, *names, more=more, env=env)
    assert code == 0, said
    assert re.search(r"\d+ passed", said), said


def names_of(kind: str) -> list[str]:
    return [entry.name for entry in TABLE[kind]]


@pytest.mark.parametrize("name", names_of("provider"))
def test_providers(name: str, runtime_folder: Path) -> None:
    passes("provider", name, env={"DESKROLL_RUNTIME_DIR": str(runtime_folder)})


@pytest.mark.parametrize("name", names_of("env"))
def test_environments(name: str, tmp_path: Path) -> None:
    tasks = ROOT / f"data/{name}_examples.jsonl"
    if name == "osworld":  # no real desktop is here for the examples
        tasks = tmp_path / "tasks.jsonl"
        tasks.write_text(json.dumps(SOLVED))
    more = ("--plugin-tasks", str(tasks)) if tasks.exists() else ()
    passes("env", name, more=more, env={"XDG_CACHE_HOME": str(tmp_path)})


def test_agents(tmp_path: Path) -> None:
    apart = ("oracle", "adapter")
    passes("agent", *(name for name in names_of("agent") if name not in apart))
    (tmp_path / "solved.jsonl").write_text(json.dumps(SOLVED))
    passes("agent", "oracle", more=("--plugin-tasks", str(tmp_path / "solved.jsonl")))
    passes("agent", "adapter", more=("--plugin-options", json.dumps({"class": "tests.agents.foreign:Bare"})))


async def test_models(tmp_path: Path) -> None:
    def model(kind: str, **settings: str) -> None:
        passes("model", kind, more=("--plugin-options", json.dumps(settings)))

    async with ScriptedServer(Script.replying("a word")) as server:
        await asyncio.to_thread(model, "openai", name="m", base_url=server.url)
    message = {"role": "assistant", "content": [{"type": "text", "text": "a word"}], "stop_reason": "end_turn"}
    async with canned(http({**message, "usage": {"input_tokens": 1, "output_tokens": 1}})) as other:
        await asyncio.to_thread(model, "anthropic", name="m", base_url=other.url)
    (tmp_path / "s.yaml").write_text("replies: [{turns: [{text: a word}]}]\n")
    await asyncio.to_thread(model, "scripted", name=f"scripted:{tmp_path}/s.yaml")
    assert set(names_of("model")) == {"openai", "anthropic", "scripted"}


def test_backends() -> None:
    passes("backend", *names_of("backend"))


@pytest.mark.parametrize("name", names_of("action_space"))
def test_action_spaces(name: str) -> None:
    passes("action_space", name, more=("--plugin-example", json.dumps(EXAMPLES[name])))


def test_observations() -> None:
    passes("observation", *names_of("observation"))


def test_trainers() -> None:
    passes("trainer", "scripted")  # the other one needs torch: tests/train/vllm
    assert set(names_of("trainer")) == {"scripted", "grpo-local"}


@pytest.mark.parametrize("kind", KINDS)
def test_each_broken_one_is_found_by_the_check_that_is_about_it(kind: str) -> None:
    targets = {f"tests.contract.broken:{each.__name__}": check for each, check in FOUND_BY[kind].items()}
    more = ("--plugin-options", '{"name": "m"}') if kind == "model" else ()
    if kind == "trainer":  # each check starts processes
        more = ("-k", " or ".join(targets.values()))
    code, said = suite(kind, *targets, more=more)
    assert code == 1, said
    failed = re.findall(r"^FAILED \S*::(\w+)\[(?:\S*-)?(tests\.contract\.broken:\w+)(?:-\S*)?\]", said, re.MULTILINE)
    for target, check in targets.items():
        assert (check, target) in failed, said


def test_half_a_plug_in_is_refused_with_what_it_lacks() -> None:
    for name, lacks in (
        ("deskroll.envs.base:Env", "it has no offered, no reset, no score, no step"),
        ("deskroll.errors:plain", "it is not made from deskroll.envs.Env"),
    ):
        code, said = suite("env", name)
        assert code == 1
        assert lacks in said


def test_the_flags_are_nobody_elses_and_a_suite_without_one_says_what_to_give(tmp_path: Path) -> None:
    assert "name what to test, e.g. --provider my_package.mine:Mine" in suite("env")[1]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    other = subprocess.run([*command, "--provider", "x"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "unrecognized arguments: --provider" in other.stdout + other.stderr
