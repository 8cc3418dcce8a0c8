"""The bundled examples: their scripts use the tools, and the tools really give what the scripts answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from deskroll.envs.base import EnvContext
from deskroll.envs.math import MathEnv
from deskroll.envs.rag import RagEnv
from deskroll.envs.tooled import ToolEnv
from deskroll.tasks.load import load_tasks
from deskroll.types import Task, ToolRequest
from tests.commands import Commands

DATA = Path(__file__).parent.parent.parent / "data"


def turns_of(task: Task, kind: str) -> list[dict[str, object]]:
    replies = yaml.safe_load((DATA / f"{kind}_examples.script.yaml").read_text())["replies"]
    return next(reply["turns"] for reply in replies if reply["when"] in task.instruction)


def examples(kind: str) -> list[Task]:
    return list(load_tasks(DATA / f"{kind}_examples.jsonl"))


async def results_of(env: ToolEnv, turns: list[dict[str, object]]) -> str:
    """What the tools say to all calls of a script."""
    await env.reset()
    told: list[str] = []
    for turn in turns:
        for tool in turn.get("tools", []):  # type: ignore[attr-defined]
            request = ToolRequest(id="c", name=tool["name"], arguments=json.dumps(tool["arguments"]))
            told += (await env.step(env.decode(request))).observation.results
    await env.close()
    return "\n".join(told)


@pytest.mark.parametrize("task", examples("math"), ids=lambda task: task.id)
async def test_the_calculator_gives_what_the_script_answers(task: Task) -> None:
    turns = turns_of(task, "math")
    told = await results_of(MathEnv(task, MathEnv.Settings()), turns)
    assert turns[-1] == {"text": task.answer}
    assert "error" not in told
    last = told.splitlines()[-1].rpartition(" = ")[2]
    assert re.search(rf"(?<![\w/*]){re.escape(task.answer or '')}(?![\w/*])", last), told


@pytest.mark.parametrize("task", examples("rag"), ids=lambda task: task.id)
async def test_the_search_finds_what_the_script_answers(task: Task, tmp_path: Path) -> None:
    settings = RagEnv.Settings.model_validate({"cache": tmp_path})
    RagEnv.check_task(task)
    turns = turns_of(task, "rag")
    told = await results_of(RagEnv(task, settings, EnvContext(folder=DATA)), turns)  # type: ignore[arg-type]
    assert turns[-1] == {"text": task.answer}
    assert all(part in told for part in (task.answer or "").split(", ")), told


@pytest.mark.parametrize("kind", ["math", "rag"])
def test_the_examples_run_and_all_are_right(kind: str, deskroll: Commands, env: dict[str, str], tmp_path: Path) -> None:
    done = deskroll(
        "run", f"{DATA}/{kind}_examples.jsonl", "--env", kind, "--output-dir", "runs",
        "--model", f"scripted:{DATA}/{kind}_examples.script.yaml",
        cwd=tmp_path, env={**env, "XDG_CACHE_HOME": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.code == 0, done.err
    (results,) = (tmp_path / "runs").glob("*/results.jsonl")
    scores = [json.loads(line)["score"] for line in results.read_text().splitlines()]
    assert scores == [1.0] * len(examples(kind))
