"""The bytes of a run's journal, wherever they lie: in one file, or in an object store in parts (`sink_objects.py`)."""

from __future__ import annotations

import re

from deskroll.errors import StoreError
from deskroll.store import paths
from deskroll.store.storage import Storage

_PART = re.compile(r"(\d+)-(\d+)\.jsonl")


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
