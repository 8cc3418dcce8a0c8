"""Mending: a journal is read as it was written, or not at all.

`read_checked` compares a journal with the numbers that its lines carry (`chain.py`). One that does not agree is walked
line by line. A single flipped bit is found by the number: of all that differ from the line in one bit, one fits. Where
more is lost of an outcome, its attempt's folder says it again, and the number tells whether that is what the line said.
What cannot be had back is an error that names the line.

Lines of an older form carry no number: each outcome among them is compared with its attempt's `episode.json`. Where the
two differ, `results.jsonl` tells which of them has changed. Every repair is named; nothing is written here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from deskroll.errors import StoreError, plain
from deskroll.store import chain, journal, paths
from deskroll.store.evidence import Evidence
from deskroll.store.journal import JournalRecord, Opened, Sealed
from deskroll.store.journal_bytes import read_journal
from deskroll.store.storage import Storage
from deskroll.types import Episode

_log = logging.getLogger(__name__)
LONGEST_SEARCH = 1 << 14
"""Bytes among which a flipped bit is looked for: about a second, and far more than a line has."""
_NEAR = 8
"""Bytes in which a line of the older form may differ from what its attempt's folder says that it was."""
_OPENED = b'{"type":"opened"'
_ADVICE = "restore the file from a copy, or see 'A damaged journal' in docs/store.md"


@dataclass(frozen=True)
class Checked:
    """The whole lines of a journal, as they were written."""

    data: bytes
    taken: int
    """How many bytes of the file these are, as it was read."""
    damage: tuple[str, ...] = ()
    """What was put right to get them, a line each."""

    def log(self) -> None:
        """Name what was put right."""
        for each in self.damage:
            _log.warning("%s", each)


def read_checked(storage: Storage) -> Checked:
    """The journal of a run; StoreError where it is damaged beyond repair."""
    raw = read_journal(storage)
    data = raw[: journal.whole(raw)]
    if follow(data, raw[len(data) :]) is not None:
        return Checked(data, len(data))
    return _Mending(storage, data, raw[len(data) :]).mended()


def follow(data: bytes, torn: bytes, state: int = chain.START) -> int | None:
    """The state after whole lines, where they and what follows them need no mending; else None."""
    after = chain.follow(data, state) if data else state
    return after if after is not None and _ended(torn, after) is None else None


def _ended(torn: bytes, state: int) -> bytes | None:
    """The line that a torn one is, but for the newline that was there; None where it was never finished."""
    line = torn[:-1] + b"\n"
    return line if torn and chain.holds(line, state) else None


class _Mending:
    """One journal that does not agree with its numbers, or has none."""

    def __init__(self, storage: Storage, data: bytes, torn: bytes) -> None:
        self._name = storage.shown(paths.JOURNAL)
        self._lines = journal.lines(data) if data else []
        self._torn = torn
        self._taken = len(data)
        self._old = next((n for n, line in enumerate(self._lines) if chain.is_linked(line)), len(self._lines))
        """How many lines of the older form there are."""
        self._evidence = Evidence(storage, filter(None, map(_decode, self._lines)))
        self._out: list[bytes] = []
        self._state = chain.START
        self._epoch = 1
        self._damage: list[str] = []

    def mended(self) -> Checked:
        """Everything, line after line."""
        vouched = self._vouched()
        for line in self._lines[: self._old]:
            self._keep(line if vouched else self._compared(line))
        while (place := len(self._out)) < len(self._lines):
            line = self._lines[place]
            if chain.holds(line + b"\n", self._state):
                self._keep(line)
            else:
                self._replace(place, self._resumes_at(place))
        if (last := _ended(self._torn, self._state)) is not None:
            self._note(len(self._out) + 1, "the end of the line had changed; it was put right")
            self._keep(last[:-1])
            self._taken += len(self._torn)
        return Checked(_joined(self._out), self._taken, tuple(self._damage))

    # --- lines that carry a number ---

    def _resumes_at(self, place: int) -> int:
        """The next line that fits to what the line before it carries."""
        for n in range(place + 1, len(self._lines)):
            state = chain.claimed_state(self._lines[n - 1])
            if state is not None and chain.holds(self._lines[n] + b"\n", state):
                return n
        return len(self._lines)

    def _replace(self, place: int, end: int) -> None:
        """Have the lines from `place` up to `end` back."""
        damaged = self._lines[place:end]
        if (lines := _unflipped(damaged, self._state)) is not None:
            self._note_flip(place, lines)
        elif (lines := self._said_again(damaged)) is None:
            raise StoreError(
                f"{self._name}, line {place + 1}: it is not what was written ({_why(damaged[0])}), and no attempt's "
                f"folder tells what that was: {_ADVICE}"
            )
        self._lines[place:end] = lines
        for line in lines:
            self._keep(line)

    def _said_again(self, damaged: list[bytes]) -> list[bytes] | None:
        """The lines with the first one made again from an attempt's folder, where the numbers then agree."""
        for episode, line in self._candidates(damaged[0]):
            again = chain.linked(line, self._state)[:-1]
            rest = damaged[1:]
            proved = chain.holds(_joined([again, *rest]), self._state)
            if proved and (rest or again[-10:] == damaged[0][-10:]):
                self._note_folder(episode)
                return [again, *rest]
        return None

    # --- lines of the older form ---

    def _vouched(self) -> bool:
        """Whether the number of the first line that has one vouches for those before it; a flipped bit is put right."""
        if self._old in (0, len(self._lines)):
            return False
        if chain.holds(_joined(self._lines[: self._old + 1])):
            return True
        end = self._resumes_at(self._old)
        if (lines := _unflipped(self._lines[:end], chain.START)) is None:
            return False
        self._note_flip(0, lines)
        self._lines[:end] = lines
        self._old = next(n for n, line in enumerate(lines) if chain.is_linked(line))
        return True

    def _compared(self, line: bytes) -> bytes:
        record = _decode(line)
        if record is not None and not (isinstance(record, Sealed) and self._evidence.contradicts(record.episode)):
            return line
        for episode, again in self._candidates(line):
            if _near(line, again[:-1]) and (record is None or self._evidence.confirms(episode)):
                self._note_folder(episode)
                return again[:-1]
        if isinstance(record, Sealed) and self._evidence.confirms(record.episode):
            self._note(
                len(self._out) + 1,
                f"{_folder(record.episode)}/{paths.EPISODE_JSON} says something else; {paths.RESULTS} agrees with the "
                "journal, which counts",
            )
            return line
        raise StoreError(
            f"{self._name}, line {len(self._out) + 1}: cannot be read ({_why(line)}). The file was damaged or edited, "
            f"or a newer deskroll wrote it: {_ADVICE}"
        )

    # --- for both ---

    def _candidates(self, line: bytes) -> Iterator[tuple[Episode, bytes]]:
        """Outcomes that a line may have been, each with its line."""
        record = _decode(line)
        epochs = {self._epoch, record.epoch} if isinstance(record, Sealed) else {self._epoch}
        for episode in self._evidence.candidates(record):
            for epoch in epochs:
                yield episode, journal.encode(Sealed(episode=episode, epoch=epoch))

    def _keep(self, line: bytes) -> None:
        self._out.append(line)
        self._state = chain.state_after(line + b"\n", self._state)
        if line.startswith(_OPENED) and isinstance(record := _decode(line), Opened):
            self._epoch = record.epoch

    def _note(self, number: int, what: str) -> None:
        self._damage.append(f"{self._name}, line {number}: {what}")

    def _note_flip(self, place: int, lines: list[bytes]) -> None:
        changed = next(n for n, line in enumerate(lines) if self._lines[place + n] != line)
        self._note(place + changed + 1, "a bit had flipped; it was put right by the line's checksum")

    def _note_folder(self, episode: Episode) -> None:
        self._note(len(self._out) + 1, f"was damaged; it was put right from {_folder(episode)}/{paths.EPISODE_JSON}")


def _unflipped(damaged: list[bytes], state: int) -> list[bytes] | None:
    """Lines in which one bit has flipped, as they were; None where that is not all that happened."""
    tried = bytearray(_joined(damaged))
    if len(tried) > LONGEST_SEARCH:
        return None
    for place in range(len(tried) - 1):
        for bit in range(8):
            tried[place] ^= 1 << bit
            if chain.holds(tried, state):
                lines = journal.lines(bytes(tried))
                return lines if all(map(_decode, lines)) else None
            tried[place] ^= 1 << bit
    return None


def _joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _decode(line: bytes) -> JournalRecord | None:
    try:
        return journal.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _why(line: bytes) -> str:
    try:
        journal.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return plain(str(error))
    return "it says something else than its checksum, or than its attempt's folder"


def _near(line: bytes, other: bytes) -> bool:
    return len(line) == len(other) and sum(a != b for a, b in zip(line, other, strict=True)) <= _NEAR


def _folder(episode: Episode) -> str:
    return paths.attempt_folder(episode.key, episode.attempt)
