"""Index: the passages of a corpus, ranked for a query. Built once, kept on disk, mapped by every process that uses it.

An index is a folder named after a hash of all that it depends on: contents, settings, format. It is written beside its
place and renamed into it, under a lock that lets one process build while others wait. Each file's size and hash are
noted in it; one that does not fit is thrown away and built again.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np

from deskroll.envs.rag import rank_bm25, rank_dense
from deskroll.envs.rag.corpus import Corpus
from deskroll.envs.rag.passages import Passage, passages_of
from deskroll.envs.rag.settings import RagSettings, Retriever
from deskroll.errors import InputError
from deskroll.types import Record

FORMAT = 1
_PASSAGES, _OFFSETS, _NOTE = "passages.jsonl", "offsets.npy", "index.json"
_log = logging.getLogger(__name__)


class Hit(Record, frozen=True):
    """One passage that was found."""

    passage: Passage
    score: float


class _File(Record, frozen=True):
    size: int
    digest: str


class _Note(Record, frozen=True):
    """What an index holds; written last."""

    format: int
    passages: int
    files: dict[str, _File]


class Index:
    """An index, opened. Safe to search from several threads."""

    def __init__(self, folder: Path, settings: RagSettings) -> None:
        self._offsets = np.load(folder / _OFFSETS, mmap_mode="r", allow_pickle=False)
        self._texts = np.memmap(folder / _PASSAGES, dtype=np.uint8, mode="r")
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
    """The index of a corpus: opened, built first where there is none."""
    if settings.retriever is Retriever.DENSE:
        rank_dense.require()
    corpus = Corpus(path)
    cache = settings.cache or default_cache()
    folder = cache / _name(corpus, settings)
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(cache / f"{folder.name}.lock"):
            if not _sound(folder):
                _build(folder, corpus, path, settings)
            return Index(folder, settings)
    except OSError as error:
        raise InputError(
            f"corpus {path}: its index cannot be kept in {cache}: {error.strerror or error}; set env_options.cache"
        ) from None


def _name(corpus: Corpus, settings: RagSettings) -> str:
    dense = settings.retriever is Retriever.DENSE
    parts = (FORMAT, corpus.digest(), settings.passage_chars, rank_dense.VERSION if dense else rank_bm25.VERSION,
             dense or settings.stem)  # fmt: skip
    return hashlib.blake2b(msgspec.json.encode(parts), digest_size=16).hexdigest()


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given up with the file, also by a process that is killed
        yield


def _sound(folder: Path) -> bool:
    try:
        note = msgspec.json.decode((folder / _NOTE).read_bytes(), type=_Note)
        sound = note.format == FORMAT and all(_file(folder / name) == file for name, file in note.files.items())
    except (OSError, msgspec.MsgspecError):
        sound = False
    if not sound and folder.exists():
        _log.warning("index %s is damaged; it is built again", folder)
    return sound


def _file(path: Path) -> _File:
    with path.open("rb") as stream:
        return _File(size=path.stat().st_size, digest=hashlib.file_digest(stream, hashlib.blake2b).hexdigest())


def _build(folder: Path, corpus: Corpus, path: Path, settings: RagSettings) -> None:
    began = time.monotonic()
    for left in folder.parent.glob(f".{folder.name}.*"):  # by one that was killed: whoever holds the lock is alone
        shutil.rmtree(left, ignore_errors=True)
    making = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        passages = [each for text in corpus.documents() for each in passages_of(text, settings.passage_chars)]
        if not passages:
            raise InputError(f"corpus {path}: there is no text in it; it needs .txt, .md, .html, .json or .jsonl")
        _write(making, passages, settings)
        shutil.rmtree(folder, ignore_errors=True)
        making.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    _log.info("corpus %s: %d passages indexed in %.1f s", path, len(passages), time.monotonic() - began)


def _write(folder: Path, passages: Sequence[Passage], settings: RagSettings) -> None:
    lines = [msgspec.json.encode(each) + b"\n" for each in passages]
    (folder / _PASSAGES).write_bytes(b"".join(lines))
    np.save(folder / _OFFSETS, np.cumsum([0, *map(len, lines)], dtype=np.int64))
    texts = [f"{each.title}\n{each.text}" for each in passages]
    if settings.retriever is Retriever.DENSE:
        rank_dense.write(folder, texts)
    else:
        rank_bm25.write(folder, texts, stem=settings.stem)
    files = {each.name: _file(each) for each in sorted(folder.iterdir())}
    note = _Note(format=FORMAT, passages=len(passages), files=files)
    (folder / _NOTE).write_bytes(msgspec.json.encode(note))


class Shelf:
    """The indexes that this process has opened, each once."""

    def __init__(self) -> None:
        self._indexes: dict[tuple[Path, str], Index] = {}
        self._lock = threading.Lock()

    def index(self, path: Path, settings: RagSettings) -> Index:
        """The index of a corpus; blocks while it is opened or built."""
        key = (path.absolute(), settings.model_dump_json())
        if (found := self._indexes.get(key)) is not None:
            return found
        with self._lock:
            if key not in self._indexes:
                self._indexes[key] = opened(path, settings)
            return self._indexes[key]
