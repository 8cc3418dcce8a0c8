"""Source: where versions of weights appear: a folder, or the address of one in an object store (fsspec).

Guarantees: what `fetch` returns is a folder of this machine that nobody else writes to by our doing; a copy of an
object store's is there as a whole or not at all, and of old copies only those are kept that the caller names.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from deskroll.errors import InputError, MissingDependency, plain
from deskroll.models.weights.checkpoint import INDEX, read_index
from deskroll.models.weights.look import File, Folder
from deskroll.models.weights.refusal import CheckpointRefused

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_NOT_SERVED = (".pt", ".pth", ".bin", ".ckpt", ".distcp")
_SECRET = re.compile(r"://[^/@]*@")


class Source(Protocol):
    """Folders with weights, somewhere. Its methods block: call them in a thread."""

    @property
    def shown(self) -> str:
        """The address in a message."""

    def folders(self) -> list[Folder]:
        """What is there at this moment; raises `InputError` where the source itself cannot be read."""

    def fetch(self, folder: Folder, keep: Collection[str] = ()) -> Path:
        """A folder of this machine with that content; `keep` names folders whose copies must stay."""


def open_source(address: str, cache: Path) -> Source:
    """The source at a path or a URL; copies of what is elsewhere go below `cache`."""
    if address.startswith("file://"):
        address = address.removeprefix("file://")
    return ObjectSource(address, cache) if _URL.match(address) else FolderSource(Path(address))


class FolderSource:
    """A folder of this machine, or one that is mounted."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def shown(self) -> str:
        """See `Source`."""
        return plain(str(self.path))

    def folders(self) -> list[Folder]:
        """See `Source`. A folder that is removed meanwhile is not there."""
        try:
            entries = [entry for entry in self.path.iterdir() if entry.is_dir()]
        except OSError as error:
            raise InputError(f"{self.shown}, where weights are looked for, cannot be read: {error.strerror}") from None
        return [_folder(entry) for entry in entries]

    def fetch(self, folder: Folder, keep: Collection[str] = ()) -> Path:
        """See `Source`."""
        return self.path / folder.name


def _folder(path: Path) -> Folder:
    files: dict[str, File] = {}
    try:
        for entry in sorted(path.iterdir()):
            with suppress(FileNotFoundError):  # a link that leads nowhere, or removed meanwhile
                about = entry.stat()
                files[entry.name] = File(size=about.st_size, stamp=str(about.st_mtime_ns))
    except FileNotFoundError:
        return Folder(name=path.name, files={})
    except OSError as error:
        return Folder(name=path.name, files=files, unreadable=error.strerror or str(error))
    shards: tuple[str, ...] = ()
    if INDEX in files:
        try:
            shards = tuple(sorted(set(read_index(path).values())))
        except CheckpointRefused:  # half-written, perhaps; who wants to serve it is told
            pass
    return Folder(name=path.name, files=files, shards=shards)


class ObjectSource:
    """A folder in an object store."""

    def __init__(self, url: str, cache: Path) -> None:
        self.shown = _SECRET.sub("://", plain(url.rstrip("/")))
        # Named by a digest: two sources that end in the same words are two folders.
        self._cache = cache / hashlib.sha256(url.encode()).hexdigest()[:16]
        self._fs, prefix = self._connect(url)
        self._prefix = str(prefix).rstrip("/")

    def _connect(self, url: str) -> tuple[Any, str]:
        try:
            import fsspec  # type: ignore[import-untyped]  # noqa: PLC0415  (an extra)

            fs, prefix = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except ImportError as error:
            scheme = url.partition("://")[0]
            what = "'deskroll[s3]'" if scheme == "s3" else f"fsspec, and the package that it wants for {scheme}://"
            raise MissingDependency(f"{self.shown} cannot be reached ({error}): pip install {what}") from error
        except Exception as error:
            raise InputError(f"cannot open {self.shown}: {plain(str(error))}; check the address") from error
        return fs, str(prefix)

    def folders(self) -> list[Folder]:
        """See `Source`."""
        with self._named():
            self._fs.invalidate_cache()
            found = self._fs.find(self._prefix, detail=True) if self._fs.exists(self._prefix) else {}
        listed: dict[str, dict[str, File]] = {}
        for path, about in found.items():
            name, _, file = path[len(self._prefix) :].lstrip("/").partition("/")
            if file and "/" not in file:
                listed.setdefault(name, {})[file] = _listed_file(about)
        return [Folder(name=name, files=files, shards=self._shards(name, files)) for name, files in listed.items()]

    def fetch(self, folder: Folder, keep: Collection[str] = ()) -> Path:
        """See `Source`. A copy is named by what it holds, so that one of other files is never taken for it."""
        self._cache.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(msgspec.json.encode(dict(sorted(folder.files.items())))).hexdigest()[:8]
        copy = self._cache / digest / folder.name
        if not copy.exists():
            part = self._cache / f"{digest}.part"
            shutil.rmtree(part, ignore_errors=True)
            (part / folder.name).mkdir(parents=True)
            with self._named():
                for name in _needed(folder):
                    self._fs.get_file(f"{self._prefix}/{folder.name}/{name}", str(part / folder.name / name))
            shutil.rmtree(copy.parent, ignore_errors=True)
            part.rename(copy.parent)
        self._drop_others({folder.name, *keep}, copy.parent)
        return copy

    def _drop_others(self, names: Collection[str], latest: Path) -> None:
        for each in self._cache.iterdir():
            if each != latest and not any((each / name).is_dir() for name in names):
                shutil.rmtree(each, ignore_errors=True)

    def _shards(self, name: str, files: Mapping[str, File]) -> tuple[str, ...]:
        if INDEX not in files:
            return ()
        with self._named():
            text = self._fs.cat_file(f"{self._prefix}/{name}/{INDEX}")
        try:
            index = msgspec.json.decode(text, type=dict[str, Any]).get("weight_map")
        except (msgspec.MsgspecError, UnicodeDecodeError):  # half-written, perhaps
            return ()
        return tuple(sorted({str(file) for file in index.values()})) if isinstance(index, dict) else ()

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # each store's client raises errors of its own
            raise InputError(f"{self.shown}, where weights are looked for: {plain(str(error))}") from error


def _needed(folder: Folder) -> list[str]:
    """Not the states of optimizers, which are larger than the weights."""
    return [name for name in folder.files if not name.endswith(_NOT_SERVED)]


def _listed_file(about: Mapping[str, object]) -> File:
    stamp = about.get("ETag") or about.get("etag") or about.get("mtime") or about.get("created") or ""
    size = about.get("size")
    return File(size=size if isinstance(size, int) else -1, stamp=str(stamp))
