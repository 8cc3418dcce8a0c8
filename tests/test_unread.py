"""What commands print where nobody reads it: neither the work nor the exit code depends on that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TASKS = '{"id": "a", "question": "6*7?", "answer": "42"}\n{"id": "b", "question": "why?"}\n'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a task that can be scored and one that cannot."""
    (tmp_path / "t.jsonl").write_text(TASKS)
    return tmp_path


def unread(place: Path, env: dict[str, str], *args: str, errors: bool = False) -> tuple[int, str]:
    """The exit code of a command whose output nobody reads, nor its errors where these go there, too; and those."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as out:
        told = out if errors else subprocess.PIPE
        command = [sys.executable, "-m", "deskroll", *args]
        ended = subprocess.run(command, cwd=place, env=env, stdout=out, stderr=told, timeout=120, check=False)
    return ended.returncode, (ended.stderr or b"").decode()


def run(place: Path, env: dict[str, str], name: str, *args: str, errors: bool = False) -> tuple[int, str]:
    command = ("run", "t.jsonl", "--env", "math", "--agent", "noop", "--set", "backend=inline", "--run-id", name)
    return unread(place, env, *command, *args, errors=errors)


def test_a_run_ends_with_the_code_that_it_deserves(place: Path, env: dict[str, str]) -> None:
    code, said = run(place, env, "scored", "--task", "a")
    assert code == 0, said
    assert "\nmore:  " in said
    code, said = run(place, env, "unscored", "--json")
    assert (code, "cannot write" in said) == (1, False)
    assert run(place, env, "silent", "--task", "a", errors=True)[0] == 0
    for command in (["tasks", "ls", "t.jsonl"], ["report", "results/scored"], ["show", "results/scored", "a"]):
        assert unread(place, env, *command) == (0, "")
