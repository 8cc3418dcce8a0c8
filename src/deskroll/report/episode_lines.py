"""One episode for the terminal, step by step: what was thought, done, answered and seen, with the files of it."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from deskroll.errors import StoreError, plain
from deskroll.report import words
from deskroll.report.episode_view import shown_action, times
from deskroll.report.outcome import Outcome, outcome_of
from deskroll.report.page import episode_facts
from deskroll.report.results import Results
from deskroll.store import AttemptReader
from deskroll.store.names import NAMED_BY, attempt_name
from deskroll.store.paths import SCREENS
from deskroll.types import Episode, EpisodeKey, Record, Step

_COLOURS = {Outcome.SUCCESS: "green", Outcome.PARTIAL: "yellow", Outcome.FAILED: "red", Outcome.UNSCORED: "yellow",
            Outcome.GIVEN_UP: "dim"}  # fmt: skip
_LONG, _WHOLE = 1_000, 1_000_000
"""Characters of a text that are shown, and where all of it is asked for."""
_LONGEST_TRACE = 20_000


class Shown(Record, frozen=True, omit_defaults=False):
    """An attempt, for programs: its record, its steps and where its files are."""

    name: str
    """phase/round/task/sample#attempt."""
    run_id: str
    question: str
    counts: bool
    """Whether it is the episode's outcome."""
    attempts: int
    """How many the episode had."""
    folder: str
    files: tuple[str, ...]
    """In that folder."""
    episode: Episode | None
    """Its own account; null where it was not sealed: it goes on, or its process died."""
    steps: tuple[Step, ...]
    trace: str
    """The traceback of its failure, where it came from somebody's own code."""


def shown_attempt(results: Results, key: EpisodeKey, attempt: int) -> Shown:
    """What there is to say of an attempt; what the journal says of the one that counts goes before its own account."""
    reader = results.run.attempt(key, attempt)
    outcome = results.run.index.episode(key)
    counts = outcome is not None and outcome.attempt == attempt
    episode = outcome if counts else _own_account(reader)
    return Shown(
        name=attempt_name(key, attempt),
        run_id=results.name,
        question=results.question(key),
        counts=counts,
        attempts=results.run.index.attempts(key),
        folder=results.run.storage.shown(reader.folder),
        files=tuple(reader.files()),
        episode=episode,
        steps=tuple(reader.steps()),
        trace=_trace(reader, episode),
    )


def _own_account(reader: AttemptReader) -> Episode | None:
    try:
        return reader.episode()
    except StoreError:  # damaged: what else there is of it is shown
        return None


def _trace(reader: AttemptReader, episode: Episode | None) -> str:
    if episode is None or episode.failure is None or not episode.failure.trace:
        return ""
    try:
        return plain(reader.read(episode.failure.trace).decode(errors="replace"), _LONGEST_TRACE, keep="\n\t")
    except StoreError as error:
        return str(error)


def episode_lines(shown: Shown, results: Results, *, full: bool = False) -> Group:
    """An attempt, step by step."""
    longest = _WHOLE if full else _LONG
    parts: list[RenderableType] = [_head(shown), *_facts(shown, results, longest)]
    for step in shown.steps:
        parts += [Text(), *_step(step, longest)]
    if not shown.steps:
        parts += [Text(), Text("It has no steps.", style="dim")]
    if shown.trace:
        parts += [Text(), Text("traceback", style="bold"), Padding(Text(shown.trace, style="red"), (0, 0, 0, 2))]
    return Group(*parts, Text(), _files(shown))


def _head(shown: Shown) -> Text:
    head = Text.assemble((plain(shown.name), "bold"), "  ")
    episode = shown.episode
    if episode is None:
        return head.append("not sealed: it goes on, or its process died", style="yellow")
    outcome = outcome_of(episode)
    score = "" if episode.score.value is None else f" {words.number(episode.score.value)}"
    head.append(f"{outcome.value.replace('_', ' ')}{score}", style=_COLOURS[outcome])
    return head if shown.counts else head.append("  (does not count: another attempt does, or none yet)", style="dim")


def _facts(shown: Shown, results: Results, longest: int) -> Iterable[RenderableType]:
    table = _grid()
    of = f"; it has {words.counted(shown.attempts, 'attempt')}" if shown.attempts > 1 else ""
    table.add_row("named by", Text(NAMED_BY + of, style="dim"))
    facts = [] if shown.episode is None else list(episode_facts(shown.episode, results))
    if shown.episode is None and shown.question:
        table.add_row("task", Text(plain(shown.question, longest, keep="\n")))
    for fact in facts:
        table.add_row(fact.name, Text(plain(fact.value, longest, keep="\n\t"), overflow="fold"))
    if shown.episode is not None:
        ended = f"{shown.episode.stop.value.replace('_', ' ')}, after {words.counted(shown.episode.steps, 'step')}"
        table.add_row("ended by", Text(ended))
    yield table


def _step(step: Step, longest: int) -> Iterable[RenderableType]:
    took = ", ".join(filter(None, (times(step.seconds), step.settled.replace("_", " "))))
    yield Text.assemble((f"step {step.index}", "bold"), ("  " + took, "dim"))
    table = _grid()
    said = step.thought or (step.completion.text if step.completion else "")
    rows: list[tuple[str, str, str]] = [("thought", plain(said, longest, keep="\n\t"), "")]
    rows += [("action", shown_action(action), "cyan") for action in step.actions]
    rows += [("note", plain(each, longest), "yellow") for each in step.notes]
    rows += [("result", plain(each, longest, keep="\n\t"), "") for each in step.results]
    rows += [("screen", plain(step.screen), "dim")]
    for name, value, style in rows:
        if value:
            table.add_row(name, Text(value, style=style, overflow="fold"))
    yield Padding(table, (0, 0, 0, 2))


def _files(shown: Shown) -> Table:
    names = [plain(each) for each in shown.files if not each.startswith(f"{SCREENS}/")]
    if screens := len(shown.files) - len(names):
        names.append(f"{SCREENS}/ ({screens})")
    table = _grid()
    table.add_row("files", Text(", ".join(names) or "none"))
    return table


def _grid() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True, width=9)
    table.add_column(overflow="fold")
    return table
