"""Names that are not plain ASCII, names that are no text at all, and a machine that allows few open files."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from deskroll.desktops.service.wire import Ask
from deskroll.tasks import load_tasks
from tests.commands import Commands

TASKS = '{"id": "a😀", "question": "6*7?", "answer": "42"}\n{"id": "b", "question": "6*7?", "answer": "42"}\n'
SCRIPT = 'replies: [{turns: [{text: "42"}]}]\n'
MATH = ("run", "t.jsonl", "--env", "math", "--set", "backend=inline", "--set", "run_id=one")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "t.jsonl").write_text(TASKS)
    for name in ("s.yaml", "s😀.yaml"):
        (tmp_path / name).write_text(SCRIPT)
    return tmp_path


@pytest.mark.parametrize("locale", ["C.UTF-8", "POSIX"])
def test_emoji_are_names_as_good_as_any(locale: str, deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    """In folders, models and ids of tasks."""
    command = (*MATH, "--model", "scripted:s😀.yaml", "--output-dir", "out 😀", "--task", "a😀")
    ended = deskroll(*command, cwd=place, env={**env, "LC_ALL": locale})
    assert ended.code == 0, ended.err
    lines = (place / "out 😀" / "one" / "results.jsonl").read_text().splitlines()
    assert [json.loads(line)["task_id"] for line in lines] == ["a😀"]
    assert json.loads((place / "out 😀/one/run.json").read_text())["config"]["model"]["name"].endswith("s😀.yaml")
    again = deskroll("run", "--resume", "out 😀/one", cwd=place, env=env)
    assert again.code == 0, again.err


@pytest.mark.parametrize(
    ("more", "field"),
    [(("--output-dir", "out\udcff"), "--output-dir: it is 'out\\udcff'"), (("--model", "\udcff"), "--model: it"),
     (("--task", "\udcff"), "only.ids"), (("--set", "env_options.judge_rubric=\udcff"), "judge_rubric"),
     (("--domain", "\udcff"), "only.domains")],
    ids=["output", "model", "task", "set", "domain"],
)  # fmt: skip
def test_bytes_that_are_no_text_are_one_message(
    more: tuple[str, str], field: str, place: Path, env: dict[str, str]
) -> None:
    command = [sys.executable, "-m", "deskroll", *MATH, "--model", "scripted:s.yaml", *more]
    done = subprocess.run([os.fsencode(each) for each in command], cwd=place, env=env, capture_output=True, timeout=90,
                          check=False)  # fmt: skip
    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (2, b"")
    assert said.startswith("deskroll: ")
    assert "Traceback" not in said
    assert field in said
    assert not (place / "results").exists()


def test_an_id_that_is_as_long_as_allowed_can_lease(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(json.dumps({"id": "x" * 200, "question": "q"}))
    (task,) = load_tasks(tmp_path / "t.jsonl")
    asked = Ask(lease="l", group=f"evaluation/10000/{task.id}")
    assert msgspec.json.decode(msgspec.json.encode(asked), type=Ask) == asked


@pytest.mark.skipif(os.getuid() == 0 and shutil.which("setpriv") is None, reason="root may open what it likes")
def test_too_few_open_files_are_one_message(place: Path, env: dict[str, str]) -> None:
    command = [sys.executable, "-m", "deskroll", *MATH, "--model", "scripted:s.yaml"]
    if os.getuid() == 0:  # whom no limit holds, unless it gives that up
        command = ["setpriv", "--bounding-set", "-sys_resource", "--inh-caps", "-sys_resource", *command]
    command = ["sh", "-c", 'ulimit -n 24; exec "$@"', "sh", *command]
    done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "deskroll: a process may have 24 open files here, and 2 episodes at a time need at least 66: "
        "raise `ulimit -n`, or lower num_rollouts\n"
    )
    assert not (place / "results").exists()


ORDERS = ("\x1b", "\x07", "\x9b", "\x85")


@pytest.mark.parametrize(
    "command",
    [
        ("run", "EVIL.jsonl", "--env", "math", "--model", "scripted:s.yaml", "--dry-run"),
        ("run", "t.jsonl", "--env", "math", "--model", "scripted:s.yaml", "--dry-run", "--output-dir", "EVIL"),
        ("run", "t.jsonl", "--env", "math", "--model", "EVIL", "--dry-run"),
        ("run", "EVIL-none.jsonl"),
        ("run", "--config", "EVIL.yaml"),
        ("run", "--resume", "EVIL"),
        ("report", "EVIL"),
        ("EVIL",),
        ("report", "a", "EVIL"),
        ("tasks", "ls", "EVIL.jsonl", "--env", "math"),
        ("tasks", "show", "EVIL.jsonl", "a"),
        ("tasks", "check", "EVIL.jsonl", "--env", "math", "--offline"),
        ("export", "EVIL", "--to", "osworld", "--output", "out"),
        ("models", "scripted", "EVIL.yaml"),
    ],
    ids=" ".join,
)
def test_a_name_gives_no_orders_to_a_terminal(
    command: tuple[str, ...], deskroll: Commands, place: Path, env: dict[str, str]
) -> None:
    evil = "x\x1b]0;owned\x07\x1b[2J\x9b31m\x85"
    (place / f"{evil}.jsonl").write_text(json.dumps({"id": f"a{evil}", "question": f"q{evil}", "domain": evil}))
    ended = deskroll(*(each.replace("EVIL", evil) for each in command), cwd=place, env=env)
    assert ended.out + ended.err
    assert [each for each in ORDERS if each in ended.out + ended.err] == []
