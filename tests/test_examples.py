"""examples/: each runs as a user runs it, and what comes out is what it says; its plug-ins pass their suites."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deskroll.store import Run
from tests.commands import clean_environment
from tests.contract.test_contract import suite

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
Ran = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the examples, without what running them left."""
    return shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("results", "__pycache__"))


@pytest.fixture
def run(folder: Path, runtime_folder: Path) -> Ran:
    """Runs a program in that folder."""

    def ran(*command: str) -> subprocess.CompletedProcess[str]:
        env = clean_environment(runtime_folder)
        ended = subprocess.run(
            [sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True, timeout=150, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended

    return ran


def scores(folder: Path) -> list[dict[str, float | None]]:
    """Of each run that was kept there, from the first: the score of each task."""
    runs = [Run.open(path.parent) for path in sorted((folder / "results").glob("*/run.json"))]
    return [{each.key.task: each.score.value for each in run.outcomes()} for run in runs]


def test_own_task(run: Ran, folder: Path) -> None:
    said = run("own_task.py").stdout.splitlines()
    expected = {"mean": 1.0, "share": 1.0, "primes": 0.0, "sum": 1.0}
    assert [line.split("\t")[:2] for line in said[:-1]] == [[task, str(value)] for task, value in expected.items()]
    assert said[2].endswith("9 does not match 10")
    assert scores(folder) == [expected]


def test_own_agent(run: Ran, folder: Path) -> None:
    said = run("own_agent.py").stdout
    assert said.splitlines()[0] == "chat {'leap': 0.0, 'letters': 0.0}"
    assert said.endswith("own_agent.py:CheckingAgent {'leap': 1.0, 'letters': 1.0}\n")
    assert scores(folder) == [{"leap": 0.0, "letters": 0.0}, {"leap": 1.0, "letters": 1.0}]


def test_own_env(run: Ran, folder: Path) -> None:
    said = run("own_env.py").stdout.splitlines()
    assert said == ["shopping\t1.0\tright: milk.txt, bread.txt", "meetings\t0.5\tright: monday.txt"]
    assert scores(folder) == [{"shopping": 1.0, "meetings": 0.5}]


def test_own_provider(run: Ran, folder: Path) -> None:
    rows = [line.split("\t") for line in run("own_provider.py").stdout.splitlines()]
    assert [row[:2] for row in rows] == [["shopping", "1.0"], ["meetings", "0.5"]]
    assert all(row[2].startswith("rented-") for row in rows)
    (kept,) = (folder / "results").iterdir()
    desktops = {change.desktop for change in Run.open(kept).desktop_changes()}
    assert {row[2] for row in rows} <= desktops


def test_notebook(run: Ran, folder: Path) -> None:
    said = run(str(ROOT / "tests" / "notebook.py"), "notebook.ipynb").stdout
    assert "primes/1  0.00  numeric_match with the reference answer: 9 does not match 10\n6 episodes, kept in " in said
    assert "4 of 6 succeeded\nprimes 0 '9' " in said
    assert re.search(r"^0 \(ToolCall\(name='calculator'.*\n1 \(Answer\(text='7'\),\) \(\)$", said, re.MULTILINE)
    assert sorted(said.splitlines()[-3:]) == ["mean [1.0, 1.0]", "primes [0.0, 0.0]", "share [1.0, 1.0]"]
    assert scores(folder) == [{"mean": 1.0, "share": 1.0, "primes": 0.0}] * 2


@pytest.mark.parametrize(
    ("kind", "name", "more"),
    [
        ("agent", "own_agent.py:CheckingAgent", ()),
        ("env", "own_env.py:FilesEnv", ("--plugin-tasks", str(EXAMPLES / "own_env.jsonl"))),
        ("provider", "own_provider.py:RentedProvider", ()),
    ],
)
def test_its_plug_ins_pass_their_suites(kind: str, name: str, more: tuple[str, ...], runtime_folder: Path) -> None:
    code, said = suite(kind, str(EXAMPLES / name), more=more, env={"DESKROLL_RUNTIME_DIR": str(runtime_folder)})
    assert code == 0, said


def test_every_example_is_listed_says_how_it_is_run_and_is_short() -> None:
    page = (EXAMPLES / "README.md").read_text()
    for path in sorted(EXAMPLES.glob("*.py")):
        assert f"[{path.name}]({path.name})" in page
        assert path.read_text().partition('\n"""\n')[0].endswith(f"\n    python {path.name}")
        assert len(path.read_text().splitlines()) <= 70
    assert "[notebook.ipynb](notebook.ipynb)" in page
