"""Index: the passages of a corpus, ranked for a query. Built once, kept on disk, mapped by every process that uses it.

An index is a folder named after a hash of all that it depends on: contents, settings, format. A lock lets one process
build while others wait. Each file's size and hash are noted in it; one that does not fit is thrown away and built
again.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np

from deskroll.envs.rag import rank_bm25, rank_dense
from deskroll.envs.rag.building import OFFSETS, PASSAGES, build, index_name, is_sound
from deskroll.envs.rag.corpus import Corpus, shown, unreadable
from deskroll.envs.rag.passages import Passage
from deskroll.envs.rag.settings import RagSettings, Retriever
from deskroll.errors import InputError
from deskroll.types import Record

_ATTEMPTS = 5
"""How often a corpus is read that changes while it is read."""


class Hit(Record, frozen=True):
    """One passage that was found."""

    passage: Passage
    score: float


class Index:
    """An index, opened. Safe to search from several threads."""

    def __init__(self, folder: Path, settings: RagSettings) -> None:
        self.name = folder.name
        """A digest of all that it depends on."""
        self._offsets = np.load(folder / OFFSETS, mmap_mode="r", allow_pickle=False)
        self._texts = np.memmap(folder / PASSAGES, dtype=np.uint8, mode="r")
        self._ranks: rank_bm25.Bm25 | rank_dense.Dense = (
            rank_dense.Dense(folder)
            if settings.retriever is Retriever.DENSE
            else rank_bm25.Bm25(folder, stem=settings.stem)
        )

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def search(self, query: str, most: int) -> list[Hit]:
        """The best passages, the best first; those that share nothing with the query are none."""
        scores = self._ranks.scores(query)
        if scores is None:
            return []
        most = min(most, len(scores))
        best = np.argpartition(-scores, most - 1)[:most]
        ordered = best[np.lexsort((best, -scores[best]))]
        return [Hit(passage=self._passage(int(n)), score=float(scores[n])) for n in ordered if scores[n] > 0]

    def _passage(self, n: int) -> Passage:
        start, end = int(self._offsets[n]), int(self._offsets[n + 1])
        return msgspec.json.decode(self._texts[start:end].tobytes(), type=Passage)


def default_cache() -> Path:
    """Where indexes are kept unless an option says otherwise."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deskroll" / "rag"


def opened(path: Path, settings: RagSettings) -> Index:
    """The index of what a corpus holds now: opened, built first where there is none."""
    if settings.retriever is Retriever.DENSE:
        rank_dense.require()
    with _keeping(path, settings) as cache:
        _refuse_inside(path, cache)
        for _ in range(_ATTEMPTS):
            corpus = Corpus(path)
            digest = corpus.digest()
            folder = cache / index_name(digest, settings)
            with _hold_lock(folder):
                if is_sound(folder) or build(folder, corpus, path, digest, settings):
                    return Index(folder, settings)
    raise InputError(f"corpus {shown(path)}: it changes while it is read; run again when nobody writes to it")


def reopen_index(path: Path, name: str, settings: RagSettings) -> Index:
    """The index of that name, which was made of this corpus before, whatever the corpus holds by now."""
    with _keeping(path, settings) as cache:
        folder = cache / name
        with _hold_lock(folder):
            if is_sound(folder):
                return Index(folder, settings)
    index = opened(path, settings)
    if index.name != name:
        raise InputError(
            f"corpus {shown(path)}: it has changed, and the index of what it held before is gone; run anew"
        )
    return index


def _refuse_inside(path: Path, cache: Path) -> None:
    """Indexes in the corpus would be documents of the next index."""
    root, real = Path(os.path.realpath(path)), Path(os.path.realpath(cache))
    inside = real.parts[len(root.parts) :] if real.is_relative_to(root) else None
    if inside is not None and not any(each.startswith(".") for each in inside):
        raise InputError(f"corpus {shown(path)}: env_options.cache, {cache}, lies in it; choose another folder")


@contextmanager
def _keeping(path: Path, settings: RagSettings) -> Iterator[Path]:
    """The folder of all indexes; what cannot be done there is told."""
    cache = settings.cache or default_cache()
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        yield cache
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise unreadable(path, error) from None
        why = error.strerror or error
        raise InputError(
            f"corpus {shown(path)}: its index cannot be kept in {cache}: {why}; set env_options.cache"
        ) from None


@contextmanager
def _hold_lock(folder: Path) -> Iterator[None]:
    with folder.with_name(f"{folder.name}.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given up with the file, also by a process that is killed
        try:
            yield
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)  # at once, also where a fork has inherited the file
