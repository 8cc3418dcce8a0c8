"""The journal's records and how they become lines.

One JSON object a line, tagged by `type`. The coordinator alone writes them, in the order in which things happened;
everything that is known about a run can be had by reading them from the top (`index.Index`).

A last line without its newline was being written when its writer died: it says nothing, and is skipped by readers
and cut off by the next writer. What else is not as it was written is damage: `chain.py` sees it, `mending.py` puts it
right or refuses the run.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from deskroll.errors import StoreError, plain
from deskroll.types import Episode, EpisodeKey, GroupEnd, Record


class CloseReason(enum.StrEnum):
    """Why a coordinator left a run."""

    FINISHED = "finished"
    """Every planned episode has its outcome."""
    STOPPED = "stopped"
    """Somebody stopped it; a resume does the rest."""
    FAILED = "failed"
    """It could not go on; `note` says why."""


class Opened(Record, frozen=True, tag_field="type", tag="opened"):
    """A coordinator took the run: for the first time, or again."""

    epoch: int
    at: float
    """Seconds since the epoch (of Unix), as everywhere here."""
    host: str = ""
    pid: int = 0
    version: str = ""
    """deskroll's."""
    config_digest: str = ""
    note: str = ""


class Planned(Record, frozen=True, tag_field="type", tag="planned"):
    """Samples 0 to `samples` - 1 of a task are to be run: one record for each phase, round and task."""

    phase: str
    round: int
    task: str
    samples: int
    digest: str = ""
    """Of the task as it was read, so that a resume sees when it has changed."""
    domain: str = ""
    of: int = 0
    """How many tasks the phase and round have in all: one with fewer was being planned when its coordinator died."""
    spec: str = ""
    """Of what its episodes are made of (`specs/<digest>.json`), where a job on a runtime plans it; or see run.json."""
    revised: bool = False
    """A forced resume found the task changed, or gone (no samples): this counts instead of what was planned before."""

    def keys(self) -> Iterator[EpisodeKey]:
        """The episodes that it plans."""
        for sample in range(self.samples):
            yield EpisodeKey(phase=self.phase, round=self.round, task=self.task, sample=sample)


class GroupOpened(Record, frozen=True, tag_field="type", tag="group_opened"):
    """The samples of a task were begun."""

    phase: str
    round: int
    task: str
    at: float
    why: str = ""


class GroupClosed(Record, frozen=True, tag_field="type", tag="group_closed"):
    """The samples of a task are through: each has its outcome, unless it was stopped. The last such record counts."""

    phase: str
    round: int
    task: str
    at: float
    why: str = ""
    """In words, where there is more to say than `end` does."""
    end: GroupEnd | None = None
    """None in journals of before there was such a thing; `why` is "finished" or "stopped" there."""


class Started(Record, frozen=True, tag_field="type", tag="started"):
    """An attempt was handed to a worker. Its number is never given again."""

    key: EpisodeKey
    attempt: int
    epoch: int
    worker: str = ""
    at: float = 0.0


class Failed(Record, frozen=True, tag_field="type", tag="failed"):
    """An attempt failed and will be made again."""

    episode: Episode
    epoch: int
    retry_in_s: float = 0.0
    anew: bool = False
    """Its group has it sampled anew: this failure, and those before it, count no more."""


class Sealed(Record, frozen=True, tag_field="type", tag="sealed"):
    """The outcome of an episode: its attempt's files and manifest are durable.

    But for one whose failure is of class `worker`: its process was lost, so that the coordinator made the record, and
    the folder holds what there was by then, without a manifest; and for one of class `cancelled`, which its group gave
    up: its attempt was stopped, or never made (`attempt` 0: there was none at all).
    """

    episode: Episode
    epoch: int


class Reopened(Record, frozen=True, tag_field="type", tag="reopened"):
    """A resume takes back an outcome that was unscored for infrastructure's sake: the episode is to be run again."""

    key: EpisodeKey
    epoch: int
    at: float
    why: str = ""


class DesktopChanged(Record, frozen=True, tag_field="type", tag="desktop"):
    """A desktop entered another state."""

    desktop: str
    state: str
    at: float
    lease: str = ""
    holder: str = ""
    seconds: float = 0.0
    """How long it was in the state before."""


class Closed(Record, frozen=True, tag_field="type", tag="closed"):
    """A coordinator left the run in good order. After a crash there is none."""

    epoch: int
    at: float
    why: CloseReason
    note: str = ""


JournalRecord = (
    Opened | Planned | GroupOpened | GroupClosed | Started | Failed | Sealed | Reopened | DesktopChanged | Closed
)

T = TypeVar("T")
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[JournalRecord] = msgspec.json.Decoder(JournalRecord)


def encode(record: JournalRecord) -> bytes:
    """The record as a line, newline included."""
    try:
        return _encoder.encode(record) + b"\n"
    except (TypeError, UnicodeEncodeError) as error:  # a lone surrogate, for one
        raise StoreError(f"{plain(repr(record))} cannot be written to the journal: {error}") from error


def decode(line: bytes) -> JournalRecord:
    """The record that a line holds; `msgspec.MsgspecError` where it holds none."""
    return _decoder.decode(line)


def whole(data: bytes) -> int:
    """How many bytes of a journal count: those up to its last newline."""
    return data.rfind(b"\n") + 1


def lines(data: bytes) -> list[bytes]:
    """The whole lines of a file."""
    found = data.split(b"\n")
    found.pop()  # what follows the last newline: nothing, or a torn line
    return found


def decode_lines(data: bytes, decoder: msgspec.json.Decoder[T], name: str, first_line: int = 1) -> list[T]:
    """Each whole line decoded; StoreError with the line's number where one cannot be."""
    try:
        decoded = decoder.decode_lines(memoryview(data)[: whole(data)])
        if len(decoded) == data.count(b"\n"):
            return decoded
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass  # which line it is shows below
    for number, line in enumerate(lines(data), first_line):
        try:
            decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StoreError(
                f"{name}, line {number}: cannot be read ({plain(str(error))}). The file was damaged or edited, or a "
                "newer deskroll wrote it: restore it, or take that line out to go on without what it said"
            ) from error
    raise StoreError(f"{name} cannot be read: it holds something between its lines; restore it")
