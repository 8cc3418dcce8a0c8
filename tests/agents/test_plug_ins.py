"""Agents of somebody else's: the example in docs/agents.md, by its path and by an entry point, and the command line."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from deskroll.actions import Click, Done
from deskroll.models.scripted import Script
from deskroll.registry import TABLE
from deskroll.tasks import parse_task
from tests.commands import Commands
from tests.rollout.conftest import Runs, runs

__all__ = ["runs"]

PAGE = (Path(__file__).parents[2] / "docs" / "agents.md").read_text()
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(ENTRY,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
TASK = {"id": "task-1", "instruction": "Click it.", "evaluator": {"func": "infeasible"}}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package with the page's example in it."""
    root = tmp_path / "site"
    (root / "my_package").mkdir(parents=True)
    (root / "my_package" / "__init__.py").touch()
    (root / "my_package" / "pointer.py").write_text(EXAMPLE)
    info = root / "my_package-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1\n")
    points = ENTRY.replace('[project.entry-points."deskroll.agent"]', "[deskroll.agent]").replace('"', "")
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(root))
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_package"]:
        monkeypatch.delitem(sys.modules, name)
    return root


@pytest.mark.parametrize("name", ["my_package.pointer:PointerAgent", "pointer"])
async def test_the_example_runs(name: str, package: Path, runs: Runs) -> None:
    script = Script.replying("I click 10,20 now", "OVER")
    (episode,) = await runs.run(
        script, [parse_task(TASK, "here")], env="osworld", agent=name, provider="sim", num_vms=1
    )
    assert (episode.failure, episode.score.value) == (None, 0.0)
    attempt = runs.read().attempt(episode.key, episode.attempt)
    assert [step.actions for step in attempt.steps()] == [(Click("left", 10, 20),), (Done(),)]
    assert len(list(attempt.messages())) == 4


def test_the_example_is_short() -> None:
    code = [line for line in EXAMPLE.splitlines() if line.strip() and not line.startswith(("import", "from"))]
    assert len(code) <= 30


def test_every_agent_is_on_the_page() -> None:
    for entry in TABLE["agent"]:
        assert f"\n| `{entry.name}`" in PAGE


def test_an_agent_without_a_model_needs_neither_key_nor_server(
    deskroll: Commands, env: dict[str, str], tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps(TASK) + "\n")
    flags = ["--env", "osworld", "--agent", "noop", "--provider", "sim"]
    done = deskroll("run", str(tasks), *flags, "--json", cwd=tmp_path, env=env)
    assert done.code == 0, done.err
    assert json.loads(done.out)["overall"]["scored"] == 1
    planned = deskroll("run", str(tasks), *flags, "--dry-run", cwd=tmp_path, env=env)
    assert "none: agent noop asks no model" in planned.out


def test_an_agent_of_another_protocol_says_which_variables_it_wants(
    deskroll: Commands, env: dict[str, str], tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps(TASK) + "\n")
    command = ["run", str(tasks), "--env", "osworld", "--agent", "claude", "--provider", "sim"]
    nobody = deskroll(*command, "--base-url", "http://127.0.0.1:9/v1", cwd=tmp_path, env=env)
    assert nobody.code == 2
    assert "set ANTHROPIC_BASE_URL (or model.base_url, --base-url) and ANTHROPIC_API_KEY" in nobody.err
    scripted = deskroll(*command, "--model", "scripted:s.yaml", cwd=tmp_path, env=env)
    assert scripted.code == 2
    assert "'scripted:" in scripted.err
    assert "speaks the protocol openai; this agent needs one that speaks anthropic" in scripted.err
