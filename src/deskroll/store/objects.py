"""A run's folder in an object store, through fsspec: `s3://bucket/folder`, `gs://…`, `memory://…`.

Objects are replaced as a whole, which every such store does atomically and durably. Listings are never taken from
a cache: others write to the same folder.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from deskroll.errors import MissingDependency, StoreError, plain
from deskroll.store.paths import inside
from deskroll.store.storage import Storage

_EXTRAS = {"s3": "s3", "s3a": "s3"}
_SECRET = re.compile(r"://[^/@]*@")


class ObjectStorage(Storage):
    """A prefix in an object store."""

    local = False

    def __init__(self, url: str) -> None:
        self.root = url.rstrip("/") if not url.endswith("://") else url
        self._fs, prefix = self._connect(url)
        self._prefix = prefix.rstrip("/")

    def _connect(self, url: str) -> tuple[Any, str]:
        try:
            import fsspec  # type: ignore[import-untyped]  # noqa: PLC0415  (an extra)

            fs, prefix = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except ImportError as error:
            scheme = url.partition("://")[0]
            extra = _EXTRAS.get(scheme)
            what = f"'deskroll[{extra}]'" if extra else f"fsspec, and the package that it wants for {scheme}://"
            raise MissingDependency(f"{self.shown()} cannot be reached ({error}): pip install {what}") from error
        except Exception as error:  # each store's client raises errors of its own
            raise StoreError(f"cannot open {self.shown()}: {_reason(error)}; check the address") from error
        return fs, str(prefix)

    def shown(self, path: str = "") -> str:
        """A path in a message, without the name and password that an address may hold."""
        return _SECRET.sub("://", plain(super().shown(path)))

    def read(self, path: str, start: int = 0) -> bytes:
        """The object from byte `start` on."""
        with self._named("read", path):
            if start and start >= self._fs.size(self._path(path)):
                return b""  # stores refuse a range that begins at the end
            return bytes(self._fs.cat_file(self._path(path), start=start or None))

    def read_many(self, paths: Sequence[str]) -> list[bytes]:
        """Several whole objects, many at a time where the store can."""
        with self._named("read", paths[0] if paths else ""):
            found = self._fs.cat([self._path(path) for path in paths])
            return [found[self._path(path)] for path in paths]

    def write_atomic(self, path: str, data: bytes) -> None:
        """Put an object."""
        with self._named("write", path):
            self._fs.pipe_file(self._path(path), data)

    def write_new(self, path: str, data: bytes) -> bool:
        """Put an object unless there is one; the store decides who was first."""
        with self._named("write", path):
            try:
                self._fs.pipe_file(self._path(path), data, mode="create")
            except FileExistsError:
                return False
            except OSError as error:
                if "PreconditionFailed" in str(error) or "ConditionalRequestConflict" in str(error):
                    return False
                raise
        return True

    def upload(self, files: Mapping[str, str]) -> None:
        """Copy files of this machine to objects, many at a time where the store can."""
        if files:
            with self._named("write", next(iter(files.values()))):
                self._fs.put(list(files), [self._path(path) for path in files.values()])

    def list(self, folder: str = "") -> list[str]:
        """Names in a folder, sorted; folders end in "/"."""
        with self._named("list", folder):
            try:
                found = self._fs.ls(self._path(folder), detail=True, refresh=True)
            except FileNotFoundError:
                return []
        names = ((posixpath.basename(each["name"].rstrip("/")), each["type"]) for each in found)
        return sorted(f"{name}/" if kind == "directory" else name for name, kind in names if name)

    def exists(self, path: str) -> bool:
        """Whether there is such an object."""
        with self._named("look at", path):
            try:
                self._fs.info(self._path(path), refresh=True)
            except FileNotFoundError:
                return False
        return True

    def size(self, path: str) -> int:
        """Bytes that an object holds."""
        with self._named("look at", path):
            return int(self._fs.info(self._path(path), refresh=True)["size"])

    def _path(self, path: str) -> str:
        return f"{self._prefix}/{inside(path)}" if path else self._prefix

    @contextmanager
    def _named(self, doing: str, path: str) -> Iterator[None]:
        where = self.shown(path)
        try:
            yield
        except (StoreError, FileExistsError):
            raise
        except FileNotFoundError as error:
            missing = "NoSuchBucket" in str(error) or "bucket does not exist" in str(error).lower()
            what = "the bucket does not exist: make it first" if missing else "there is no such object: check the path"
            raise StoreError(f"cannot {doing} {where}: {what}") from error
        except PermissionError as error:
            raise StoreError(
                f"cannot {doing} {where}: forbidden; check the credentials and what they allow in that bucket"
            ) from error
        except Exception as error:  # each store's client raises errors of its own
            raise StoreError(f"cannot {doing} {where}: {_reason(error)}; resume when the store answers") from error


def _reason(error: Exception) -> str:
    return plain(re.sub(r"\s+", " ", str(error))) or type(error).__name__
