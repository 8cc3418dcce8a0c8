"""Reports for the terminal: rich tables of a summary, of repeats and of a comparison.

What comes from tasks and models is put in as `Text`, made printable: it can neither move the cursor nor be read as
mark-up.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from deskroll.errors import plain
from deskroll.report import words
from deskroll.report.compare import Change, Comparison, Procedure, Side, shown_p
from deskroll.report.repeats import Repeats, Scatter
from deskroll.report.summary import Summary, Tally

LONGEST_LIST = 40
"""Differing tasks that are shown; the file holds them all."""
_WIDE = 100
"""Columns of a terminal from which on a table shows all it has."""
_DENOMINATORS = (
    "Over attempted: what was not scored counts as no success. Over scored: it is left out. In brackets: 95% intervals."
)
_BY_CHANCE = "By chance: what independent episodes with one rate would scatter; runs over the same tasks scatter less."
_COLOURS = {Change.BETTER: "green", Change.WORSE: "red"}
_TESTS = {
    Procedure.MCNEMAR: "McNemar's exact test",
    Procedure.SIGN_FLIP: "paired sign-flip permutation test",
    Procedure.NONE: "no test",
}


def report(name: str, state: str, summary: Summary, width: int) -> Group:
    """The whole report of a run, for a terminal of so many columns."""
    parts: list[RenderableType] = [
        Text.assemble((plain(name), "bold"), "  ", (state, "green" if summary.finished else "yellow")),
        *(Text(note, style="dim") for note in summary.notes),
        Text(),
        _outcomes(summary, width),
        Text(_DENOMINATORS, style="dim"),
    ]
    for table in (_pass_at_k(summary), _failures(summary), _phases(summary)):
        if table is not None:
            parts += [Text(), table]
    return Group(*parts, Text(), *_totals(summary))


def repeated(found: Repeats, width: int) -> Group:
    """Several runs beside each other, for a terminal of so many columns."""
    table = _tallies("RUN", width)
    for run in found.runs:
        _add(table, run, run.name)
    if len(found.runs) > 1:
        table.add_section()
        _add(table, found.total, "total", style="bold")
    parts: list[RenderableType] = [table, Text(_DENOMINATORS, style="dim")]
    if len(found.runs) > 1:
        parts += [Text(), _scatter(found), Text(_BY_CHANCE, style="dim")]
    return Group(*parts)


def compared(found: Comparison) -> Group:
    """What differs between two runs."""
    a, b = plain(found.a), plain(found.b)
    head = [
        Text.assemble(("A  ", "dim"), (a, "bold")),
        Text.assemble(("B  ", "dim"), (b, "bold")),
        Text(),
        Text(plain(found.verdict, 1000), style="bold"),
    ]
    facts = Text(
        f"{found.paired:,} of {found.tasks:,} tasks are scored in both: {found.better} better, {found.worse} worse, "
        f"{found.same} the same."
    )
    if found.unscored_in_both:
        facts.append(f" {found.unscored_in_both} are unscored in both.")
    return Group(*head, facts, *_measured(found), *_changes(found))


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


def _changes(found: Comparison) -> Iterable[RenderableType]:
    if not found.changes:
        return
    table = _table("TASK", "DOMAIN", "CHANGE", "A", "B", right=("A", "B"))
    for change in found.changes[:LONGEST_LIST]:
        what = Text(change.change.replace("_", " "), style=_COLOURS.get(change.change, "yellow"))
        names = Text(plain(change.task, 60)), Text(plain(change.domain, 30))
        table.add_row(*names, what, _side(change.a), _side(change.b))
    yield Text()
    yield table
    if len(found.changes) > LONGEST_LIST:
        yield Text(f"... and {len(found.changes) - LONGEST_LIST:,} more", style="dim")


def _side(side: Side | None) -> str:
    if side is None:
        return words.NOTHING
    return words.number(side.score) if side.score is not None else ", ".join(side.unscored_by)


def _outcomes(summary: Summary, width: int) -> Table:
    table = _tallies("DOMAIN", width)
    for part in summary.domains:
        _add(table, part, part.name)
    table.add_section()
    if summary.phases:
        for part in summary.phases:
            _add(table, part, f"phase {part.name}")
        table.add_section()
    _add(table, summary.overall, "all", style="bold")
    return table


def _tallies(name: str, width: int) -> Table:
    """An empty table of tallies; on a narrow terminal without the mean score, which is the least missed."""
    table = _table(name, "ATTEMPTED", "SCORED", "SUCCESS", "OVER ATTEMPTED", "OVER SCORED", "MEAN SCORE")
    if width < _WIDE:
        table.columns.pop()
    return table


def _add(table: Table, part: Tally, name: str, style: str = "") -> None:
    of = f"/{part.planned:,}" if part.planned not in (None, part.attempted) else ""
    cells: tuple[RenderableType, ...] = (
        Text(plain(name, 40)),
        f"{part.attempted:,}{of}",
        f"{part.scored:,}",
        f"{part.successes:,}",
        words.rate(part.over_attempted),
        words.rate(part.over_scored),
        words.score(part.mean_score),
    )
    table.add_row(*cells[: len(table.columns)], style=style)


def _pass_at_k(summary: Summary) -> Table | None:
    if not summary.pass_at_k:
        return None
    table = _table("K", "PASS@K (any)", "PASS^K (all)", "TASKS", "LEFT OUT")
    for row in summary.pass_at_k:
        left_out = f"{row.left_out} with too few scored samples" if row.left_out else words.NOTHING
        table.add_row(str(row.k), words.percent(row.any_of_k), words.percent(row.all_of_k), f"{row.tasks:,}", left_out)
    return table


def _failures(summary: Summary) -> Table | None:
    if not summary.failures:
        return None
    table = _table("FAILED BY", "FINAL", "SCORED", "RETRIED", "ERRORS", left=("ERRORS",))
    for row in summary.failures:
        errors = Text(plain(words.listed(row.kinds), 100))
        table.add_row(row.failure_class, f"{row.final:,}", f"{row.scored:,}", f"{row.retried:,}", errors)
    return table


def _phases(summary: Summary) -> Table | None:
    if not summary.consumption.phases:
        return None
    table = _table("TIME", "SHARE", "TOTAL", "MEAN", "P50", "P95")
    for row in summary.consumption.phases:
        spread = row.seconds
        times = (words.duration(each) for each in (spread.total, spread.mean, spread.p50, spread.p95))
        table.add_row(Text(plain(row.phase, 30)), words.percent(row.share), *times)
    return table


def _totals(summary: Summary) -> Iterable[Text]:
    used = summary.consumption
    speed = f", {words.number(summary.episodes_per_minute, 1)} episodes a minute" if summary.episodes_per_minute else ""
    attempts = f"{used.attempts:,} attempts ({summary.retried:,} retried)"
    yield _line("stopped by", words.listed(summary.stops) or "nothing yet")
    yield _line("time", f"{words.duration(summary.wall_s)} under way{speed}; {attempts}")
    yield _line("model", f"{used.model_calls:,} calls, {words.tokens(used.prompt_tokens)} tokens in, "
                         f"{words.tokens(used.completion_tokens)} out")  # fmt: skip
    yield _line("cost", words.money(used.cost_usd, used.cost_unknown))
    yield _line(
        "steps", f"{used.steps.total:,.0f} in all; an attempt: mean {used.steps.mean:.1f}, p95 {used.steps.p95:.0f}"
    )
    yield _line("desktops", f"{used.desktops:,}")


def _scatter(found: Repeats) -> Table:
    table = _table("BETWEEN RUNS", "MEAN", "DEVIATION", "BY CHANCE", "LOWEST", "HIGHEST")
    rows: tuple[tuple[str, Scatter], ...] = (
        ("over attempted", found.over_attempted),
        ("over scored", found.over_scored),
    )
    for name, row in rows:
        cells = (row.mean, row.deviation, row.expected, row.lowest, row.highest)
        table.add_row(name, *(words.percent(cell) for cell in cells))
    return table


def _table(*heads: str, left: tuple[str, ...] = (), right: tuple[str, ...] = ()) -> Table:
    """Names to the left, numbers to the right; with `right`, only those columns."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, head in enumerate(heads):
        numeric = head in right if right else place > 0 and head not in left
        table.add_column(head, justify="right" if numeric else "left", no_wrap=numeric, overflow="fold")
    return table


def _line(label: str, text: str) -> Text:
    return Text.assemble((f"{label:<12}", "dim"), text)
