"""Finds an episode by what a person names: a task, the whole name of an attempt, or an attempt's folder."""

from __future__ import annotations

import re

import msgspec

from deskroll.errors import InputError, StoreError, plain
from deskroll.store import paths
from deskroll.store.attempt import AttemptReader
from deskroll.store.index import shown
from deskroll.store.reader import Run
from deskroll.store.storage import Storage
from deskroll.types import EpisodeKey, Record

_LISTED = 5
_NUMBERED = re.compile(r"#\d{1,9}$")
_WHOLE = re.compile(r"(?P<phase>[^/]+)/(?P<round>\d{1,9})/(?P<task>.+)/(?P<sample>\d{1,9})", re.DOTALL)


class Named(Record, frozen=True):
    """An episode, and perhaps an attempt of it, as a person names it."""

    task: str = ""
    """The whole id, or its first characters; empty: the run's only one."""
    sample: int | None = None
    attempt: int | None = None
    phase: str | None = None
    round: int | None = None

    @classmethod
    def parse(cls, text: str) -> Named:
        """`note`, or `eval/0/note/0` with all of its key, and `#1` behind either for an attempt."""
        text, _, number = text.rpartition("#") if _NUMBERED.search(text) else (text, "", "")
        attempt = int(number) if number else None
        if (found := _WHOLE.fullmatch(text)) is None:
            return cls(task=text, attempt=attempt)
        return cls(
            task=found["task"], sample=int(found["sample"]), attempt=attempt, phase=found["phase"],
            round=int(found["round"]),
        )  # fmt: skip

    def narrowed(self, sample: int | None, attempt: int | None) -> Named:
        """The same with what was said besides."""
        return msgspec.structs.replace(
            self,
            sample=self.sample if sample is None else sample,
            attempt=self.attempt if attempt is None else attempt,
        )

    def fits(self, key: EpisodeKey, *, whole: bool) -> bool:
        """Whether it may mean that episode; `whole`: by its whole id."""
        task = key.task == self.task if whole else key.task.startswith(self.task)
        return (
            task
            and key.sample == (self.sample or 0)
            and self.phase in (None, key.phase)
            and self.round in (None, key.round)
        )


def find_attempt(root: str, named: Named, *, latest: bool = False) -> tuple[EpisodeKey, int]:
    """The episode of a run that a person means; without an attempt the one that counts, or the `latest` of several."""
    run = Run.open(root)
    key = _find_key(run, named)
    attempt = named.attempt
    if attempt is None:
        outcome = run.index.episode(key)
        if outcome is None and not latest:
            raise InputError(f"{shown(key)} has no outcome yet: say which attempt is meant")
        attempt = outcome.attempt if outcome else run.index.attempts(key)
    if not run.attempt(key, attempt).files():
        raise InputError(f"{shown(key)} has no attempt {attempt}")
    return key, attempt


def _find_key(run: Run, named: Named) -> EpisodeKey:
    for whole in (True, False):
        keys = [key for key in run.index.entries if named.fits(key, whole=whole)]
        if len(keys) == 1:
            return keys[0]
        if keys:
            raise InputError(
                f"run {plain(run.root)} has {len(keys)} episodes of sample {keys[0].sample} {_which(keys)}"
            )
    of = f"task {plain(named.task)!r}, sample {named.sample or 0}"
    known = sorted({key.task for key in run.index.entries})
    there = f"; tasks: {_some(known)}" if known else ": none was begun"
    raise InputError(f"run {plain(run.root)} has no episode of {of}{there}")


def _which(keys: list[EpisodeKey]) -> str:
    """How these differ, and how one of them is named."""
    tasks = sorted({key.task for key in keys})
    if len(tasks) > 1:
        return f"({_some(tasks)}): say which task"
    places = [f"{phase}/{number}" for phase, number in sorted((key.phase, key.round) for key in keys)]
    how = "name it whole, phase/round/task/sample, or its attempt's folder"
    return f"of task {plain(tasks[0])!r} (phase/round: {_some(places)}): {how}"


def _some(names: list[str]) -> str:
    return ", ".join(map(plain, names[:_LISTED])) + (", ..." if len(names) > _LISTED else "")


def attempt_at(path: str) -> tuple[str, EpisodeKey, int] | None:
    """The run, the episode and the number of the attempt whose folder this is; None where it is none."""
    parts = path.rstrip("/").removesuffix("/" + paths.EPISODE_JSON).split("/")
    if len(parts) < 7 or parts[-6] != paths.EPISODES or not (parts[-1] + parts[-2] + parts[-4]).isdecimal():
        return None
    root, number = "/".join(parts[:-6]) or ".", int(parts[-1])
    reader = AttemptReader(Storage.at(root), "/".join(parts[-6:]))
    try:
        sealed = reader.episode()
    except StoreError as error:
        raise InputError(str(error)) from error
    if sealed is not None:
        return root, sealed.key, number
    phase, task = paths.unescape(parts[-5]), paths.unescape(parts[-3])
    if phase is None or task is None:
        raise InputError(
            f"{plain(path)}: its name was cut and it was not sealed; name the run, the task and the attempt"
        )
    return root, EpisodeKey(phase=phase, round=int(parts[-4]), task=task, sample=int(parts[-2])), number
