"""`deskroll report`, `stats` and `compare` as people use them."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from deskroll.errors import FailureClass
from deskroll.report.results import Results
from deskroll.report.rows import episodes_csv
from deskroll.report.summary import Summary
from deskroll.store import RunInfo, RunStore
from deskroll.store.journal import Planned, Reopened, Sealed, Started
from deskroll.types import EpisodeKey
from tests.report.episodes import episode


def deskroll(*args: str | Path, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deskroll", *map(str, args)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=80, check=False, cwd=cwd, env={**os.environ, **env}
    )


@pytest.mark.parametrize("command", ["report", "stats", "compare"])
def test_help_has_an_example(command: str) -> None:
    done = deskroll(command, "--help")
    assert done.returncode == 0
    assert f"\n    deskroll {command} results" in done.stdout


def test_report(full_run: Path, tmp_path: Path) -> None:
    done = deskroll("report", full_run, "--csv", tmp_path / "e.csv", "--html", tmp_path / "e.html")
    assert (done.returncode, done.stderr) == (0, "")
    assert "full-run  stopped: 56 of 60 episodes" in done.stdout
    for word in ("OVER ATTEMPTED", "OVER SCORED", "libreoffice_calc", "PASS@K", "EvaluatorError 1", "settle", "cost"):
        assert word in done.stdout
    assert "What was not scored" in (tmp_path / "e.html").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "e.csv").read_text(encoding="utf-8"))))
    assert list(csv.DictReader(io.StringIO(deskroll("report", full_run, "--csv", "-").stdout))) == rows
    assert len(rows) == 56
    assert {row["outcome"] for row in rows} == {"success", "partial", "failed", "unscored"}
    agent = next(row for row in rows if row["failure_class"] == "agent")
    assert (agent["success"], agent["score"]) == ("0", "0.0")
    desktop = next(row for row in rows if row["failure_class"] == "desktop")
    assert (desktop["success"], desktop["score"], desktop["outcome"]) == ("", "", "unscored")
    assert rows[0]["question"] == "Make the bookmarks bar show on every page."
    assert (full_run / rows[0]["folder"] / "episode.json").is_file()


def test_json_is_the_summary(full_run: Path) -> None:
    done = deskroll("report", full_run, "--json")
    summary = msgspec.json.decode(done.stdout, type=Summary)
    assert summary == Results.read(full_run).summary()
    assert {row.failure_class for row in summary.failures} == {
        "agent", "model", "desktop", "setup", "env", "evaluator", "worker", "cancelled"
    }  # fmt: skip
    assert summary.retried == 5
    assert [part.planned for part in summary.domains] == [16, 16, 14, 14]


def test_hostile_names_do_not_reach_the_terminal(hostile_run: Path) -> None:
    done = deskroll("report", hostile_run)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout


def test_formulas_do_not_reach_a_spreadsheet(full_run: Path) -> None:
    results = Results.read(full_run)
    hostile = msgspec.structs.replace(results.outcomes[0], answer="=HYPERLINK(1)")
    results.outcomes[0] = hostile
    row = next(row for row in csv.DictReader(io.StringIO(episodes_csv(results))) if "HYPERLINK" in row["answer"])
    assert row["answer"] == "'=HYPERLINK(1)"


@pytest.mark.parametrize(
    ("answer", "cell"),
    [
        ("-5", "-5"),
        ("+1.5e-3", "+1.5e-3"),
        ("-5+cmd", "'-5+cmd"),
        ("\x1b[31m=1\r+2", "[31m=1+2"),
        ("\r=1+2", "'=1+2"),
        (" =1", "' =1"),
        ("\t=1", "'\t=1"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x00\x85naïve – 世界", "naïve – 世界"),
    ],
)
def test_cells_hold_text_and_numbers_as_they_are(full_run: Path, answer: str, cell: str) -> None:
    results = Results.read(full_run)
    results.outcomes[:] = [msgspec.structs.replace(results.outcomes[0], answer=answer)]
    (row,) = csv.DictReader(io.StringIO(episodes_csv(results)))
    assert row["answer"] == cell


def test_stats(repeat_runs: list[Path]) -> None:
    done = deskroll("stats", *repeat_runs)
    assert done.returncode == 0
    for word in ("repeat-1", "repeat-2", "total", "DEVIATION", "BY CHANCE"):
        assert word in done.stdout
    found = json.loads(deskroll("stats", *repeat_runs, "--json").stdout)
    assert [run["name"] for run in found["runs"]] == ["repeat-1", "repeat-2"]
    assert found["total"]["attempted"] == 24
    assert "BETWEEN" not in deskroll("stats", repeat_runs[0]).stdout


def test_of_several_runs_the_newest_is_reported_and_named(repeat_runs: list[Path], tmp_path: Path) -> None:
    for number, run in enumerate(repeat_runs):
        shutil.copytree(run, tmp_path / run.name)
        info = json.loads((run / "run.json").read_text())
        (tmp_path / run.name / "run.json").write_text(json.dumps({**info, "created_at": 5.0 - number}))
    done = deskroll("report", tmp_path)
    assert done.returncode == 0
    assert done.stderr == f"the newest run in {tmp_path}: {tmp_path / 'repeat-1'}\n"
    assert done.stdout.startswith("repeat-1  ")
    assert deskroll("report", tmp_path / "repeat-1" / "run.json").stderr == ""
    assert "holds 2 runs: name one of them" in deskroll("stats", tmp_path).stderr


@pytest.mark.parametrize("command", ["report", "stats", "compare"])
def test_an_output_that_cannot_hold_every_sign(command: str, repeat_runs: list[Path], tmp_path: Path) -> None:
    runs = repeat_runs if command == "compare" else repeat_runs[:1]
    done = deskroll(command, *runs, cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "?" not in done.stdout
    assert command == "compare" or re.search(r"\(\d+-\d+%\)", done.stdout)


@pytest.mark.parametrize("content", [None, b"", b'{"type":"ope'])
def test_a_lost_journal_is_damage(full_run: Path, tmp_path: Path, content: bytes | None) -> None:
    root = tmp_path / "lost"
    shutil.copytree(full_run, root)
    (root / "journal.jsonl").unlink()
    if content is not None:
        (root / "journal.jsonl").write_bytes(content)
    done = deskroll("report", root)
    assert done.returncode == 1
    assert f"journal.jsonl is {'missing' if content is None else 'empty'}: the run's files are damaged" in done.stderr


def test_a_run_that_never_began_is_not_finished(full_run: Path, tmp_path: Path) -> None:
    shutil.copy(full_run / "run.json", tmp_path)
    done = deskroll("report", tmp_path)
    assert done.returncode == 1
    assert "killed before it had begun" in done.stderr


def test_compare_saves_what_differs(repeat_runs: list[Path], tmp_path: Path) -> None:
    done = deskroll("compare", *repeat_runs, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "tasks that are scored in both" in done.stdout
    saved = json.loads((tmp_path / "compare_repeat-1_repeat-2.json").read_text())
    assert saved["changes"]
    assert {change["change"] for change in saved["changes"]} >= {"unscored_in_b"}
    assert deskroll("compare", *repeat_runs, "--out", "d.csv", cwd=tmp_path).stdout.endswith("wrote d.csv\n")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "d.csv").read_text(encoding="utf-8"))))
    assert [row["task_id"] for row in rows] == [change["task"] for change in saved["changes"]]


def test_compare_can_save_nothing(repeat_runs: list[Path], tmp_path: Path) -> None:
    done = deskroll("compare", *repeat_runs, "--out", "-", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["a"] == "repeat-1"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["report", "{tmp}/nothing"], "is not a run"),
        (["report", "{tmp}"], "is not a run"),
        (["stats", "{run}", "{tmp}"], "is not a run"),
        (["compare", "{run}", "{tmp}/nothing"], "is not a run"),
        (["stats"], "Missing argument"),
        (["stats", "{run}", "{run}"], "named twice"),
        (["compare", "{run}", "{run}"], "named twice"),
        (["compare", "{run}", "{other}", "--out", "x.txt"], "use .json or .csv"),
        (["report", "{run}", "--screens", "small"], "give --html FILE"),
        (["report", "{run}", "--csv", "{tmp}/no/where.csv"], "cannot write"),
        (["report", "{run}", "--csv", "-", "--json"], "both write to standard output"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input_is_one_message_and_exit_code_2(
    args: list[str], words: str, repeat_runs: list[Path], tmp_path: Path
) -> None:
    named = {"tmp": tmp_path, "run": repeat_runs[0], "other": repeat_runs[1]}
    done = deskroll(*(arg.format(**named) for arg in args), cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


async def test_an_empty_run_is_reported(tmp_path: Path) -> None:
    async with RunStore.create(tmp_path / "empty", RunInfo(run_id="empty")):
        pass
    done = deskroll("report", tmp_path / "empty")
    assert done.returncode == 0
    assert "0 of 0 episodes" in done.stdout


async def test_a_run_that_goes_on_is_reported_as_such(tmp_path: Path) -> None:
    root = tmp_path / "live"
    async with RunStore.create(root, RunInfo(run_id="live")) as store:
        store.write(Planned(phase="eval", round=0, task="t", samples=2))
        store.write(Sealed(episode=episode("t"), epoch=store.epoch))
        await store.sync()
        assert Results.read(root).state == "running: 1 of 2 episodes"


async def test_an_outcome_that_a_resume_took_back_counts_as_retried(tmp_path: Path) -> None:
    root = tmp_path / "resumed"
    key = EpisodeKey(phase="eval", round=0, task="t", sample=0)
    async with RunStore.create(root, RunInfo(run_id="resumed")) as store:
        store.write(Planned(phase="eval", round=0, task="t", samples=1))
        store.write(Started(key=key, attempt=1, epoch=store.epoch))
        store.write(Sealed(episode=episode("t", None, failure=FailureClass.DESKTOP), epoch=store.epoch))
    async with RunStore.resume(root) as store:
        store.write(Reopened(key=key, epoch=store.epoch, at=1.0), Started(key=key, attempt=2, epoch=store.epoch))
        store.write(Sealed(episode=episode("t", attempt=2), epoch=store.epoch))
    results = Results.read(root)
    summary = results.summary()
    assert results.state == "finished: 1 of 1 episode"
    assert (summary.overall.successes, summary.overall.attempted, summary.retried) == (1, 1, 1)
    assert summary.failures[0].retried == 1


async def test_what_is_no_longer_planned_is_in_no_figure(tmp_path: Path) -> None:
    root = tmp_path / "revised"
    async with RunStore.create(root, RunInfo(run_id="revised")) as store:
        for task in ("kept", "gone"):
            store.write(Planned(phase="eval", round=0, task=task, samples=2))
            for sample in range(2):
                store.write(Sealed(episode=episode(task, sample=sample), epoch=store.epoch))
    async with RunStore.resume(root) as store:
        store.write(Planned(phase="eval", round=0, task="kept", samples=1, revised=True))
        store.write(Planned(phase="eval", round=0, task="gone", samples=0, revised=True))
    results = Results.read(root)
    summary = results.summary()
    assert results.state == "finished: 1 of 1 episode"
    assert results.tasks() == {"kept"}
    assert (summary.overall.attempted, summary.retried, summary.consumption.attempts) == (1, 0, 1)


async def test_the_starts_of_a_run_are_read(tmp_path: Path) -> None:
    root = tmp_path / "twice"
    async with RunStore.create(root, RunInfo(run_id="twice")):
        pass
    async with RunStore.resume(root):
        first, live = Results.read(root).starts
        assert first.begun <= first.ended <= live.begun == live.ended
