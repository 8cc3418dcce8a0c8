"""A training run's report: evaluations with intervals and versions, steps, how busy all was; phases never mixed."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from PIL import Image

from deskroll.host.console import PlainConsole
from deskroll.report import terminal
from deskroll.report.curves import curves, running_mean
from deskroll.report.html import render, write_html
from deskroll.report.results import Results
from deskroll.report.summary import Method, Training
from deskroll.report.train_rows import COLUMNS, training_csv
from deskroll.report.training import covered, training_of
from deskroll.store.journal import DesktopChanged
from deskroll.types import Episode
from tests.browser import ask_page, needs_chromium
from tests.report.episodes import episode
from tests.report.test_cli_report import deskroll
from tests.report.training import BEGIN, RECORDS, STARTS, episodes, write_training


@pytest.fixture(scope="module")
async def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return await write_training(tmp_path_factory.mktemp("training") / "my-training")


def made(outcomes: list[Episode] | None = None, changes: tuple[DesktopChanged, ...] = ()) -> Training:
    found = episodes() if outcomes is None else outcomes
    return training_of(RECORDS, found, found, changes, STARTS, wanted=5, num_rollouts=8)


def test_each_evaluation_has_its_version_its_interval_and_what_it_held_up() -> None:
    baseline, second, third = made().evaluations
    assert [(each.phase, each.step, each.versions, each.whole) for each in (baseline, second, third)] == [
        ("baseline", 0, ("0",), True), ("eval", 2, ("2",), True), ("eval", 3, ("3",), False),
    ]  # fmt: skip
    assert (baseline.score.value, second.score.value) == (0.25, 0.75)
    assert second.score.method is Method.WILSON, "scores of 0 and 1 are a rate"
    assert second.score.low == pytest.approx(0.3006, abs=1e-3)
    assert (baseline.held_s, second.held_s, third.held_s) == (0.0, 8.0, None)
    assert (baseline.elapsed_s, second.elapsed_s, third.elapsed_s) == (10.0, 50.0, None), "pauses are cut out"


def test_scores_that_are_no_rate_have_the_interval_of_a_mean() -> None:
    (found,) = made([episode(f"e{n}", n / 4, phase="baseline") for n in range(4)]).evaluations[:1]
    assert found.score.value == pytest.approx(0.375)
    assert found.score.method is Method.STUDENT_T


def test_steps_and_how_busy_all_was_meanwhile() -> None:
    first, second, third = made().steps
    assert [each.elapsed_s for each in (first, second, third)] == [20.0, 30.0, 60.0]
    assert [each.reward for each in (first, second, third)] == [0.2, 0.4, 0.6]
    assert (second.no_signal, third.report.loss) == (2, 0.25)
    assert first.use.trainer == pytest.approx(4 / 20)
    assert first.use.episodes == {"baseline": pytest.approx(4 * 8 / 20), "eval": 0.0, "train": pytest.approx(15 / 20)}
    assert third.use.episodes["eval"] == pytest.approx(4 * 8 / 30, abs=1e-3)
    assert first.use.desktops is None


def test_desktops_are_used_while_they_are_leased() -> None:
    states = (("booting", 0.0), ("ready", 5.0), ("leased", 10.0), ("recycling", 15.0), ("gone", 20.0))
    changes = tuple(DesktopChanged(desktop="d", state=state, at=BEGIN + at) for state, at in states)
    found = made(changes=changes)
    assert found.steps[0].use.desktops == pytest.approx(0.25)
    assert found.steps[1].use.desktops is None, "there was none any more"
    assert len(found.windows) == 60
    assert found.windows[-1].end_s == 100.0


def test_time_is_spread_over_what_it_covers() -> None:
    assert covered([(0.0, 3.0), (1.0, 2.0)], [0.0, 1.0, 2.0, 4.0]) == [1.0, 2.0, 1.0]
    assert covered([(5.0, 9.0)], [0.0, 1.0]) == [0.0]
    assert covered([(0.0, 2.0)], [1.0, 1.0, 2.0]) == [0.0, 1.0]
    assert covered([(0.0, 2.0)], [0.0]) == []


def test_the_curve_is_smoothed_by_what_came_before() -> None:
    assert running_mean([1.0, 0.0, 0.5], 2) == [1.0, 0.5, 0.25]
    found = curves(made())
    assert (found.steps, found.reward, found.over, found.unit) == ([1, 2, 3], [0.2, 0.4, 0.6], 1, "seconds")
    assert [(each.step, each.score) for each in found.evaluations] == [(0, 0.25), (2, 0.75), (3, 1.0)]


def test_a_run_without_steps_is_one_too() -> None:
    found = training_of([], [], [], (), [])
    assert (found.steps, found.evaluations, found.windows) == ((), (), ())
    assert training_csv(found).splitlines() == [",".join(COLUMNS)]
    assert curves(found).edges == [0.0]


def test_phases_are_never_mixed_into_one_rate(run: Path) -> None:
    summary = Results.read(run).summary()
    assert (summary.overall.attempted, summary.overall.successes) == (13, 5)
    for part in (summary.overall, *summary.domains):
        assert (part.over_attempted.value, part.over_scored.value, part.mean_score.value) == (None, None, None)
    assert {part.name: part.over_scored.value for part in summary.phases} == {
        "baseline": 0.25,
        "eval": 0.8,
        "train": 0.0,
    }
    assert any("several phases" in note for note in summary.notes)


def test_the_terminal(run: Path) -> None:
    results = Results.read(run)
    for width in (76, 100, 200):
        out = io.StringIO()
        PlainConsole(file=out, width=width).print(terminal.report("r", "s", results.summary(), width))
        text = out.getvalue()
        assert all(len(line) <= width for line in text.splitlines())
        for words in ("\nstep 2 ", "\nstep 3, a part ", "3 of 5 steps taken on 6 groups", "REWARD", "0.600"):
            assert words in text, (width, text)
    assert "0.75 (0.30–0.95)" in text
    assert "2 without signal" in text
    assert "evaluations held training up for 8.0 s" in text
    assert "  all " not in text


def test_rows_for_other_programs(run: Path, tmp_path: Path) -> None:
    done = deskroll("report", run, "--train-csv", "-")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["phase"], row["step"]) for row in rows] == [
        ("baseline", "0"), ("train", "1"), ("train", "2"), ("eval", "2"), ("train", "3"), ("eval", "3"),
    ]  # fmt: skip
    assert (rows[3]["score"], rows[3]["version"], rows[3]["held_s"]) == ("0.75", "2", "8.0")
    assert (rows[4]["score"], rows[4]["loss"], rows[4]["hold_s"], rows[4]["success"]) == ("0.6", "0.25", "8.0", "")
    told = json.loads(deskroll("report", run, "--json", "--train-csv", tmp_path / "t.csv").stdout)
    assert [each["step"] for each in told["training"]["steps"]] == [1, 2, 3]
    assert (tmp_path / "t.csv").read_text() == done.stdout


def test_a_picture(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = deskroll("report", run, "--png", tmp_path / "c.png")
    assert done.returncode == 0, done.stderr
    assert f"wrote {tmp_path / 'c.png'}" in done.stdout.replace("\n", "")
    with Image.open(tmp_path / "c.png") as image:
        assert image.size == (1320, 792)
        assert len(image.convert("RGB").reduce(8).getcolors(100_000) or ()) > 50, "something is drawn"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--train-csv", "-", "--csv", "-"), "--csv - and --train-csv - both write to standard output"),
        (("--train-csv", "-", "--json"), "--json and --train-csv - both write to standard output"),
        (("--png", "-"), "--png needs a file, not standard output"),
        (("--png", "no/such/folder/c.png"), "cannot write no/such/folder/c.png: No such file or directory"),
    ],
)
def test_what_cannot_be_written_is_refused(run: Path, tmp_path: Path, flags: tuple[str, ...], said: str) -> None:
    done = deskroll("report", run, *flags, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize("flag", ["--png", "--train-csv"])
def test_a_run_that_trains_nothing_has_no_curves(full_run: Path, tmp_path: Path, flag: str) -> None:
    done = deskroll("report", full_run, flag, tmp_path / "f")
    assert done.returncode == 2
    assert f"is no training run, and {flag} is about those" in done.stderr
    assert not (tmp_path / "f").exists()


def test_the_page(run: Path) -> None:
    results = Results.read(run)
    text = render(results, results.summary())
    for words in ("eval after step 2", "Score by step", "Who is busy", "3 of 5 steps taken on 6 groups", "By phase"):
        assert words in text
    assert "Success over attempted</h2>" not in text


@needs_chromium
def test_the_page_draws_its_curves(run: Path, tmp_path: Path) -> None:
    results = Results.read(run)
    write_html(results, results.summary(), tmp_path / "page.html")
    ready, drawn = ask_page(
        tmp_path / "page.html",
        [
            "document.documentElement.dataset.ready",
            "['curve', 'lag', 'parts', 'busy'].map((name) => document.querySelector(`#plot-${name} canvas`))"
            ".map((canvas) => Chart.getChart(canvas).data.datasets.map((each) => each.label))",
        ],
        tmp_path,
    )
    assert ready == "yes"
    assert drawn == [
        ["training reward", "baseline", "evaluation"],
        ["median", "most"],
        ["wait for groups", "wait for evaluation", "train", "save", "refresh"],
        ["episodes of train", "episodes of eval", "episodes of baseline", "trainer, %"],
    ]  # fmt: skip
