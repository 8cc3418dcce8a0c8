"""Run: a run as anybody may read it, also while it goes on. Nothing is locked and nothing is written.

What is read is what was durable, or on its way to be, when `Run.open` or `refresh` was called. Attempts are read from
their folders: sealed ones as they were sealed, others as far as they got. `find_run` finds a run by what a person
names.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from deskroll.errors import InputError, StoreError, plain
from deskroll.host.home import expand_home
from deskroll.store import chain, journal, lock, paths
from deskroll.store.attempt import AttemptReader
from deskroll.store.evidence import agree, has_manifest
from deskroll.store.index import Index, shown
from deskroll.store.info import RunInfo, read_info
from deskroll.store.journal import DesktopChanged, JournalRecord
from deskroll.store.journal_bytes import check_unbegun, read_journal
from deskroll.store.local import LocalStorage
from deskroll.store.mending import follow, read_checked
from deskroll.store.storage import Storage, join
from deskroll.types import Episode, EpisodeKey

K = TypeVar("K", bound=JournalRecord)
_LISTED = 10
"""Runs that an error lists."""


class Run:
    """A run that is read."""

    def __init__(self, storage: Storage, info: RunInfo) -> None:
        self.storage = storage
        self.info = info
        self.index = Index()
        self.damage: tuple[str, ...] = ()
        """What had to be put right to read the journal, a line each; the file is as it was."""
        self._read = 0
        self._state = chain.START

    @classmethod
    def open(cls, root: str | Path) -> Run:
        """Read the run in the folder `root`; `find_run` finds that folder. StoreError where its files are damaged."""
        storage = Storage.at(root)
        run = cls(storage, read_info(storage))
        run.refresh()
        return run

    @property
    def root(self) -> str:
        """Its folder."""
        return self.storage.root

    def refresh(self) -> None:
        """Take in what was written since; where that cannot be read, what is known stays."""
        index, read, state = self.index, self._read, self._state
        if not self.storage.local:  # lines of a coordinator that was superseded may be gone again
            index, read, state = Index(), 0, chain.START
        raw = read_journal(self.storage, read)
        new = raw[: journal.whole(raw)]
        if not new and not read:
            check_unbegun(self.storage)
        after, read = follow(new, raw[len(new) :], state), read + len(new)
        if after is None:  # by now the file may hold more: all of it is read once, and nothing of before counts
            checked = read_checked(self.storage)
            index, new, read, self.damage = Index(), checked.data, checked.taken, checked.damage
            after = chain.state_after(new)
        index.extend(new, self.storage.shown(paths.JOURNAL))
        self.index, self._read, self._state = index, read, after

    def outcomes(self) -> list[Episode]:
        """The outcome of every episode that has one and is still planned."""
        return self.index.outcomes()

    def unfinished(self) -> list[EpisodeKey]:
        """Planned episodes that have no outcome."""
        return self.index.unfinished()

    def records(self, kind: type[K]) -> Iterator[K]:
        """Every record of one kind, in order, those of superseded coordinators included."""
        return self.index.records(kind)

    def desktop_changes(self) -> list[DesktopChanged]:
        """What became of the desktops, in order."""
        return list(self.records(DesktopChanged))

    def attempt(self, key: EpisodeKey, attempt: int) -> AttemptReader:
        """The folder of one attempt."""
        return AttemptReader(self.storage, paths.attempt_folder(key, attempt))

    def holder(self) -> lock.Holder | None:
        """Who runs it at this moment; None when nobody does, or when that cannot be seen."""
        return lock.holder(self.storage) if isinstance(self.storage, LocalStorage) else None

    def verify(self) -> list[str]:
        """What is wrong with the journal and the files of the outcomes, a line each; empty: nothing is.

        Of outcomes whose worker was lost the files are passed over: it wrote as far as it got, and no manifest.
        """
        problems = [*self.damage, *self.disagreements()]
        for outcome in self.outcomes():
            if has_manifest(outcome):
                try:
                    problems += self.attempt(outcome.key, outcome.attempt).verify()
                except StoreError as error:
                    problems.append(str(error))
        return problems

    def disagreements(self) -> Iterator[str]:
        """Outcomes whose `episode.json` says something else, a line each. The journal's checksums hold: it counts."""
        for outcome in self.outcomes():
            attempt = self.attempt(outcome.key, outcome.attempt)
            try:
                stored = attempt.episode() if has_manifest(outcome) else None
            except StoreError:  # `verify` names it
                continue
            if stored is not None and not agree(outcome, stored):
                yield (
                    f"{self.storage.shown(paths.JOURNAL)}, line {self.index.entries[outcome.key].line}: "
                    f"{attempt.folder}/{paths.EPISODE_JSON} says something else of {shown(outcome.key)}; the journal's "
                    "checksums are right, so the journal counts"
                )


def find_run(path: str | Path, *, newest: bool = False) -> str:
    """The folder of the run that `path` means; of several in it, the newest where that is asked for."""
    text = _folder(path)
    storage = Storage.at(text)
    if storage.exists(paths.RUN_JSON):
        return text
    runs = _runs(storage, text)
    if not runs:
        raise InputError(
            f"{plain(text)} is not a run and holds none: there is no {paths.RUN_JSON} in it or in a folder of it. "
            "Name the folder of a run (<output_dir>/<run_id>)"
        )
    if len(runs) == 1 or newest:
        return runs[0][1]
    listed = "\n".join(f"  {plain(run)}" for _, run in runs[:_LISTED])
    more = f"\n  and {len(runs) - _LISTED} more" if len(runs) > _LISTED else ""
    raise InputError(f"{plain(text)} holds {len(runs)} runs: name one of them (newest first):\n{listed}{more}")


def open_run(path: str | Path) -> Run:
    """The run that `path` means, to be read: its folder, or one that holds it alone."""
    return Run.open(find_run(path))


def list_runs(path: str | Path) -> list[str]:
    """The folders of all runs in a folder, newest first; that of a run itself is one."""
    text = _folder(path)
    storage = Storage.at(text)
    return [text] if storage.exists(paths.RUN_JSON) else [folder for _, folder in _runs(storage, text)]


def _folder(path: str | Path) -> str:
    """The folder that somebody named, by itself or by the run.json in it."""
    text = expand_home(str(path)).rstrip("/") or "/"
    if text.rpartition("/")[2] == paths.RUN_JSON:
        text = text.rpartition("/")[0] or ("/" if text.startswith("/") else ".")
    return text


def _runs(storage: Storage, text: str) -> list[tuple[float, str]]:
    """Runs in a folder, newest first."""
    found = []
    for name in storage.list():
        folder = join(text, name.rstrip("/"))
        if name.endswith("/") and storage.exists(f"{name}{paths.RUN_JSON}"):
            try:
                created_at = read_info(Storage.at(folder)).created_at
            except StoreError:  # it is a run, though a damaged one: whoever opens it is told
                created_at = 0.0
            found.append((created_at, folder))
    return sorted(found, reverse=True)
