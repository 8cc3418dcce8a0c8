"""The journal in an object store, where nothing can be appended to: parts, each replaced as it grows.

    journal.d/epoch-<n>              made by whoever takes the run over for the n-th time; of several, one can
    journal.d/<n>-<part>.jsonl       the lines of that one; its part 0 begins with all that was known before

So the parts of the highest epoch that has a part 0 are the whole journal, whatever a superseded coordinator still
writes. It looks for the next marker after each write: its lines count only when there was none. `journal.jsonl` is a
copy, made at the end.
"""

from __future__ import annotations

import re

import msgspec

from deskroll.errors import StoreError
from deskroll.store import journal, paths
from deskroll.store.lock import this_process
from deskroll.store.storage import Storage

ROLL_BYTES = 1 << 20
"""Size at which a part is left and another one is begun."""
_PART = re.compile(r"(\d+)-(\d+)\.jsonl")
_MARKER = re.compile(r"epoch-(\d+)")


class JournalObjects:
    """The journal in an object store, as one coordinator writes it."""

    pace_s = 1.0

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._epoch = 0
        self._number = 0
        self._part = b""
        self._all: list[bytes] = []

    def open(self) -> tuple[bytes, int]:
        """Take the run over: what its journal holds, and our epoch."""
        names = self._storage.list(paths.JOURNAL_PARTS)
        self._epoch = max((int(found[1]) for name in names if (found := _MARKER.fullmatch(name))), default=0) + 1
        marker = msgspec.json.encode(this_process())
        while not self._storage.write_new(_marker(self._epoch), marker):
            self._epoch += 1
        # Only now: whoever wrote a line after this listing sees the marker, and knows that it does not count.
        self._part = read_journal(self._storage)
        self._part = self._part[: journal.whole(self._part)]
        return self._part, self._epoch

    def append(self, lines: bytes) -> None:
        """Write the current part again, with these lines."""
        part = self._part + lines
        self._storage.write_atomic(f"{paths.JOURNAL_PARTS}/{self._epoch:06}-{self._number:06}.jsonl", part)
        if self._storage.exists(_marker(self._epoch + 1)):
            raise StoreError(
                f"{self._storage.shown()} was taken over: another process resumed it. This one stops, and what it did "
                "since then does not count"
            )
        self._part = part
        if len(part) >= ROLL_BYTES:
            self._all.append(part)
            self._part, self._number = b"", self._number + 1

    def finish(self) -> None:
        """Write the copy in one piece."""
        self._storage.write_atomic(paths.JOURNAL, b"".join([*self._all, self._part]))

    def close(self) -> None:
        """Nothing is held."""


def read_journal(storage: Storage, start: int = 0) -> bytes:
    """The journal of a run from byte `start` on, wherever it is, as it is at this moment."""
    names = storage.list(paths.JOURNAL_PARTS)
    parts = sorted((int(found[1]), int(found[2]), name) for name in names if (found := _PART.fullmatch(name)))
    epoch = max((epoch for epoch, number, _ in parts if number == 0), default=None)
    if epoch is not None:
        wanted = [f"{paths.JOURNAL_PARTS}/{name}" for each, _, name in parts if each == epoch]
        return b"".join(storage.read_many(wanted))[start:]
    return storage.read(paths.JOURNAL, start) if storage.exists(paths.JOURNAL) else b""


def check_unbegun(storage: Storage) -> None:
    """Of a run whose journal says nothing: StoreError where other files show that it was there, and is lost."""
    results = storage.exists(paths.RESULTS) and storage.size(paths.RESULTS) > 0
    if not (results or storage.exists(paths.SUMMARY) or storage.list(paths.EPISODES)):
        return  # it was killed before it had begun
    state = "empty" if storage.exists(paths.JOURNAL) else "missing"
    raise StoreError(
        f"{storage.shown(paths.JOURNAL)} is {state}: the run's files are damaged. Without its journal nothing is known "
        f"of what was planned and done: restore it from a copy (what its episodes left is in {paths.EPISODES}/), or "
        "begin another run"
    )


def _marker(epoch: int) -> str:
    return f"{paths.JOURNAL_PARTS}/epoch-{epoch}"
