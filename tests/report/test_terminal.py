"""Reports on terminals of any width: names stay, numbers are whole or not there."""

import io
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from rich.console import Console, RenderableType

from deskroll.errors import FailureClass
from deskroll.report import compare, repeats, summarise, terminal, words
from deskroll.report.results import Results
from deskroll.types import Score, Usage
from tests.report.episodes import episode


def printed(shown: RenderableType, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(shown)
    return out.getvalue()


def whole(text: str, names: Sequence[str], width: int) -> None:
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in text
    for name in names:
        assert any(line.startswith(name[:12]) for line in lines), name


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 200])
def test_a_report_fits(full_run: Path, width: int) -> None:
    results = Results.read(full_run)
    summary = results.summary()
    text = printed(terminal.report(results.name, results.state, summary, width), width)
    whole(text, ["chrome", "libreoffice_calc", "os", "vlc", "all", "settle", "evaluator"], width)
    overall = next(line for line in text.splitlines() if line.startswith("all"))
    assert words.percent(summary.overall.over_scored.value) in overall
    assert (words.interval(summary.overall.over_scored) in overall) == (width >= 80)
    assert (words.percent(summary.overall.over_attempted.value) in overall) == (width >= 40)
    assert (f"{summary.overall.attempted}/{summary.overall.planned}" in overall) == (width >= 60)


@pytest.mark.parametrize("width", [40, 60, 200])
def test_runs_beside_each_other_fit(repeat_runs: list[Path], width: int) -> None:
    a, b = map(Results.read, map(str, repeat_runs))
    found = repeats({each.name: (each.planned, each.outcomes) for each in (a, b)})
    whole(printed(terminal.repeated(found, width), width), ["repeat-1", "repeat-2", "total", "over scored"], width)
    compared = compare(a.outcomes, b.outcomes, (a.name, b.name))
    text = printed(terminal.compared(compared, width), width)
    whole(text, [change.task for change in compared.changes], width)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_what_was_found_stands_beside_what_was_expected(width: int) -> None:
    told = Score(value=0.0, reason="another text", found="It says 41.\x1b[2J", expected="It says 42.")
    right = Score(value=1.0, reason="the same text", found="It says 42.", expected="It says 42.")
    nothing = Score(value=0.0, reason="no answer was given", expected="7")
    scores = {"note": told, "right": right, "empty": nothing, "by-hand": Score(value=0.0, reason="made by hand")}
    summary = summarise(4, [msgspec.structs.replace(episode(task), score=each) for task, each in scores.items()])
    assert [(each.task, each.found, each.expected) for each in summary.missed] == [
        ("by-hand", None, None), ("empty", None, "7"), ("note", told.found, told.expected),
    ]  # fmt: skip
    text = printed(terminal.report("r", "finished", summary, width), width)
    assert "It says 41." in text
    assert "It says 42." in text
    assert re.search(r"^empty .*nothing", text, re.MULTILINE)
    assert "\x1b" not in text
    assert ("made by hand" in text) == (width == 200)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_what_only_the_evaluator_knows_is_told(width: int) -> None:
    half = Score(value=0.5, reason="half way there", found="hi")
    summary = summarise(1, [msgspec.structs.replace(episode("note"), score=half)])
    text = printed(terminal.report("r", "finished", summary, width), width)
    assert "EXPECTED" not in text
    assert not re.search(r"^note .*nothing", text, re.MULTILINE)
    assert ("half way there" in text) == (width > 40)
    alone = summarise(1, [msgspec.structs.replace(episode("note"), score=Score(value=0.5, reason="half way there"))])
    text = printed(terminal.report("r", "finished", alone, width), width)
    assert re.search(r"half way +there|half way there", text.replace("\n", " "))


@pytest.mark.parametrize(
    ("width", "intervals", "attempted"), [(200, True, True), (60, False, True), (30, False, False)]
)
def test_only_what_is_shown_is_explained(full_run: Path, width: int, intervals: bool, attempted: bool) -> None:
    summary = Results.read(full_run).summary()
    text = " ".join(printed(terminal.report("r", "finished", summary, width), width).split())
    assert ("In brackets: 95% intervals." in text) == intervals
    assert ("Over attempted: what" in text) == attempted
    assert "Over scored: it is left out." in text


def test_what_is_long_goes_on_below_itself(full_run: Path) -> None:
    text = printed(terminal.report("r", "finished", Results.read(full_run).summary(), 40), 40)
    totals = text[text.index("stopped by") :].splitlines()
    labels = [line[:12].strip() for line in totals]
    assert [label for label in labels if label] == ["stopped by", "time", "model", "cost", "steps", "desktops"]


def test_a_moment_says_nothing_about_the_speed() -> None:
    used = Usage(calls=1)
    alone = summarise(1, [episode(usage=used)])
    two = msgspec.structs.replace(summarise(2, [episode("a"), episode("b")]), wall_s=30.0, episodes_per_minute=4.0)
    assert words.speed(msgspec.structs.replace(alone, wall_s=0.018, episodes_per_minute=3348.9)) == ""
    assert words.speed(two) == "4.0 episodes a minute"
    assert words.speed(msgspec.structs.replace(two, wall_s=0.5)) == ""


def test_a_failure_is_told_with_an_example_and_a_missing_score_with_its_reason() -> None:
    summary = summarise(2, [episode("a", None, failure=FailureClass.MODEL), episode("b", None)])
    text = printed(terminal.report("r", "finished", summary, 120), 120)
    assert re.search(r"^model .* ModelError 1 +broke *$", text, re.MULTILINE)
    assert "No score for 1: made by hand" in text


@pytest.mark.parametrize("width", [100, 200])
def test_of_a_long_failure_the_end_is_told_too(width: int) -> None:
    said = f"set-up step 2 (launch): desktop local-7fb: POST /setup/launch answered 500: {'and so on ' * 60}"
    failed = episode("a", None, failure=FailureClass.SETUP)
    assert failed.failure is not None
    failure = msgspec.structs.replace(failed.failure, message=f"{said}No such file or directory: 'soffice'")
    summary = summarise(1, [msgspec.structs.replace(failed, failure=failure)])
    text = " ".join(printed(terminal.report("r", "finished", summary, width), width).split())
    assert "set-up step" in text
    assert "'soffice'" in text
    assert "and so on" in text


def test_one_of_a_kind_has_no_plural() -> None:
    used = Usage(prompt_tokens=10, completion_tokens=1, calls=1, cost_usd=0.0000123)
    text = printed(terminal.report("r", "finished", summarise(1, [episode(usage=used)]), 100), 100)
    assert "1 attempt (0 retried)" in text
    assert "model       1 call, " in text
    assert "cost        0.000012 USD" in text


@pytest.mark.parametrize(
    ("usd", "unknown", "calls", "shown"),
    [
        (0.0, 0, 0, "nothing: no model answered"),
        (0.0, 0, 3, "0 USD"),
        (0.0, 1, 3, "unknown for 1 attempt"),
        (0.0000123, 0, 1, "0.000012 USD"),
        (0.0042, 2, 5, "0.0042 USD, and 2 attempts of unknown cost"),
        (0.25, 0, 1, "0.25 USD"),
        (1234.5, 0, 1, "1,234.50 USD"),
    ],
)
def test_money(usd: float, unknown: int, calls: int, shown: str) -> None:
    assert words.money(usd, unknown, calls) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (0.0004, "<1 ms"), (0.0006, "1 ms"), (0.25, "250 ms"), (3.44, "3.4 s"), (310, "5 min 10 s")],
)
def test_durations(seconds: float, shown: str) -> None:
    assert words.duration(seconds) == shown


def test_how_often_the_prefix_held_is_told_where_tokens_are_known() -> None:
    known = msgspec.structs.replace(episode(), joinable=8, joined=6)
    text = printed(terminal.report("r", "finished", summarise(1, [known]), 100), 100)
    assert "prefix      held in 75.0% of turns after the first" in text
    assert "prefix" not in printed(terminal.report("r", "finished", summarise(1, [episode()]), 100), 100)
