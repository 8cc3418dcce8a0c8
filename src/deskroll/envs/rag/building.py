"""Building an index: the passages of a corpus go to disk as they are read, beside what ranks them.

An index is written beside its place and renamed into it, whole, and only where what was read is what its name says.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import tempfile
import time
from array import array
from pathlib import Path

import msgspec
import numpy as np

from deskroll.envs.rag import rank_bm25, rank_dense
from deskroll.envs.rag.corpus import Corpus, shown
from deskroll.envs.rag.passages import passages_of
from deskroll.envs.rag.settings import RagSettings, Retriever
from deskroll.errors import InputError
from deskroll.types import Record

FORMAT = 2
PASSAGES, OFFSETS, NOTE = "passages.jsonl", "offsets.npy", "index.json"
_log = logging.getLogger(__name__)


class _File(Record, frozen=True):
    size: int
    digest: str


class _Note(Record, frozen=True):
    """What an index holds; written last."""

    format: int
    passages: int
    files: dict[str, _File]


def index_name(digest: str, settings: RagSettings) -> str:
    """The name of the index of documents of that digest: a hash of all that it depends on."""
    dense = settings.retriever is Retriever.DENSE
    parts = (FORMAT, digest, settings.passage_chars, rank_dense.VERSION if dense else rank_bm25.VERSION,
             dense or settings.stem)  # fmt: skip
    return hashlib.blake2b(msgspec.json.encode(parts), digest_size=16).hexdigest()


def is_sound(folder: Path) -> bool:
    """Whether an index is there, with every byte that was written to it."""
    try:
        note = msgspec.json.decode((folder / NOTE).read_bytes(), type=_Note)
        sound = note.format == FORMAT and all(_file(folder / name) == file for name, file in note.files.items())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, msgspec.MsgspecError):
        sound = False
    if not sound and folder.exists():
        _log.warning("index %s is damaged; it is built again", folder)
    return sound


def build(folder: Path, corpus: Corpus, path: Path, digest: str, settings: RagSettings) -> bool:
    """Build the index of documents of that digest; False, and nothing is left, where others were read.

    For whoever holds the lock of `folder`: nobody else works on it.
    """
    began = time.monotonic()
    for left in folder.parent.glob(f".{folder.name}.*"):  # by one that was killed
        shutil.rmtree(left, ignore_errors=True)
    making = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        count = _write(making, corpus, settings)
        if corpus.digest_read != digest:
            return False
        if not count:
            raise InputError(
                f"corpus {shown(path)}: there is no text in it; it needs .txt, .md, .html, .json or .jsonl"
            )
        shutil.rmtree(folder, ignore_errors=True)
        making.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    _log.info("corpus %s: %d passages indexed in %.1f s", shown(path), count, time.monotonic() - began)
    return True


def _write(folder: Path, corpus: Corpus, settings: RagSettings) -> int:
    """Write all files of an index; returns the number of passages."""
    ranks: rank_bm25.Bm25Writer | rank_dense.DenseWriter = (
        rank_dense.DenseWriter(folder)
        if settings.retriever is Retriever.DENSE
        else rank_bm25.Bm25Writer(folder, stem=settings.stem)
    )
    offsets = array("q", [0])
    with (folder / PASSAGES).open("wb") as stream:
        for document in corpus.documents():
            for passage in passages_of(document, settings.passage_chars):
                offsets.append(offsets[-1] + stream.write(msgspec.json.encode(passage) + b"\n"))
                ranks.add(f"{passage.title}\n{passage.text}")
    count = len(offsets) - 1
    if count:
        np.save(folder / OFFSETS, np.asarray(offsets, dtype=np.int64))
        ranks.close()
        files = {each.name: _file(each) for each in sorted(folder.iterdir())}
        note = _Note(format=FORMAT, passages=count, files=files)
        (folder / NOTE).write_bytes(msgspec.json.encode(note))
    return count


def _file(path: Path) -> _File:
    with path.open("rb") as stream:
        return _File(size=path.stat().st_size, digest=hashlib.file_digest(stream, hashlib.blake2b).hexdigest())
