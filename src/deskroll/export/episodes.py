"""Which episodes of a run are exported, and the walk over them that the layouts share.

One attempt is read at a time. What of a run is damaged is told and left out; all else is exported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deskroll.errors import InputError, StoreError, plain
from deskroll.export.output import Output
from deskroll.store import AttemptReader, Run, paths
from deskroll.store.evidence import has_manifest
from deskroll.types import Episode, Record, Stage, Step

Tell = Callable[[int, int], None]
"""Told how many of how many episodes are done."""
_BEFORE = (Stage.PERMIT, Stage.DESKTOP, Stage.SETUP)
"""What the first step's times hold besides the step itself."""


class Exported(Record, frozen=True, omit_defaults=False):
    """What came of an export."""

    run_id: str
    to: str
    output: str
    episodes: int = 0
    """Outcomes of the run that were chosen."""
    written: int = 0
    kept: int = 0
    """There already, from an export that was broken off."""
    empty: int = 0
    """Of which there is nothing to write in this layout: no screen, for a film."""
    problems: tuple[str, ...] = ()
    """Of episodes that could not be read: what is wrong with each."""


@dataclass(frozen=True)
class Chosen:
    """The episodes of a run that are exported: those that have an outcome."""

    run: Run
    episodes: Sequence[Episode]

    @classmethod
    def of(cls, run: Run, tasks: Sequence[str] = ()) -> Chosen:
        """All of them, or those of some tasks; `InputError` where that leaves none."""
        episodes = sorted(run.outcomes(), key=lambda episode: episode.key)
        if not episodes:
            raise InputError(f"no episode of run {plain(run.root)} has ended yet: there is nothing to export")
        known = {episode.key.task for episode in episodes}
        for task in tasks:
            if task not in known:
                raise InputError(f"run {plain(run.root)} has no outcome of a task {plain(task)!r}")
        return cls(run, [episode for episode in episodes if not tasks or episode.key.task in tasks])

    def __iter__(self) -> Iterator[tuple[Episode, AttemptReader]]:
        return ((episode, self.run.attempt(episode.key, episode.attempt)) for episode in self.episodes)


class Layout(Protocol):
    """How one episode becomes a folder."""

    def place(self, episode: Episode) -> str:
        """Its folder, relative to the output, with "/" between the parts."""

    def fill(self, episode: Episode, attempt: AttemptReader, folder: Path) -> bool:
        """Write its files; False where it has none in this layout."""


def export_folders(chosen: Chosen, layout: Layout, output: Output, to: str, tell: Tell) -> Exported:
    """A folder for every episode."""
    written = kept = empty = 0
    problems = []
    for number, (episode, attempt) in enumerate(chosen):
        place = layout.place(episode)
        tell(number, len(chosen.episodes))
        if output.has(place, attempt.folder):
            kept += 1
            continue
        try:
            filled = output.put(place, attempt.folder, functools.partial(_fill, layout, episode, attempt))
        except _Unreadable as error:
            problems.append(str(error))
            continue
        written, empty = written + filled, empty + (not filled)
    tell(len(chosen.episodes), len(chosen.episodes))
    return Exported(
        run_id=chosen.run.info.run_id, to=to, output=str(output.path), episodes=len(chosen.episodes),
        written=written, kept=kept, empty=empty, problems=tuple(problems),
    )  # fmt: skip


class _Unreadable(Exception):
    """One episode of the run cannot be read; that the output cannot be written holds for all of them."""


def _fill(layout: Layout, episode: Episode, attempt: AttemptReader, folder: Path) -> bool:
    try:
        check_whole(episode, attempt)
        return layout.fill(episode, attempt, folder)
    except StoreError as error:
        raise _Unreadable(str(error)) from error


def check_whole(episode: Episode, attempt: AttemptReader) -> None:
    """StoreError where files of an outcome are gone; one whose worker was lost left what it left."""
    if not has_manifest(episode):
        return
    there = set(attempt.files())
    manifest = attempt.manifest() if paths.EPISODE_JSON in there else None
    if manifest is None:
        what = f"its {paths.EPISODE_JSON} is missing" if there else "it is gone"
        raise StoreError(f"{attempt.shown}: {what}; restore the attempt's folder")
    if gone := [file.name for file in manifest.files if file.name not in there]:
        raise StoreError(f"{attempt.shown}: {plain(gone[0])} is missing; restore the attempt's folder")


def screens_of(files: Sequence[str]) -> list[str]:
    """The screens among an attempt's files, in the order in which they were first seen."""
    return sorted((name for name in files if name.startswith(f"{paths.SCREENS}/")), key=_number)


def beginning(steps: Sequence[Step], files: Sequence[str]) -> str:
    """The screen that was seen before the first step; empty where the agent kept none, or the next one is the same."""
    first = next(iter(screens_of(files)), "")
    after = next((step.screen for step in steps if step.screen), "")  # a step that looked at nothing has none
    return "" if first == after else first


def _number(name: str) -> tuple[int, str]:
    stem = name.rpartition("/")[2].partition(".")[0]
    return (int(stem) if stem.isdecimal() else 2**31, name)


def step_seconds(step: Step) -> float:
    """How long a step took, without what came before the first one."""
    return sum(seconds for name, seconds in step.seconds.items() if name not in _BEFORE)


def step_ends(episode: Episode, steps: Sequence[Step]) -> list[float]:
    """When each step ended, in seconds since the epoch."""
    ends, at = [], episode.started_at
    for step in steps:
        # The wait for a permit was over when the attempt started.
        at += sum(seconds for name, seconds in step.seconds.items() if name != Stage.PERMIT)
        ends.append(at)
    return ends
