"""Agents and environments by file: found by workers, named in run.json, held to what they were when the run began."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deskroll.errors import ConfigError
from deskroll.rollout.context import ProcessContext
from deskroll.rollout.orders import WorkerSetup
from deskroll.rollout.spec import Definition, EpisodeSpec
from tests.commands import Commands

AGENT = """
from helper import WORD

from deskroll.actions import Answer
from deskroll.agents import Agent
from deskroll.config import Settings
from deskroll.types import Decision


class Options(Settings):
    word: str = WORD


class Mine(Agent):
    Settings = Options
    protocol = "none"

    def __init__(self, around, settings):
        self.word = settings.word

    async def act(self, observation):
        return Decision(actions=(Answer(text=self.word),))
"""
ENV = """
from deskroll.envs.tooled import ToolEnv
from deskroll.types import Observation


class Mine(ToolEnv):
    async def reset(self):
        return Observation(instruction="say it")
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A working directory with a task, an agent and an environment of one's own."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "t.jsonl").write_text('{"id": "m", "question": "6*7?", "answer": "42"}\n')
    (work / "my_agent.py").write_text(AGENT)
    (work / "helper.py").write_text('WORD = "42"\n')
    (work / "my_env.py").write_text(ENV)
    return work


def run(deskroll: Commands, place: Path, env: dict[str, str], *flags: str, code: int = 0) -> str:
    ended = deskroll("run", *flags, "--json", cwd=place, env=env)
    assert ended.code == code, ended.err
    return ended.out if code == 0 else ended.err


def test_by_file_in_worker_processes_and_again_from_elsewhere(
    deskroll: Commands, place: Path, env: dict[str, str]
) -> None:
    flags = ["--env", "my_env.py:Mine", "--agent", "./my_agent.py:Mine", "--set", "workers=1", "--run-id", "one"]
    assert json.loads(run(deskroll, place, env, "t.jsonl", *flags))["overall"]["successes"] == 1
    info = json.loads((place / "results/one/run.json").read_text())
    assert info["config"]["agent"] == f"{place}/my_agent.py:Mine"
    assert set(info["plug_ins"]) == {f"{place}/my_agent.py:Mine", f"{place}/my_env.py:Mine"}
    again = ["--resume", str(place / "results/one")]
    run(deskroll, place.parent, env, *again)
    assert "--run-id names a new run" in run(deskroll, place, env, *again, "--run-id", "two", code=2)
    taken = run(deskroll, place, env, "t.jsonl", *flags, code=2)
    assert "holds a run already: resume it" in taken
    with (place / "my_agent.py").open("a") as file:
        file.write("# another thought\n")
    refused = run(deskroll, place, env, *again, code=2)
    assert f"{place}/my_agent.py has changed" in refused
    assert "Traceback" not in refused
    run(deskroll, place, env, *again, "--force")


THEIRS = """
class Theirs:
    def predict(self, instruction, obs):
        return "it cannot be done", ["FAIL"]
"""


def test_an_adapted_agent_by_file_is_found_from_elsewhere_and_held_to_what_it_was(
    deskroll: Commands, place: Path, env: dict[str, str]
) -> None:
    (place / "theirs.py").write_text(THEIRS)
    line = '{"id": "%s", "instruction": "Do it.", "evaluator": {"func": "infeasible"}}\n'
    (place / "t.jsonl").write_text(line % "a" + line % "b")
    flags = ["--env", "osworld", "--provider", "sim", "--num-vms", "1", "--set", "workers=1", "--run-id", "one"]
    flags += ["--agent", "adapter", "--set", "agent_options.class=theirs.py:Theirs"]
    assert json.loads(run(deskroll, place, env, "t.jsonl", *flags, "--limit", "1"))["overall"]["successes"] == 1
    info = json.loads((place / "results/one/run.json").read_text())
    assert info["config"]["agent_options"]["class"] == f"{place}/theirs.py:Theirs"
    assert set(info["plug_ins"]) == {f"{place}/theirs.py:Theirs"}
    again = ["--resume", str(place / "results/one")]
    more = run(deskroll, place.parent, env, *again, "--limit", "2", "--force")
    assert json.loads(more)["overall"]["successes"] == 2
    with (place / "theirs.py").open("a") as file:
        file.write("# another thought\n")
    assert f"{place}/theirs.py has changed" in run(deskroll, place, env, *again, code=2)


def test_the_working_directory_is_on_the_path(deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    flags = ["--env", "my_env:Mine", "--agent", "my_agent:Mine", "--set", "workers=1"]
    assert json.loads(run(deskroll, place, env, "t.jsonl", *flags))["overall"]["successes"] == 1


def test_nothing_here_takes_the_place_of_a_library(deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    (place / "msgspec.py").write_text("raise SystemExit('taken over')\n")
    (place / "random.py").write_text(AGENT)
    flags = ["--env", "my_env.py:Mine", "--agent", "random.py:Mine", "--set", "workers=1"]
    assert json.loads(run(deskroll, place, env, "t.jsonl", *flags))["overall"]["successes"] == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--agent", "my_agent.py"], "agent 'my_agent.py' is a file: say what of it, my_agent.py:Attribute"),
        (["--agent", "no.py:Mine"], "there is no file '"),
        (["--agent", "my_agent.py:Mein"], "has no Mein; did you mean Mine?"),
        (["--agent", "my_agent.py:Options"], "is not a valid agent: it is not made from deskroll.agents.Agent"),
        (["--env", "my_agent.py:Mine"], "is not a valid env: it is not made from deskroll.envs.Env"),
        (["--agent", "osworlds.py:Old"], "--agent adapter --set agent_options.class="),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    deskroll: Commands, place: Path, env: dict[str, str], flags: list[str], said: str
) -> None:
    (place / "osworlds.py").write_text("class Old:\n    def predict(self, instruction, obs): ...\n")
    refused = run(deskroll, place, env, "t.jsonl", *flags, "--dry-run", code=2)
    assert said in refused
    assert "Traceback" not in refused


def test_tasks_name_no_code(deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    line = {"id": "m", "question": "6*7?", "env": f"{place}/my_env.py:Mine"}
    (place / "t.jsonl").write_text(json.dumps(line) + "\n")
    refused = run(deskroll, place, env, "t.jsonl", "--env", "math", "--agent", "noop", "--dry-run", code=2)
    assert "task 'm': env is" in refused
    assert "tasks are data, and name no code" in refused


async def test_a_late_worker_runs_no_other_code_than_the_first(place: Path, tmp_path: Path) -> None:
    name = f"{place}/my_env.py:Mine"
    (tmp_path / "run.json").write_text("{}")
    model = {"name": "x", "base_url": "http://127.0.0.1:9/v1"}
    definition = Definition.of(EpisodeSpec.model_validate({"env": name, "agent": "noop", "model": model}))
    setup = WorkerSetup(storage=str(tmp_path))
    async with ProcessContext.open(setup) as context:
        context.define(definition)
        assert (await context.of(definition.digest)).spec.env == name
    (place / "my_env.py").write_text(ENV + "\n")
    async with ProcessContext.open(setup) as context:
        context.define(definition)
        with pytest.raises(ConfigError, match="has changed since the run began"):
            await context.of(definition.digest)
