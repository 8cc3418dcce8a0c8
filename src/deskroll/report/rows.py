"""Reports as files for other programs: one row an episode, and the tasks that differ between two runs."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from deskroll.errors import InputError
from deskroll.report.compare import Comparison, Side, TaskChange
from deskroll.report.outcome import outcome_of
from deskroll.report.results import Results
from deskroll.store.paths import attempt_folder
from deskroll.types import Episode, Stage

EPISODE_COLUMNS = (
    "phase", "round", "task_id", "sample", "attempt", "domain", "outcome", "success", "score", "reason", "found",
    "expected", "stop",
    "failure_class", "failure_kind", "error", "steps", "actions", "seconds", "prompt_tokens", "completion_tokens",
    "model_calls", "cost_usd", "model", "desktop", "started_at", "ended_at", "question", "answer", "folder",
    *(f"{stage.value}_s" for stage in Stage),
)  # fmt: skip
CHANGE_COLUMNS = ("task_id", "domain", "change", "score_a", "score_b", "samples_a", "samples_b", "scored_a", "scored_b",
                  "unscored_by_a", "unscored_by_b", "answer_a", "answer_b")  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\n")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
Cell = str | int | float | None


def episodes_csv(results: Results) -> str:
    """One row an episode, in order; an empty cell where there is nothing (an unscored episode's score)."""
    ordered = sorted(results.outcomes, key=lambda episode: episode.key)
    return csv_text(EPISODE_COLUMNS, (_episode(episode, results) for episode in ordered))


def _episode(episode: Episode, results: Results) -> Sequence[Cell]:
    key, usage, failure, score = episode.key, episode.usage, episode.failure, episode.points
    return (
        key.phase, key.round, key.task, key.sample, episode.attempt, episode.domain, outcome_of(episode).value,
        None if score is None else int(episode.success), score, episode.score.reason,
        episode.score.found, episode.score.expected, episode.stop.value,
        failure.failure_class.value if failure else None, failure.kind if failure else None,
        failure.message if failure else None, episode.steps, episode.actions,
        round(max(0.0, episode.ended_at - episode.started_at), 3), usage.prompt_tokens, usage.completion_tokens,
        usage.calls, usage.cost_usd, episode.model, episode.desktop, episode.started_at, episode.ended_at,
        results.question(key), episode.answer, attempt_folder(key, episode.attempt),
        *(round(episode.seconds.get(stage.value, 0.0), 3) for stage in Stage),
    )  # fmt: skip


def changes_file(comparison: Comparison, path: Path) -> str:
    """The differing tasks of a comparison, as the suffix of the file says: .csv or .json."""
    if path.suffix.lower() == ".csv":
        return csv_text(CHANGE_COLUMNS, map(_change, comparison.changes))
    if path.suffix.lower() == ".json":
        return msgspec.json.format(msgspec.json.encode(comparison), indent=2).decode() + "\n"
    raise InputError(f"{path}: the suffix says what is written: use .json or .csv")


def _change(change: TaskChange) -> Sequence[Cell]:
    both = zip(_side(change.a), _side(change.b), strict=True)
    return (change.task, change.domain, change.change.value, *(cell for pair in both for cell in pair))


def _side(side: Side | None) -> tuple[Cell, ...]:
    if side is None:
        return (None,) * 5
    return (side.score, side.samples, side.scored, " ".join(side.unscored_by), side.answer)


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Rows as CSV, safe for spreadsheets."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(cell) for cell in row])
    return out.getvalue()


def _cell(cell: Cell) -> Cell:
    """Text without control characters; what a spreadsheet would run as a formula is marked as text: models wrote it."""
    if not isinstance(cell, str):
        return cell
    text = cell if cell.isprintable() else "".join(filter(_allowed, cell))
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text


def _allowed(sign: str) -> bool:
    return sign in "\n\t" or unicodedata.category(sign) not in ("Cc", "Cs")


def write_text(path: Path, text: str, what: str = "") -> None:
    """Write a file that somebody named; an error calls it `what`."""
    try:
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise InputError(f"cannot write {what}{path}: {error.strerror or error}; give another file") from error
