"""The documents of a corpus: a folder of texts, or one .json or .jsonl file of documents.

Nothing outside of a folder is read: links that lead out of it are passed over, and so are files that are no text; how
many is said in one log line. What is too large is an error that names it.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path

import msgspec

from deskroll.envs.rag.html_text import html_text
from deskroll.envs.rag.passages import Document
from deskroll.errors import InputError, plain

LARGEST_FILE = 64 * 2**20
"""Bytes of one file in a folder."""
LARGEST_CORPUS = 2**30
"""Bytes of a file of documents, and of all files of a folder."""
MOST_FILES = 100_000
_TEXTS = (".txt", ".md", ".html", ".htm")
_RECORDS = (".json", ".jsonl")
_TEXT_FIELDS = ("text", "contents", "content")
_ID_FIELDS = ("id", "_id", "doc_id", "url")
_log = logging.getLogger(__name__)


class Corpus:
    """The files of a corpus, found and measured; read when asked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._skipped: Counter[str] = Counter()
        self.is_folder = path.is_dir()
        if not path.exists():
            raise InputError(f"corpus {path}: there is no such file or folder")
        if not self.is_folder and path.suffix.lower() not in _RECORDS:
            raise InputError(f"corpus {path}: the suffix is {path.suffix!r}; allowed: a folder, .json or .jsonl")
        self.files: Sequence[Path] = self._found() if self.is_folder else [path]
        self._refuse_too_much()

    def digest(self) -> str:
        """A hash of everything in it: names and contents."""
        total = hashlib.blake2b(digest_size=16)
        for file in self.files:
            name = str(file.relative_to(self._path)) if self.is_folder else file.suffix
            with _opened(file) as stream:
                content = hashlib.file_digest(stream, hashlib.blake2b).digest()
            total.update(f"{len(name)}:{name}".encode(errors="surrogateescape") + content)
        return total.hexdigest()

    def documents(self) -> Iterator[Document]:
        """Every document, in order; at the end, what was passed over is logged."""
        for file in self.files:
            name = file.relative_to(self._path).as_posix() if self.is_folder else ""
            with _opened(file) as stream:
                text = _decoded(stream.read())
            if text is None:
                if not self.is_folder:
                    raise InputError(f"corpus {file}: it is no UTF-8 text; save it as UTF-8")
                self._skipped["no UTF-8 text"] += 1
            elif file.suffix.lower() in _RECORDS:
                yield from self._records(file, name, text)
            else:
                yield _text_document(file, name, text)
        if self._skipped:
            what = ", ".join(f"{count} {why}" for why, count in sorted(self._skipped.items()))
            _log.warning("corpus %s: %d files were read, others passed over: %s", self._path, len(self.files), what)

    def _found(self) -> list[Path]:
        root, files = self._path.resolve(), []
        for folder, folders, names in os.walk(self._path):
            folders[:] = sorted(each for each in folders if not each.startswith("."))
            for name in sorted(names):
                file = Path(folder, name)
                if why := _unfit(file, root):
                    self._skipped[why] += 1
                else:
                    files.append(file)
            if len(files) > MOST_FILES:
                raise InputError(f"corpus {self._path}: it has more than {MOST_FILES} files; join them into a .jsonl")
        return files

    def _refuse_too_much(self) -> None:
        total = 0
        for file in self.files:
            size = file.stat().st_size
            total += size
            if self.is_folder and size > LARGEST_FILE:
                raise InputError(f"corpus {self._path}: {file} has more than {LARGEST_FILE >> 20} MiB; split it")
        if total > LARGEST_CORPUS:
            raise InputError(f"corpus {self._path}: it has more than {LARGEST_CORPUS >> 20} MiB; split it")

    def _records(self, file: Path, name: str, text: str) -> Iterator[Document]:
        for where, n, record in _objects(file, text):
            body = _field(record, _TEXT_FIELDS)
            if not body:
                if not self.is_folder:
                    raise InputError(f"corpus {where}: a document needs a text in one of {', '.join(_TEXT_FIELDS)}")
                self._skipped["JSON without a text"] += 1
                continue
            title, identity = _field(record, ("title",)), _field(record, _ID_FIELDS) or str(n)
            if not title and body.startswith('"') and '"\n' in body[:300]:  # as Pyserini's corpora have it
                title, _, body = body[1:].partition('"\n')
            yield Document(source=f"{name}#{identity}" if name else identity, title=title or identity, text=body)


def _unfit(file: Path, root: Path) -> str:
    """Why a file is not read; empty where it is."""
    if file.name.startswith("."):
        return "hidden"
    if file.is_symlink() and not file.resolve().is_relative_to(root):
        return "linked from outside"
    if file.suffix.lower() not in _TEXTS + _RECORDS or not file.is_file():
        return "of other kinds"
    return ""


def _opened(file: Path) -> BufferedReader:
    try:
        return file.open("rb")
    except OSError as error:
        raise InputError(f"corpus {file}: it cannot be read: {error.strerror}") from None


def _decoded(data: bytes) -> str | None:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text.replace("\r\n", "\n")


def _text_document(file: Path, name: str, text: str) -> Document:
    if file.suffix.lower() in (".html", ".htm"):
        title, body = html_text(text)
        return Document(source=name, title=title or file.stem, text=body)
    heading = next((line for line in text.split("\n", 50) if line.startswith("# ")), "")
    return Document(source=name, title=heading[2:].strip() or file.stem, text=text, has_lines=True)


def _objects(file: Path, text: str) -> Iterator[tuple[str, int, object]]:
    if file.suffix.lower() == ".jsonl":
        for n, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield f"{file}:{n}", n, _json(line, f"{file}:{n}")
        return
    data = _json(text, str(file))
    if isinstance(data, dict):
        inner = next((data[key] for key in ("documents", "items") if isinstance(data.get(key), list)), None)
        data = [data] if inner is None else inner
    for n, each in enumerate(data if isinstance(data, list) else [data], 1):
        yield f"{file}[{n - 1}]", n, each


def _json(text: str, where: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"corpus {where}: it is no valid JSON: {error}") from None


def _field(record: object, names: Sequence[str]) -> str:
    if not isinstance(record, dict):
        return ""
    value = next((record[name] for name in names if isinstance(record.get(name), str | int)), "")
    text = str(value)
    return text if "text" in names else plain(text, 300)
