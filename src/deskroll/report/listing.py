"""Many runs at a glance: one line each, how it stands, how well it did, what it cost.

Guarantees: a run that cannot be read is a line that says so, and hides no other.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from deskroll.errors import DeskrollError, plain
from deskroll.report import words
from deskroll.report.grid import Column, fitting, narrowing
from deskroll.report.made_of import model_name
from deskroll.report.results import Results
from deskroll.types import Record

_COLOURS = {"finished": "green", "running": "cyan", "unreadable": "red"}


class RunLine(Record, frozen=True, omit_defaults=False):
    """One run."""

    run_id: str
    folder: str
    state: str
    """finished, running, stopped, failed, broken off (its process died) or unreadable."""
    started_at: float | None = None
    """Seconds since the epoch."""
    env: str = ""
    agent: str = ""
    model: str = ""
    """Empty where the agent asks none."""
    planned: int = 0
    attempted: int = 0
    given_up: int = 0
    """Those that the policy of their group did not want any more."""
    scored: int = 0
    successes: int = 0
    success: float | None = None
    """Over scored; null where nothing is."""
    wall_s: float = 0.0
    """Time that it was under way, over all starts."""
    cost_usd: float | None = None
    """The part that is known; null where nothing of it is."""
    cost_unknown: int = 0
    """Attempts whose cost is not known."""
    model_calls: int = 0
    problem: str = ""
    """Why it cannot be read."""


def line_of(folder: str) -> RunLine:
    """What there is to say of the run in a folder."""
    try:
        results = Results.read(folder)
        summary = results.summary()
    except DeskrollError as error:
        name = folder.rstrip("/").rpartition("/")[2]
        return RunLine(run_id=name, folder=folder, state="unreadable", problem=plain(str(error)))
    config, overall, used = results.settings, summary.overall, summary.consumption
    return RunLine(
        run_id=results.name,
        folder=results.run.root,
        state=results.state.partition(":")[0],
        started_at=results.info.created_at or None,
        env=str(config.get("env", "")),
        agent=str(config.get("agent", "")),
        model=model_name(config) if used.model_calls else "",
        planned=results.planned,
        attempted=overall.attempted,
        given_up=overall.given_up,
        scored=overall.scored,
        successes=overall.successes,
        success=overall.over_scored.value,
        wall_s=round(summary.wall_s, 3),
        cost_usd=None if used.cost_unknown and not used.cost_usd else used.cost_usd,
        cost_unknown=used.cost_unknown,
        model_calls=used.model_calls,
    )


def listed(lines: Sequence[RunLine], width: int) -> Group:
    """Runs as a table, for a terminal of so many columns."""
    columns = [
        Column("RUN", [Text(plain(each.run_id, 60)) for each in lines], text=True),
        Column("STATE", [Text(each.state, style=_COLOURS.get(each.state, "yellow")) for each in lines], text=True),
        Column("STARTED", [_when(each.started_at) for each in lines]),
        Column("EPISODES", [_episodes(each) for each in lines]),
        Column("SUCCESS", [_success(each) for each in lines]),
        Column("TIME", [words.duration(each.wall_s) if each.attempted else words.NOTHING for each in lines]),
        Column("COST", [_cost(each) for each in lines]),
        Column("ENV, AGENT, MODEL", [Text(_what(each)) for each in lines], text=True),
    ]
    parts: list[RenderableType] = [
        fitting(width, *narrowing(columns, "TIME", "STARTED", "ENV, AGENT, MODEL", "EPISODES"))
    ]
    parts += [Text(f"! {plain(each.folder)}: {each.problem}", style="red") for each in lines if each.problem]
    return Group(*parts)


def _when(started_at: float | None) -> str:
    return words.NOTHING if started_at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(started_at))


def _episodes(line: RunLine) -> str:
    return f"{line.attempted + line.given_up:,}/{line.planned:,}" if line.planned else words.NOTHING


def _success(line: RunLine) -> str:
    return words.NOTHING if line.success is None else f"{words.percent(line.success)} of {line.scored:,}"


def _cost(line: RunLine) -> str:
    if not line.model_calls:
        return words.NOTHING
    if line.cost_usd is None:
        return "?"
    return f"{words.amount(line.cost_usd)} USD{' + ?' if line.cost_unknown else ''}"


def _what(line: RunLine) -> str:
    # Of a part that is named by a file the last name says enough, of a script that it is one.
    model = "scripted" if line.model.startswith("scripted:") else line.model
    parts = (each.rpartition("/")[2] for each in (line.env, line.agent, model))
    return plain(", ".join(filter(None, dict.fromkeys(parts))), 60)
