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
from deskroll.store import paths
from deskroll.store.lock import this_process
from deskroll.store.mending import read_checked
from deskroll.store.storage import Storage

ROLL_BYTES = 1 << 20
"""Size at which a part is left and another one is begun."""
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
        checked = read_checked(self._storage)
        checked.log()
        self._part = checked.data
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


def _marker(epoch: int) -> str:
    return f"{paths.JOURNAL_PARTS}/epoch-{epoch}"
