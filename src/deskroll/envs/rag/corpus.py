"""The documents of a corpus: a folder of texts, or one .json or .jsonl file of documents.

Nothing outside of a folder is read: links that lead out of it are passed over, and so are files that are no text; how
many is said in one log line. What cannot be read, or is too large, is an error that names it. Who reads the documents
learns the digest of exactly what was read, so that a change in between is seen.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from deskroll.envs.html_text import all_text, title_of
from deskroll.envs.rag.passages import Document
from deskroll.envs.rag.records import Records
from deskroll.errors import InputError, plain
from deskroll.host.below import open_linked_below

LARGEST_FILE = 64 * 2**20
"""Bytes of one file in a folder."""
LARGEST_CORPUS = 2**30
"""Bytes of a file of documents, and of all files of a folder."""
MOST_FILES = 100_000
_TEXTS = (".txt", ".md", ".html", ".htm")
_RECORDS = (".json", ".jsonl")
_log = logging.getLogger(__name__)


class Corpus:
    """The files of a corpus, found and measured; read when asked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._skipped: Counter[str] = Counter()
        self.is_folder = _is_folder(path)
        if not self.is_folder and path.suffix.lower() not in _RECORDS:
            raise InputError(f"corpus {shown(path)}: the suffix is {path.suffix!r}; allowed: a folder, .json or .jsonl")
        self.files: Sequence[Path] = self._found() if self.is_folder else [path]
        self.digest_read = ""
        """The digest of what `documents` gave, once it has given everything."""
        self._refuse_too_much()

    def digest(self) -> str:
        """A hash of everything in it: names and contents."""
        total = hashlib.blake2b(digest_size=16)
        for file in self.files:
            with self._reading(file) as stream:
                content = hashlib.file_digest(stream, hashlib.blake2b).digest()
            total.update(self._named(file) + content)
        return total.hexdigest()

    def documents(self) -> Iterator[Document]:
        """Every document, in order; at the end, `digest_read` is known, and what was passed over is logged."""
        total = hashlib.blake2b(digest_size=16)
        for file in self.files:
            content = hashlib.blake2b()
            if not self.is_folder and file.suffix.lower() == ".jsonl":
                with self._reading(file) as stream:
                    yield from Records(shown(file)).of_lines(_lines(stream, content, file))
            else:
                with self._reading(file) as stream:
                    data = stream.read(min(os.fstat(stream.fileno()).st_size, self._most()) + 1)
                self._refuse_large(file, len(data))
                content.update(data)
                yield from self._documents_of(file, data)
            total.update(self._named(file) + content.digest())
        self.digest_read = total.hexdigest()
        if self._skipped:
            what = ", ".join(f"{count} {why}" for why, count in sorted(self._skipped.items()))
            _log.warning(
                "corpus %s: %d files were read, others passed over: %s", shown(self._path), len(self.files), what
            )

    def _documents_of(self, file: Path, data: bytes) -> Iterator[Document]:
        text = _decoded(data)
        if text is None:
            if not self.is_folder:
                raise InputError(f"corpus {shown(file)}: it is not UTF-8 text; save it as UTF-8")
            self._skipped["not UTF-8 text"] += 1
        elif file.suffix.lower() in _RECORDS:
            name = shown(file.relative_to(self._path)) if self.is_folder else ""
            records = Records(shown(file), name, self._skipped if self.is_folder else None)
            is_lines = file.suffix.lower() == ".jsonl"
            yield from records.of_lines(enumerate(text.split("\n"), 1)) if is_lines else records.of_text(text)
        else:
            yield _text_document(file, shown(file.relative_to(self._path)), text)

    @contextmanager
    def _reading(self, file: Path) -> Iterator[BufferedReader]:
        """A file of the corpus, opened; what has become a link that leads out of it since is not."""
        root, place = (self._path, str(file.relative_to(self._path))) if self.is_folder else (file.parent, file.name)
        try:
            with os.fdopen(open_linked_below(root, place), "rb") as stream:
                yield stream
        except OSError as error:
            raise unreadable(file, error) from None

    def _named(self, file: Path) -> bytes:
        name = os.fsencode(file.relative_to(self._path) if self.is_folder else file.suffix)
        return b"%d:%b" % (len(name), name)

    def _found(self) -> list[Path]:
        root, files = os.path.realpath(self._path), list[Path]()
        for folder, folders, names in os.walk(self._path, onerror=_refuse_unreadable):
            for name in folders:
                if name.startswith("."):
                    self._skipped["hidden"] += 1
                elif Path(folder, name).is_symlink():  # not gone into: it may lead anywhere, also back
                    self._skipped["linked folders"] += 1
            folders[:] = sorted(each for each in folders if not each.startswith("."))
            for name in sorted(names):
                file = Path(folder, name)
                if why := _unfit(file, root):
                    self._skipped[why] += 1
                else:
                    files.append(file)
            if len(files) > MOST_FILES:
                raise InputError(
                    f"corpus {shown(self._path)}: it has more than {MOST_FILES} files; join them into a .jsonl"
                )
        return files

    def _refuse_too_much(self) -> None:
        total = 0
        for file in self.files:
            try:
                size = file.stat().st_size
            except OSError as error:
                raise unreadable(file, error) from None
            total += size
            self._refuse_large(file, size)
        if total > LARGEST_CORPUS:
            raise InputError(f"corpus {shown(self._path)}: it has more than {LARGEST_CORPUS >> 20} MiB; split it")

    def _refuse_large(self, file: Path, size: int) -> None:
        if size > self._most():
            raise InputError(f"corpus {shown(file)}: it has more than {self._most() >> 20} MiB; split it")

    def _most(self) -> int:
        return LARGEST_FILE if self.is_folder else LARGEST_CORPUS


def unreadable(path: Path, error: OSError) -> InputError:
    """What to say where a file or folder cannot be read."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
        return InputError(f"corpus {shown(path)}: there is no such file or folder")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return InputError(f"corpus {shown(path)}: too many files are open already; allow more of them (ulimit -n)")
    return InputError(f"corpus {shown(path)}: it cannot be read: {error.strerror or error}")


def shown(path: Path) -> str:
    """A path that can be printed and stored, also where its name is no UTF-8."""
    return plain(os.fsencode(path).decode(errors="replace"), 4096)


def _is_folder(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise unreadable(path, error) from None
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise InputError(f"corpus {shown(path)}: it is neither a folder nor a file")
    return stat.S_ISDIR(mode)


def _unfit(file: Path, root: str) -> str:
    """Why a file is not read; empty where it is."""
    try:
        if file.name.startswith("."):
            return "hidden"
        if file.is_symlink():
            if not Path(os.path.realpath(file)).is_relative_to(root):
                return "linked from outside"
            if not file.exists():
                return "broken links"
        fits = file.suffix.lower() in _TEXTS + _RECORDS and file.is_file()
    except OSError as error:
        raise unreadable(file, error) from None
    return "" if fits else "of other kinds"


def _refuse_unreadable(error: OSError) -> None:
    raise unreadable(Path(os.fsdecode(error.filename)), error) from None


def _lines(stream: BufferedReader, content: hashlib.blake2b, file: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file, one after the other, so that a large one need not be held."""
    for n, line in enumerate(stream, 1):
        content.update(line)
        text = _decoded(line) if n == 1 else _decoded(line, "utf-8")
        if text is None:
            raise InputError(f"corpus {shown(file)}:{n}: it is not UTF-8 text; save it as UTF-8")
        yield n, text


def _decoded(data: bytes, encoding: str = "utf-8-sig") -> str | None:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text.replace("\r\n", "\n")


def _text_document(file: Path, name: str, text: str) -> Document:
    stem = shown(Path(file.stem))
    if file.suffix.lower() in (".html", ".htm"):
        return Document(source=name, title=title_of(text) or stem, text=all_text(text))
    heading = next((line for line in text.split("\n", 50)[:50] if line.startswith("# ")), "")
    return Document(source=name, title=heading[2:].strip()[:300] or stem, text=text, has_lines=True)
