"""A run's folder in an object store, through fsspec: `s3://bucket/folder`, `gs://…`, `memory://…`.

Objects are replaced as a whole, which every such store does atomically and durably. Listings are never taken from
a cache: others write to the same folder.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from deskroll.errors import MissingDependency, StoreError, plain
from deskroll.store.paths import inside
from deskroll.store.storage import Storage

_EXTRAS = {"s3": "s3", "s3a": "s3"}


class ObjectStorage(Storage):
    """A prefix in an object store."""

    local = False

    def __init__(self, url: str) -> None:
        self.root = url.rstrip("/") if not url.endswith("://") else url
        self._scheme = url.partition("://")[0]
        try:
            import fsspec  # type: ignore[import-untyped]  # noqa: PLC0415  (an extra)

            with self._named("open", ""):
                self._fs, self._prefix = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except ImportError as error:
            raise MissingDependency(self._how_to_install(error)) from error
        except ValueError as error:
            raise StoreError(f"cannot open {plain(url)}: {plain(str(error))}; check the part before ://") from error
        self._prefix = self._prefix.rstrip("/")

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

    def upload(self, source: str, path: str) -> None:
        """Copy a file of this machine to an object."""
        with self._named("write", path):
            self._fs.put_file(source, self._path(path))

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

    def _how_to_install(self, error: ImportError) -> str:
        extra = _EXTRAS.get(self._scheme)
        what = f"'deskroll[{extra}]'" if extra else f"fsspec and the package for {self._scheme}:// URLs"
        return f"{plain(self.root)} needs the module {error.name!r}: pip install {what}"

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
        except OSError as error:
            raise StoreError(
                f"cannot {doing} {where}: {_reason(error)}; resume when the store answers again"
            ) from error


def _reason(error: OSError) -> str:
    return plain(re.sub(r"\s+", " ", str(error))) or type(error).__name__
