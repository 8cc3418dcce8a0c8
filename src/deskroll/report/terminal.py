"""Reports for the terminal: rich tables of a summary, of repeats and of a comparison, as wide as it is or less.

What comes from tasks and models is put in as `Text`, made printable: it can neither move the cursor nor be read as
mark-up.
"""

from __future__ import annotations

import codecs
import io
import sys
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from deskroll.errors import plain
from deskroll.host.console import PlainConsole
from deskroll.report import words
from deskroll.report.compare import Change, Comparison, Procedure, Side, shown_p
from deskroll.report.grid import GAP, Column, fitting, narrowing, without
from deskroll.report.repeats import Repeats, Scatter
from deskroll.report.summary import FailureCount, Missed, PassAtK, StageTime, Summary, Tally
from deskroll.report.train_terminal import training_parts
from deskroll.store.training import TRAIN

LONGEST_LIST = 40
"""Differing tasks that are shown; the file holds them all."""
_NO_TERMINAL = 200
"""Columns where no terminal folds lines: programs want them whole."""
_READABLE = 30
"""Columns that a text needs to be worth a column of its own, beside others."""
_EXAMPLE_LINES = 3
"""To which an error is folded."""
_PLAIN = {"–": "-", "…": "...", "’": "'", "·": "-"}
"""What stands for signs of ours where they cannot be written."""
_EXPLAINED = {
    "OVER ATTEMPTED": "Over attempted: what was not scored counts as no success.",
    "OVER SCORED": "Over scored: it is left out.",
    "(": "In brackets: 95% intervals.",
}
"""What columns, and brackets in them, mean."""
_BY_CHANCE = "By chance: what independent episodes with one rate would scatter; runs over the same tasks scatter less."
_COLOURS = {Change.BETTER: "green", Change.WORSE: "red"}
_TESTS = {
    Procedure.MCNEMAR: "McNemar's exact test",
    Procedure.SIGN_FLIP: "paired sign-flip permutation test",
    Procedure.NONE: "no test",
}


def console() -> Console:
    """Where reports are printed: standard output, whatever it can encode."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        codecs.register_error("deskroll.plain", _plain_signs)
        sys.stdout.reconfigure(errors="deskroll.plain")
    made = PlainConsole(highlight=False)
    return made if made.is_terminal else PlainConsole(highlight=False, width=_NO_TERMINAL)


def _plain_signs(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)  # noqa: S101  (nothing is read from where we print)
    return "".join(_PLAIN.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


def report(name: str, state: str, summary: Summary, width: int) -> Group:
    """The whole report of a run, for a terminal of so many columns."""
    parts: list[RenderableType] = [
        Text.assemble((plain(name), "bold"), "  ", (state, "green" if summary.done else "yellow")),
        *(Text(note, style="dim") for note in summary.notes),
        *(Text(f"No score for {count:,}: {plain(why)}", style="dim") for why, count in summary.no_score.items()),
        Text(),
    ]
    if summary.training is not None:
        parts += [*training_parts(summary.training, width), Text()]
    parts += _explained(_outcomes(summary, width))
    if summary.pass_at_k:
        parts += [Text(), _pass_at_k(summary.pass_at_k, width)]
    if summary.missed and summary.training is None:
        parts += [Text(), _missed(summary.missed, width)]
    if summary.failures:
        parts += [Text(), _failures(summary.failures, width)]
    if summary.consumption.phases:
        parts += [Text(), _phases(summary.consumption.phases, width)]
    return Group(*parts, Text(), _totals(summary))


def repeated(found: Repeats, width: int) -> Group:
    """Several runs beside each other, for a terminal of so many columns."""
    rows = [(run.name, run) for run in found.runs]
    several = len(rows) > 1
    if several:
        rows.append(("total", found.total))
    table = _tallies("RUN", rows, width, bold=several)
    parts: list[RenderableType] = [*_explained(table)]
    parts += [Text(note, style="yellow") for note in found.notes]
    if several:
        parts += [Text(), _scatter(found, width), Text(_BY_CHANCE, style="dim")]
    return Group(*parts)


def compared(found: Comparison, width: int) -> Group:
    """What differs between two runs, for a terminal of so many columns."""
    a, b = plain(found.a), plain(found.b)
    head = [
        Text.assemble(("A  ", "dim"), (a, "bold")),
        Text.assemble(("B  ", "dim"), (b, "bold")),
        Text(),
        Text(plain(found.verdict, 1000), style="bold"),
    ]
    are = "is" if found.paired == 1 else "are"
    facts = Text(
        f"{found.paired:,} of {words.counted(found.tasks, 'task')} {are} scored in both: {found.better:,} better, "
        f"{found.worse:,} worse, {found.same:,} the same."
    )
    if found.unscored_in_both:
        facts.append(f" {found.unscored_in_both:,} {'is' if found.unscored_in_both == 1 else 'are'} unscored in both.")
    return Group(*head, facts, *_measured(found), *_changes(found, width))


def _measured(found: Comparison) -> Iterable[Text]:
    if found.difference is None or found.p_value is None:
        return
    span = ""
    if found.low is not None and found.high is not None:
        span = f" ({found.low * 100:+.1f} to {found.high * 100:+.1f})"
    sides = f"A {words.percent(found.mean_a)}, B {words.percent(found.mean_b)}"
    yield Text(
        f"{sides}: {found.difference * 100:+.1f} points{span}, p {shown_p(found.p_value)} by {_TESTS[found.test]}."
    )


def _changes(found: Comparison, width: int) -> Iterable[RenderableType]:
    if not found.changes:
        return
    shown = found.changes[:LONGEST_LIST]
    columns = [
        Column("TASK", [Text(plain(each.task, 60)) for each in shown], text=True),
        Column("DOMAIN", [Text(plain(each.domain, 30)) for each in shown], text=True),
        Column("CHANGE", [_what(each.change) for each in shown], text=True),
        Column("A", [_side(each.a) for each in shown]),
        Column("B", [_side(each.b) for each in shown]),
    ]
    yield Text()
    yield fitting(width, *narrowing(columns, "DOMAIN"))
    if len(found.changes) > LONGEST_LIST:
        yield Text(f"... and {len(found.changes) - LONGEST_LIST:,} more", style="dim")


def _what(change: Change) -> Text:
    return Text(change.replace("_", " "), style=_COLOURS.get(change, "yellow"))


def _side(side: Side | None) -> str:
    if side is None:
        return words.NOTHING
    return words.number(side.score) if side.score is not None else ", ".join(side.unscored_by)


def _outcomes(summary: Summary, width: int) -> Table:
    if summary.phases:
        # Evaluations of a training run have rows of their own, each: together they are of several versions.
        shown = [part for part in summary.phases if summary.training is None or part.name == TRAIN]
        return _tallies("PHASE", [(part.name, part) for part in shown or summary.phases], width, bold=False)
    rows = [(part.name, part) for part in summary.domains]
    return _tallies("DOMAIN", [*rows, ("all", summary.overall)], width, bold=True)


def _tallies(name: str, rows: Sequence[tuple[str, Tally]], width: int, *, bold: bool) -> Table:
    """A table of tallies. What is missed least goes first; a rate is shown without its interval, never cut."""
    parts = [part for _, part in rows]
    columns = [
        Column(name, [Text(plain(each, 40)) for each, _ in rows], text=True),
        Column("ATTEMPTED", [_attempted(part) for part in parts]),
        Column("SCORED", [f"{part.scored:,}" for part in parts]),
        Column("SUCCESS", [f"{part.successes:,}" for part in parts]),
        Column("OVER ATTEMPTED", [words.rate(part.over_attempted) for part in parts]),
        Column("OVER SCORED", [words.rate(part.over_scored) for part in parts]),
        Column("MEAN SCORE", [words.score(part.mean_score) for part in parts]),
    ]
    narrow = [
        *columns[:4],
        Column("OVER\nATTEMPTED", [words.percent(part.over_attempted.value) for part in parts]),
        Column("OVER\nSCORED", [words.percent(part.over_scored.value) for part in parts]),
    ]
    return fitting(
        width,
        *narrowing(columns, "MEAN SCORE"),
        *narrowing(narrow, "SCORED", "ATTEMPTED", "OVER\nATTEMPTED", "SUCCESS"),
        bold=len(rows) - 1 if bold else None,
    )


def _explained(table: Table) -> Iterable[RenderableType]:
    """A table of tallies, and what is in it: of a narrow one, no more than it shows."""
    heads = [str(column.header).replace("\n", " ") for column in table.columns]
    rates = "".join(str(cell) for column in table.columns for cell in column.cells if "OVER " in str(column.header))
    said = (text for sign, text in _EXPLAINED.items() if sign in (rates if sign == "(" else heads))
    yield table
    yield Text(" ".join(said), style="dim")


def _attempted(part: Tally) -> str:
    of = f"/{part.planned:,}" if part.planned not in (None, part.attempted) else ""
    return f"{part.attempted:,}{of}"


def _pass_at_k(rows: Sequence[PassAtK], width: int) -> Table:
    columns = [
        Column("K", [str(row.k) for row in rows], text=True),
        Column("PASS@K (any)", [words.percent(row.any_of_k) for row in rows]),
        Column("PASS^K (all)", [words.percent(row.all_of_k) for row in rows]),
        Column("TASKS", [f"{row.tasks:,}" for row in rows]),
        Column("LEFT OUT", [_left_out(row.left_out) for row in rows], text=True),
    ]
    return fitting(width, *narrowing(columns, "LEFT OUT"))


def _left_out(number: int) -> str:
    return f"{number:,} with too few scored samples" if number else words.NOTHING


def _missed(rows: Sequence[Missed], width: int) -> Table:
    """What was found beside what was expected, and what the evaluator says; each as wide as there is room."""
    columns = [
        Column("NO SUCCESS", [Text(plain(row.task, 40)) for row in rows], text=True),
        Column("SCORE", [words.number(row.score) for row in rows]),
    ]
    texts = {
        "FOUND": [("nothing" if row.expected else "") if row.found is None else row.found for row in rows],
        "EXPECTED": [row.expected or "" for row in rows],
        "WHY": [row.reason for row in rows],
    }
    shown = [name for name, cells in texts.items() if any(cells)]
    room = width - sum(column.widest + GAP for column in columns)
    whole = _cut(texts, shown, room)
    if len(shown) == 1 or room >= len(shown) * _READABLE:
        return fitting(width, *narrowing([*columns, *whole], "SCORE"))
    compared = _cut(texts, [name for name in shown if name != "WHY"], room)
    return fitting(width, *narrowing([*columns, *compared], "SCORE", "EXPECTED"))


def _cut(texts: Mapping[str, Sequence[str]], names: Sequence[str], room: int) -> list[Column]:
    """Columns of texts that share so much room."""
    each = min(max(room // len(names) - GAP - len(" ..."), 12), 80)
    return [Column(name, [Text(plain(cell, each)) for cell in texts[name]], text=True) for name in names]


def _failures(rows: Sequence[FailureCount], width: int) -> Table:
    columns = [
        Column("FAILED BY", [row.failure_class for row in rows], text=True),
        Column("FINAL", [f"{row.final:,}" for row in rows]),
        Column("SCORED", [f"{row.scored:,}" for row in rows]),
        Column("RETRIED", [f"{row.retried:,}" for row in rows]),
        Column("ERRORS", [Text(plain(words.listed(row.kinds), 100)) for row in rows], text=True),
    ]
    room = width - sum(column.widest + GAP for column in columns)
    longest = min(max(room, 20), 90) * _EXAMPLE_LINES
    example = Column("FOR EXAMPLE", [Text(words.both_ends(row.example, longest)) for row in rows], text=True)
    return fitting(width, [*columns, example], *narrowing(columns, "SCORED", "ERRORS", "RETRIED"))


def _phases(rows: Sequence[StageTime], width: int) -> Table:
    columns = [
        Column("TIME", [Text(plain(words.stage(row.phase), 30)) for row in rows], text=True),
        Column("SHARE", [words.percent(row.share) for row in rows]),
        Column("TOTAL", [words.duration(row.seconds.total) for row in rows]),
        Column("MEAN", [words.duration(row.seconds.mean) for row in rows]),
        Column("P50", [words.duration(row.seconds.p50) for row in rows]),
        Column("P95", [words.duration(row.seconds.p95) for row in rows]),
    ]
    return fitting(width, *narrowing(columns, "P50", "TOTAL", "P95", "MEAN"))


def _totals(summary: Summary) -> Table:
    used, held = summary.consumption, summary.consumption.prefix_held
    speed = f", {each}" if (each := words.speed(summary)) else ""
    stopped = f", {summary.stopped:,} stopped with the run" if summary.stopped else ""
    attempts = f"{words.counted(used.attempts, 'attempt')} ({summary.retried:,} retried{stopped})"
    lines = {
        "groups": words.listed(summary.groups).replace("_", " "),
        "stopped by": words.listed(summary.stops) or "nothing yet",
        "time": f"{words.duration(summary.wall_s)} under way{speed}; {attempts}",
        "model": f"{words.counted(used.model_calls, 'call')}, {words.tokens(used.prompt_tokens)} tokens in, "
        f"{words.tokens(used.completion_tokens)} out",
        "prefix": f"held in {words.percent(held)} of turns after the first" if held is not None else "",
        "cost": words.money(used.cost_usd, used.cost_unknown, used.model_calls),
        "steps": f"{used.steps.total:,.0f} in all; an attempt: mean {used.steps.mean:.1f}, p95 {used.steps.p95:.0f}",
        "desktops": f"{used.desktops:,}" if used.desktops else "",
    }
    table = Table.grid(padding=(0, GAP, 0, 0))
    table.add_column(style="dim", no_wrap=True, width=10)
    table.add_column(overflow="fold")
    for label, text in lines.items():
        if text:
            table.add_row(label, Text(text))
    return table


def _scatter(found: Repeats, width: int) -> Table:
    rows: tuple[Scatter, ...] = (found.over_attempted, found.over_scored)
    columns = [
        Column("BETWEEN RUNS", ["over attempted", "over scored"], text=True),
        Column("MEAN", [words.percent(row.mean) for row in rows]),
        Column("DEVIATION", [words.percent(row.deviation) for row in rows]),
        Column("BY CHANCE", [words.percent(row.expected) for row in rows]),
        Column("LOWEST", [words.percent(row.lowest) for row in rows]),
        Column("HIGHEST", [words.percent(row.highest) for row in rows]),
    ]
    variants = narrowing(columns, "LOWEST", "HIGHEST", "MEAN", "BY CHANCE")
    return fitting(width, columns, without(columns, "LOWEST", "HIGHEST"), *variants[3:])
