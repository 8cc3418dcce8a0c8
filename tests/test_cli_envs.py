"""`deskroll envs ls`, and runs of the example files with the script beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deskroll.registry import TABLE
from tests.commands import Commands

ROOT = Path(__file__).parent.parent
TOOLS = {
    "osworld": ["computer"],
    "math": ["calculator"],
    "py": ["python_interpreter"],
    "web": ["web_search", "web_visit"],
    "rag": ["local_search"],
}


def test_every_environment_is_listed_with_its_tools(deskroll: Commands, env: dict[str, str], tmp_path: Path) -> None:
    ended = deskroll("envs", "ls", "--json", cwd=tmp_path, env=env)
    assert ended.code == 0, ended.err
    listed = {each["name"]: each for each in json.loads(ended.out)}
    assert list(listed) == [entry.name for entry in TABLE["env"]]
    assert {name: [tool["name"] for tool in listed[name]["tools"]] for name in TOOLS} == TOOLS
    assert listed["py"]["options"]["evaluation_metric"] == "exact_match"
    shown = deskroll("envs", "ls", cwd=tmp_path, env=env)
    assert all(name in shown.out for tools in TOOLS.values() for name in tools)


def plug_in(folder: Path, target: str) -> None:
    """Install a package that brings an environment, as pip would leave it."""
    info = folder / "chess_env-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: chess-env\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[deskroll.env]\nchess = {target}\n")


def test_a_plug_in_is_an_environment_like_any_other(deskroll: Commands, env: dict[str, str], tmp_path: Path) -> None:
    plug_in(tmp_path / "site", "chess_env:ChessEnv")
    (tmp_path / "site" / "chess_env.py").write_text(
        "from deskroll.envs.math import MathEnv\n\n\nclass ChessEnv(MathEnv):\n    pass\n"
    )
    with Commands(PYTHONPATH=str(tmp_path / "site")) as commands:
        listed = json.loads(commands("envs", "ls", "--json", cwd=tmp_path, env=env).out)
        assert [each["tools"][0]["name"] for each in listed if each["name"] == "chess"] == ["calculator"]
        args = ("run", str(ROOT / "data/math_examples.jsonl"), "--env", "chess", "--model", "scripted", "--limit", "1")
        ended = commands(*args, cwd=tmp_path, env=env)
        assert ended.code == 0, ended.err


def test_a_broken_plug_in_hides_no_other(env: dict[str, str], tmp_path: Path) -> None:
    plug_in(tmp_path / "site", "chess_that_is_not_there:ChessEnv")
    with Commands(PYTHONPATH=str(tmp_path / "site")) as commands:
        listed = json.loads(commands("envs", "ls", "--json", cwd=tmp_path, env=env).out)
    assert [each["name"] for each in listed if each["problem"]] == ["chess"]
    assert len(listed) == len(TABLE["env"]) + 1


@pytest.mark.parametrize("mode", ["math", "py", "shell", "web", "rag"])
def test_the_examples_of_a_mode_run_with_the_script_beside_them(
    deskroll: Commands, env: dict[str, str], tmp_path: Path, mode: str
) -> None:
    tasks = ROOT / f"data/{mode}_examples.jsonl"
    args = ("run", str(tasks), "--env", mode, "--model", "scripted", "--json")
    ended = deskroll(*args, cwd=tmp_path, env=env | {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert ended.code == 0, ended.err
    summary = json.loads(ended.out)["overall"]
    assert summary["planned"] == summary["scored"] == summary["successes"] == len(tasks.read_text().splitlines())
    report = deskroll("report", "results", "--html", "report.html", cwd=tmp_path, env=env)
    assert report.code == 0, report.err
    assert "100.0%" in report.out
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_a_script_that_is_not_there_is_named(deskroll: Commands, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": "a", "question": "q"}')
    ended = deskroll("run", "t.jsonl", "--env", "math", "--model", "scripted", cwd=tmp_path, env=env)
    assert ended.code == 2
    assert f"there is no script beside the tasks ({tmp_path}/t.script.yaml)" in ended.err


def test_a_run_does_not_go_on_with_other_documents(deskroll: Commands, env: dict[str, str], tmp_path: Path) -> None:
    env = env | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("The mayor lives in Oldtown.")
    task = {"question": "Where does the mayor live?", "answer": "Oldtown", "env_config": {"corpus": "corpus"}}
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"id": f"t{n}", **task}) + "\n" for n in range(2)))
    (tmp_path / "t.script.yaml").write_text("replies: [{turns: [{text: Oldtown}]}]\n")
    args = ("run", "t.jsonl", "--env", "rag", "--model", "scripted", "--set", "run_id=one")
    assert deskroll(*args, cwd=tmp_path, env=env).code == 0
    (tmp_path / "corpus" / "a.txt").write_text("The mayor lives in Newtown.")
    ended = deskroll("run", "--resume", "results/one", cwd=tmp_path, env=env)
    assert ended.code == 2
    assert "what env rag works with (documents, pages, files beside the tasks) has changed" in ended.err
    assert deskroll("run", "--resume", "results/one", "--force", cwd=tmp_path, env=env).code == 0


@pytest.mark.parametrize("variable", ["vmware", "sim", "auto", "local"])
def test_where_no_desktop_is_needed_none_is_asked_about(
    deskroll: Commands, env: dict[str, str], tmp_path: Path, variable: str
) -> None:
    args = ("run", str(ROOT / "data/math_examples.jsonl"), "--env", "math", "--model", "scripted", "--limit", "1")
    ended = deskroll(*args, "--provider", "vmware", cwd=tmp_path, env=env | {"DESKROLL_PROVIDER": variable})
    assert ended.code == 0, ended.err
    assert "provider" not in ended.err


@pytest.mark.parametrize("mode", ["math", "py", "shell", "web", "rag"])
def test_tasks_of_a_desktop_are_refused_elsewhere(
    deskroll: Commands, env: dict[str, str], tmp_path: Path, mode: str
) -> None:
    args = ("run", str(ROOT / "data/osworld_examples.jsonl"), "--env", mode, "--model", "scripted")
    ended = deskroll(*args, cwd=tmp_path, env=env)
    assert ended.code == 2
    assert "task 'note': it has config (set-up steps), which is for desktops; run it with env osworld" in ended.err


def test_a_setting_that_nobody_reads_is_refused(deskroll: Commands, env: dict[str, str], tmp_path: Path) -> None:
    args = ("run", str(ROOT / "data/rag_examples.jsonl"), "--env", "math", "--model", "scripted")
    ended = deskroll(*args, cwd=tmp_path, env=env)
    assert ended.code == 2
    assert "env_config is {'corpus': 'rag_corpus'}, and this environment has nothing that a task may set" in ended.err
