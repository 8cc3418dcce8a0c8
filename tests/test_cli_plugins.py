"""`deskroll plugins ls`: every kind, what installed packages bring, and what is missing."""

from __future__ import annotations

import json
from pathlib import Path

from deskroll.registry import KINDS, TABLE
from tests.commands import Commands
from tests.test_completing import Shell

SUNK = """
from deskroll.agents.noop import NoopAgent
from deskroll.errors import MissingDependency


class Sunk(NoopAgent):
    @classmethod
    def check_installed(cls):
        raise MissingDependency("agent sunk needs a boat: pip install boat")
"""
TARGETS = {
    "provider": "deskroll.desktops.providers.sim.provider:SimProvider",
    "env": "deskroll.envs.math:MathEnv",
    "agent": "sunk:Sunk",
    "model": "deskroll.models.openai:OpenAIModel",
    "backend": "deskroll.rollout.backends.inline:InlineBackend",
    "action_space": "deskroll.envs.osworld.spaces:Pyautogui",
    "observation": "not_there:Observation",
    "trainer": "deskroll.train.scripted:ScriptedTrainer",
}


def test_every_built_in_one_is_listed(deskroll: Commands, env: dict[str, str], tmp_path: Path) -> None:
    ended = deskroll("plugins", "ls", "--json", cwd=tmp_path, env=env)
    assert ended.code == 0, ended.err
    listed = json.loads(ended.out)
    assert {(each["kind"], each["name"]) for each in listed} == {
        (kind, entry.name) for kind in KINDS for entry in TABLE[kind]
    }
    assert {(each["source"], each["problem"]) for each in listed} == {("built in", "")}
    assert all("make vllm" in each["lacks"] for each in listed if each["lacks"])
    assert {each["name"] for each in listed if each["lacks"]} <= {"grpo-local"}
    shown = deskroll("plugins", "ls", "--kind", "model", cwd=tmp_path, env=env)
    assert [line.split()[0] for line in shown.out.splitlines()] == ["kind", "model", "anthropic", "scripted"]


def test_plug_ins_of_each_kind_say_where_they_are_from_and_what_they_lack(env: dict[str, str], tmp_path: Path) -> None:
    info = tmp_path / "site" / "my_parts-3.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-parts\nVersion: 3\n")
    points = "".join(f"[deskroll.{kind}]\nmine = {target}\n" for kind, target in TARGETS.items())
    (info / "entry_points.txt").write_text(points)
    (tmp_path / "site" / "sunk.py").write_text(SUNK)
    with Commands(PYTHONPATH=str(tmp_path / "site")) as commands:
        listed = json.loads(commands("plugins", "ls", "--json", cwd=tmp_path, env=env).out)
        shown = commands("plugins", "ls", cwd=tmp_path, env=env).out
    mine = {each["kind"]: each for each in listed if each["name"] == "mine"}
    assert set(mine) == set(KINDS)
    assert {each["source"] for each in mine.values()} == {"my-parts 3"}
    assert mine["agent"]["lacks"] == "agent sunk needs a boat: pip install boat"
    assert "not_there" in mine["observation"]["problem"]
    good = [kind for kind in KINDS if kind not in ("agent", "observation")]
    assert [mine[kind]["lacks"] + mine[kind]["problem"] for kind in good] == [""] * 6
    assert "pip install boat" in shown
    assert "my-parts 3" in shown


def test_a_kind_that_is_none_is_refused(deskroll: Commands, env: dict[str, str], tmp_path: Path) -> None:
    ended = deskroll("plugins", "ls", "--kind", "agnt", cwd=tmp_path, env=env)
    assert ended.code == 2
    assert "there is no kind 'agnt'; did you mean agent?" in ended.err


def test_the_shell_offers_kinds(deskroll: Commands, env: dict[str, str], tmp_path: Path) -> None:
    assert Shell(deskroll, tmp_path, env)("plugins", "ls", "--kind", "a") == ["plain,agent", "plain,action_space"]
