"""GroupFold: closed groups, as the lines of a journal tell them one after the other. Pure: no clock, no I/O.

It keeps where the outcomes of each open group stand, not what they say: its size is that of the groups that are open,
however long the journal is. Guarantees: a group is closed by the last record that says so and is not taken back
(`reopened`), with the outcomes that hold then; one that was stopped stays open. Records of superseded coordinators do
not count.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from deskroll.store.index import BriefSealed, GroupKey, group_of
from deskroll.store.journal import GroupClosed, Opened, Reopened
from deskroll.types import EpisodeKey, GroupEnd

_Told = BriefSealed | GroupClosed | Reopened | Opened
_decoder: msgspec.json.Decoder[_Told] = msgspec.json.Decoder(_Told)
_TELLING = tuple(b'{"type":"%s"' % tag for tag in (b"sealed", b"group_closed", b"reopened", b"opened"))
_STOPPED = "stopped"
"""What `why` says in journals of before groups had an end."""


class Span(NamedTuple):
    """Where a line stands."""

    start: int
    length: int


class ClosedAt(NamedTuple):
    """A closed group, and where in the journal its outcomes are told."""

    key: GroupKey
    end: GroupEnd
    at: float
    members: dict[int, Span]
    """The outcome of each sample."""
    first: int
    """Nothing of it is told before this byte."""


class TakenBack(NamedTuple):
    """A group that was closed is not any more: one of its outcomes was taken back."""

    key: GroupKey
    sample: int


class GroupFold:
    """Takes lines in their order."""

    def __init__(self, epoch: int = 0) -> None:
        """`epoch`: of the coordinator that had the run where the first line stands."""
        self._open: dict[GroupKey, dict[int, Span]] = {}
        self._epochs = [(-1, epoch)]
        """The coordinators that have opened the run, each with the byte at which it did."""

    @property
    def first(self) -> int | None:
        """Nothing of any open group is told before this byte; None: none is open."""
        return min((span.start for members in self._open.values() for span in members.values()), default=None)

    def epoch_at(self, position: int) -> int:
        """Of the coordinator that had the run before this byte."""
        return next(epoch for start, epoch in reversed(self._epochs) if start < position)

    def take(self, line: bytes, start: int) -> ClosedAt | TakenBack | None:
        """One whole line without its newline, which stands at this byte; raises msgspec's error where it is damaged."""
        if not line.startswith(_TELLING):
            return None
        record = _decoder.decode(line)
        if isinstance(record, GroupClosed):
            return self._close(record, start)
        if record.epoch < self._epochs[-1][1]:
            return None
        if isinstance(record, Opened):
            self._epochs.append((start, record.epoch))
        elif isinstance(record, BriefSealed):
            key = record.episode.key
            self._open.setdefault(group_of(key), {})[key.sample] = Span(start, len(line))
        else:
            return self._take_back(record.key)
        return None

    def put_back(self, closed: ClosedAt, sample: int) -> None:
        """A group that was handed to nobody is open again, without one of its outcomes."""
        members = {each: span for each, span in closed.members.items() if each != sample}
        self._open[closed.key] = members | self._open.get(closed.key, {})

    def _close(self, record: GroupClosed, start: int) -> ClosedAt | None:
        key = (record.phase, record.round, record.task)
        end = record.end or (GroupEnd.STOPPED if record.why == _STOPPED else GroupEnd.COMPLETE)
        if end is GroupEnd.STOPPED:
            return None
        members = dict(sorted(self._open.pop(key, {}).items()))
        first = min((span.start for span in members.values()), default=start)
        return ClosedAt(key, end, record.at, members, first)

    def _take_back(self, key: EpisodeKey) -> TakenBack | None:
        members = self._open.get(group_of(key))
        if members is None:
            return TakenBack(group_of(key), key.sample)
        members.pop(key.sample, None)
        return None
