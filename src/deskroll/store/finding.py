"""Finds an episode by what a person names: a task, the whole name of an attempt, or an attempt's folder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

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
    def readings(cls, text: str) -> tuple[Named, ...]:
        """All that a text may mean: the whole id of a task first, since an id may look like anything else.

        Else it is `eval/0/note/0`, with all of its key, and `#1` may stand behind either for an attempt.
        """
        readings = [cls(task=text), *cls._by_key(text)]
        if _NUMBERED.search(text):
            text, _, number = text.rpartition("#")
            readings += [cls(task=text, attempt=int(number)), *cls._by_key(text, int(number))]
        return tuple(readings)

    @classmethod
    def _by_key(cls, text: str, attempt: int | None = None) -> Iterator[Named]:
        if found := _WHOLE.fullmatch(text):
            sample, number = int(found["sample"]), int(found["round"])
            yield cls(task=found["task"], sample=sample, attempt=attempt, phase=found["phase"], round=number)

    def narrowed(self, sample: int | None, attempt: int | None) -> Named | None:
        """The same with what was said besides; None where that says otherwise."""
        if None not in (sample, self.sample) and sample != self.sample:
            return None
        if None not in (attempt, self.attempt) and attempt != self.attempt:
            return None
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


def find_attempt(
    root: str, text: str, sample: int | None = None, attempt: int | None = None, *, latest: bool = False
) -> tuple[EpisodeKey, int]:
    """The episode of a run that a person means by a text and, where that does not say them, by numbers.

    Without an attempt it is the one that counts, or the `latest` of several.
    """
    run = Run.open(root)
    readings = [each.narrowed(sample, attempt) for each in Named.readings(text)]
    key, named = _find(run, [each for each in readings if each is not None])
    number = named.attempt
    if number is None:
        outcome = run.index.episode(key)
        if outcome is None and not latest:
            raise InputError(f"{shown(key)} has no outcome yet: say which attempt is meant")
        number = outcome.attempt if outcome else run.index.attempts(key)
    if not run.attempt(key, number).files():
        raise InputError(f"{shown(key)} has no attempt {number}")
    return key, number


def _find(run: Run, readings: Sequence[Named]) -> tuple[EpisodeKey, Named]:
    """The only episode that one of the readings means: by a whole id, else by its first characters."""
    for whole in (True, False):
        for some in (readings[:1], readings[1:]):
            found = [(key, named) for named in some for key in run.index.entries if named.fits(key, whole=whole)]
            if len(found) == 1:
                return found[0]
            if found:
                keys = [key for key, _ in found]
                of = f" of sample {keys[0].sample}" if len({key.sample for key in keys}) == 1 else ""
                raise InputError(f"run {plain(run.root)} has {len(keys)} episodes{of} {_which(keys)}")
    named = readings[-1]
    of = f"task {plain(named.task)!r}, sample {named.sample or 0}"
    if samples := _samples(run, readings):
        raise InputError(f"run {plain(run.root)} has no episode of {of}; samples of it: {_some(samples)}")
    known = sorted({key.task for key in run.index.entries})
    there = f"; tasks: {_some(known)}" if known else ": none was begun"
    raise InputError(f"run {plain(run.root)} has no episode of {of}{there}")


def _samples(run: Run, readings: Sequence[Named]) -> list[str]:
    """Which samples there are of a task that one of the readings names by its whole id."""
    tasks = {named.task for named in readings}
    return list(map(str, sorted({key.sample for key in run.index.entries if key.task in tasks})))


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
