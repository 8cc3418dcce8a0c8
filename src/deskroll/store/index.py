"""What the journal says, folded into one place: the plan, and what became of each episode.

`apply` is pure: no clock, no I/O; the same records in the same order give the same index. It holds the promise of
exactly one outcome: a second one for the same episode is refused, unless a resume took back the first. Records of a
coordinator that was superseded are not counted, only how many there were (`stale`).

`Index.load` reads a journal of 100,000 episodes in well under a second: outcomes are read in brief, and decoded in
full when somebody asks for them. Whoever writes a run keeps them in brief for good (`apply_in_brief`).
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from deskroll.errors import FailureClass, StoreError, plain
from deskroll.store import journal
from deskroll.store.journal import (
    Closed,
    DesktopChanged,
    Failed,
    GroupClosed,
    GroupOpened,
    JournalRecord,
    Opened,
    Planned,
    Reopened,
    Sealed,
    Started,
)
from deskroll.store.text import Text
from deskroll.types import Episode, EpisodeKey, StopReason, points_of

K = TypeVar("K", bound=JournalRecord)
GroupKey = tuple[str, int, str]
"""Phase, round, task."""


class BriefScore(msgspec.Struct, frozen=True, gc=False):
    """The number alone."""

    value: float | None


class BriefFailure(msgspec.Struct, frozen=True, gc=False):
    """Whose fault it was."""

    failure_class: FailureClass


class Brief(msgspec.Struct, frozen=True, gc=False):
    """Of an Episode what decides whether it is done; the fields are called as there."""

    key: EpisodeKey
    attempt: int
    stop: StopReason
    score: BriefScore
    failure: BriefFailure | None = None

    @property
    def points(self) -> float | None:
        """The score that counts; None where it is unscored."""
        return points_of(self.score.value, self.failure.failure_class if self.failure is not None else None)


class BriefSealed(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="sealed"):
    """A Sealed record in brief."""

    episode: Brief
    epoch: int


class BriefFailed(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="failed"):
    """A Failed record in brief."""

    episode: Brief
    epoch: int


_BriefRecord = (
    Opened
    | Planned
    | GroupOpened
    | GroupClosed
    | Started
    | BriefFailed
    | BriefSealed
    | Reopened
    | DesktopChanged
    | Closed
)
_brief_decoder: msgspec.json.Decoder[_BriefRecord] = msgspec.json.Decoder(_BriefRecord)


Outcome = Brief | Episode
"""How an episode ended, as far as decisions need it."""


class Entry:
    """What is known of one episode."""

    __slots__ = ("attempts", "key", "line", "outcome")

    def __init__(self, key: EpisodeKey) -> None:
        self.key = key
        self.attempts = 0
        """The highest number that was given to an attempt."""
        self.outcome: Outcome | None = None
        """How it ended, in brief where nobody has asked for more yet."""
        self.line = 0
        """The number of the line that says so in full, where it was read; 0 where it was written here."""


class Index:
    """A run as its journal tells it."""

    def __init__(self) -> None:
        self.epoch = 0
        self.opened: Opened | None = None
        """By whom it was opened last."""
        self.closed: Closed | None = None
        """How the last coordinator left; None while it runs, or when it died."""
        self.planned: list[Planned] = []
        self.entries: dict[EpisodeKey, Entry] = {}
        """Every episode of which an attempt was started or an outcome is known."""
        self.groups: dict[GroupKey, GroupOpened | GroupClosed] = {}
        """The last that is known of each group."""
        self.stale = 0
        """Records of superseded coordinators, which do not count."""
        self._sizes: dict[tuple[str, int], int] = {}
        """How many tasks each phase and round have, as the last record of their plan says; 0: it does not say."""
        self._plans: dict[tuple[str, int], dict[str, int]] = {}
        """Where in `planned` the tasks of each phase and round are."""
        self._revised: dict[GroupKey, int] = {}
        """How many samples are planned now, where that was changed."""
        self._outcomes = 0
        """Episodes that have an outcome, planned or not."""
        self._text = Text()
        self._folds: dict[type, Callable[[Any], None]] = {
            Opened: self._opened,
            Planned: self._planned,
            GroupOpened: self._group,
            GroupClosed: self._group,
            Started: self._started,
            Failed: self._failed,
            Sealed: self._sealed,
            Reopened: self._reopened,
            DesktopChanged: lambda record: None,
            Closed: self._closed,
            BriefFailed: self._failed,
            BriefSealed: self._sealed,
        }

    @classmethod
    def load(cls, data: bytes, name: str) -> Index:
        """The index of a whole journal; `name` is the file's, for errors."""
        index = cls()
        index.extend(data, name)
        return index

    def extend(self, data: bytes, name: str) -> None:
        """Take in more of a journal, of which this index has read all before; a torn last line is skipped."""
        number = self._text.count
        with uncollected():
            records = journal.decode_lines(data, _brief_decoder, name, number + 1)
            self._text.add(data, len(records))
            sealed, folds = self._sealed, self._folds
            try:
                for record in records:
                    number += 1
                    if type(record) is BriefSealed:
                        sealed(record, number)
                    else:
                        folds[type(record)](record)
            except StoreError as error:
                raise StoreError(f"{name}, line {number}: {error}") from error

    def apply(self, record: JournalRecord) -> None:
        """Take in one more record; StoreError where it contradicts what is known, and then nothing has changed."""
        self._folds[type(record)](record)

    def apply_in_brief(self, record: JournalRecord) -> None:
        """As `apply`, but keep of an outcome what decides, and no more: the journal has the rest."""
        self.apply(record)
        if isinstance(record, Sealed):
            entry = self.entries.get(record.episode.key)
            if entry is not None and entry.outcome is record.episode:  # and not stale
                entry.outcome = _brief(entry.key, record.episode)

    def forget_text(self) -> None:
        """Let go of the lines that were read: from now on outcomes are known in brief only, and no records are."""
        self._text = Text()

    def records(self, kind: type[K]) -> Iterator[K]:
        """Every record of one kind that was read, in order, those of superseded coordinators included."""
        prefix = b'{"type":"%s"' % str(kind.__struct_config__.tag).encode()
        for line in self._text.lines():
            if line.startswith(prefix):
                record = journal.decode(line)
                assert isinstance(record, kind)  # noqa: S101  (by its tag)
                yield record

    # --- what others want to know ---

    @property
    def done(self) -> int:
        """Episodes that have an outcome; those that are no longer planned do not count."""
        if not self._revised:
            return self._outcomes
        return sum(1 for key, entry in self.entries.items() if entry.outcome is not None and not self.dropped(key))

    def dropped(self, key: EpisodeKey) -> bool:
        """Whether an episode was planned once, and no longer is."""
        if not self._revised:
            return False
        samples = self._revised.get((key.phase, key.round, key.task))
        return samples is not None and key.sample >= samples

    def attempts(self, key: EpisodeKey) -> int:
        """The highest number that was given to an attempt; 0: none was started."""
        entry = self.entries.get(key)
        return entry.attempts if entry else 0

    def outcome(self, key: EpisodeKey) -> Outcome | None:
        """How an episode ended, in brief; None when it has not."""
        entry = self.entries.get(key)
        return entry.outcome if entry else None

    def written_here(self, key: EpisodeKey) -> bool:
        """Whether an episode has an outcome that was not read, but came since: of whoever writes this run now."""
        entry = self.entries.get(key)
        return entry is not None and entry.outcome is not None and not entry.line

    def episode(self, key: EpisodeKey) -> Episode | None:
        """How an episode ended, in full; None when it has not."""
        entry = self.entries.get(key)
        return self._full(entry) if entry else None

    def plan(self, phase: str, round_: int) -> dict[str, Planned]:
        """What is planned of one phase and round, by task, in the order of the plan."""
        return {task: self.planned[place] for task, place in self._plans.get((phase, round_), {}).items()}

    def unplanned(self, phase: str, round_: int) -> int:
        """How many tasks of a plan are missing: whoever wrote it died before all of it was durable."""
        return self._missing().get((phase, round_), 0)

    @property
    def plan_is_whole(self) -> bool:
        """Whether there is a plan, and nothing of it is missing."""
        return bool(self.planned) and not self._missing()

    @property
    def finished(self) -> bool:
        """Whether all is planned, and every planned episode has its outcome."""
        return self.plan_is_whole and not self.unfinished()

    def _missing(self) -> dict[tuple[str, int], int]:
        there = Counter((each.phase, each.round) for each in self.planned if each.samples)
        return {plan: size - there[plan] for plan, size in self._sizes.items() if size > there[plan]}

    def keys(self) -> Iterator[EpisodeKey]:
        """Every planned episode, in the order of the plan."""
        for planned in self.planned:
            yield from planned.keys()

    def unfinished(self) -> list[EpisodeKey]:
        """Planned episodes without an outcome."""
        return [key for key in self.keys() if self.outcome(key) is None]

    def outcomes(self) -> list[Episode]:
        """Every outcome in full, one for each episode; those that are no longer planned are left out."""
        with uncollected():
            found = [episode for entry in self.entries.values() if (episode := self._full(entry)) is not None]
        return [episode for episode in found if not self.dropped(episode.key)] if self._revised else found

    def _full(self, entry: Entry) -> Episode | None:
        if isinstance(entry.outcome, Brief):
            if not 0 < entry.line <= self._text.count:
                raise StoreError(f"of {shown(entry.key)} only what decides is kept here; read the run for the rest")
            record = journal.decode(self._text.line(entry.line))
            assert isinstance(record, Sealed)  # noqa: S101  (it is the line that the brief was read from)
            entry.outcome = record.episode
        return entry.outcome

    # --- the fold ---

    def _opened(self, record: Opened) -> None:
        if self._is_stale(record.epoch - 1):
            return
        self.epoch, self.opened, self.closed = record.epoch, record, None

    def _closed(self, record: Closed) -> None:
        if not self._is_stale(record.epoch):
            self.closed = record

    def _planned(self, record: Planned) -> None:
        plan = (record.phase, record.round)
        places = self._plans.setdefault(plan, {})
        if record.revised and record.task in places:
            self.planned[places[record.task]] = record
            self._revised[*plan, record.task] = record.samples
            self._sizes[plan] = record.of
            return
        if record.task in places:
            raise StoreError(f"task {plain(record.task)!r} is planned twice for {_round(record)}: plan each one once")
        if record.samples < 1:
            raise StoreError(f"task {plain(record.task)!r}, {_round(record)}: {record.samples} samples are not a plan")
        places[record.task] = len(self.planned)
        self.planned.append(record)
        self._sizes[plan] = record.of

    def _group(self, record: GroupOpened | GroupClosed) -> None:
        self.groups[record.phase, record.round, record.task] = record

    def _started(self, record: Started) -> None:
        if record.epoch < self.epoch:
            self.stale += 1
            return
        entry = self._entry(record.key)
        if entry.outcome is not None:
            raise StoreError(f"{shown(record.key)} has an outcome already; it can only be reopened first")
        if record.attempt <= entry.attempts:
            raise StoreError(
                f"{shown(record.key)}: attempt {record.attempt} was given before (up to {entry.attempts}); "
                "a number is never used again"
            )
        entry.attempts = record.attempt

    def _failed(self, record: Failed | BriefFailed) -> None:
        if not self._is_stale(record.epoch):
            entry = self._entry(record.episode.key)
            entry.attempts = max(entry.attempts, record.episode.attempt)

    def _sealed(self, record: Sealed | BriefSealed, line: int = 0) -> None:
        if record.epoch < self.epoch:
            self.stale += 1
            return
        episode = record.episode
        entry = self.entries.get(episode.key) or self._entry(episode.key)
        if entry.outcome is not None:
            raise StoreError(
                f"{shown(episode.key)} has an outcome already (attempt {entry.outcome.attempt}); attempt "
                f"{episode.attempt} must not become a second one. Reopen it first, or keep the first"
            )
        entry.attempts = max(entry.attempts, episode.attempt)
        entry.outcome, entry.line = episode, line
        self._outcomes += 1

    def _reopened(self, record: Reopened) -> None:
        if self._is_stale(record.epoch):
            return
        entry = self.entries.get(record.key)
        if entry is None or entry.outcome is None:
            raise StoreError(f"{shown(record.key)} has no outcome that could be taken back")
        entry.outcome = None
        self._outcomes -= 1

    def _is_stale(self, epoch: int) -> bool:
        if epoch < self.epoch:
            self.stale += 1
            return True
        return False

    def _entry(self, key: EpisodeKey) -> Entry:
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries[key] = Entry(key)
        return entry


def _brief(key: EpisodeKey, episode: Episode) -> Brief:
    failure = BriefFailure(episode.failure.failure_class) if episode.failure is not None else None
    return Brief(key, episode.attempt, episode.stop, BriefScore(episode.score.value), failure)


def group_of(key: EpisodeKey) -> GroupKey:
    """The group that an episode is of."""
    return key.phase, key.round, key.task


def shown(key: EpisodeKey) -> str:
    """An episode in a message."""
    return f"episode {plain(key.phase)}/{key.round}/{plain(key.task)}/{key.sample}"


def _round(record: Planned) -> str:
    return f"phase {plain(record.phase)!r}, round {record.round}"


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection while very many records are made: it would look at each of them again and again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
