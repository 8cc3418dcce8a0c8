"""download: files that this machine fetches for a task, once, and puts into its desktops.

    <cache_dir>/<task id>/<uuid5 of the address>_<name>           as OSWorld keeps it
                          <uuid5 of the address>_<name>.sha256    its checksum, as sha256sum writes it

Guarantees: a file has its name only when it is whole; attempts that want it at the same time, in whatever process,
fetch it once; a file that is not what its checksum says is never used; with `offline` no address is asked. An address
without a scheme is a file that comes with the task, and is never outside its folder. Of this machine's other files, a
task gets those below a folder that a mirror names, and no others; of its network, what the settings allow (`asking`).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import posixpath
import tempfile
import uuid
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import aiohttp

from deskroll.clocks import time_limit
from deskroll.desktops.base import Desktop
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.envs.osworld.setup.asking import asking
from deskroll.envs.osworld.setup.context import SetupContext
from deskroll.envs.osworld.setup.locks import hold_lock
from deskroll.envs.osworld.setup.records import Download
from deskroll.errors import SetupError, plain
from deskroll.host.below import LeadsOut, open_linked_below, read_below, resolve_below

UPLOAD_S = 600.0
"""For a file's way into the desktop; upstream's."""
_TRIES = 3
_PAUSE_S = 0.5
"""Before a second try; a server that is overloaded needs it, and nothing tells when it is well. Doubles."""
_CHUNK = 256 * 1024
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class _Passing(Exception):
    """A failure that another try may mend."""


async def download(desktop: Desktop, given: Download, context: SetupContext) -> None:
    """Fetch files, unless they are here, and write them into the desktop."""
    for file in given.files:
        data = await fetch(file.url, posixpath.basename(file.path), context)
        await desktop.write_file(file.path, data, timeout=UPLOAD_S)


def cache_name(url: str, name: str) -> str:
    """What OSWorld calls a file of that address in its cache."""
    return f"{uuid.uuid5(uuid.NAMESPACE_URL, url)}_{name}"


async def fetch(url: str, name: str, context: SetupContext) -> bytes:
    """The bytes of a file: the task's own, from the cache, or from where it is."""
    if is_bundled(url):
        return await asyncio.to_thread(read_bundled, url, context.folder, _most(context.settings))
    path = context.cache / cache_name(url, name)
    try:
        if not path.is_file():
            await _into_cache(url, path, context.settings)
        return await asyncio.to_thread(_checked, path)
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror or error}; see to it, or set cache_dir") from error


def is_bundled(url: str) -> bool:
    """Whether it is a path in the folder of the tasks."""
    try:
        return not urlsplit(url).scheme
    except ValueError as error:
        raise SetupError(f"{plain(url)!r} is not an address: {error}") from None


def bundled(url: str, folder: Path | None) -> Path:
    """The file that comes with a task, under the folder of its tasks. Nothing hidden is one: that is the user's."""
    if folder is None:
        raise SetupError(f"{plain(url)!r} is not an address, and the task has no folder that it could be a path in")
    if "\0" in url or any(part.startswith(".") and part != ".." for part in Path(url).parts):
        raise SetupError(
            f"{plain(url)!r} is not an address, and not a file that comes with a task: a name in it is hidden"
        )
    try:
        path = resolve_below(folder, url)
    except OSError:
        raise SetupError(f"{plain(url)!r} is outside the folder of the tasks, {folder}") from None
    if any(part.startswith(".") for part in path.relative_to(folder.resolve()).parts):  # by a link
        raise SetupError(
            f"{plain(url)!r} is not an address, and not a file that comes with a task: it leads to a hidden one"
        )
    if not path.is_file():
        raise SetupError(f"{plain(url)!r} is not an address, and there is no file {path}")
    return path


def read_bundled(url: str, folder: Path | None, most: int) -> bytes:
    """The content of a file that comes with a task: of so many bytes at most."""
    path = bundled(url, folder)
    assert folder is not None  # noqa: S101  (else it was refused)
    root = folder.resolve()
    try:
        data = read_below(root, str(path.relative_to(root)), most=most + 1)
    except OSError as error:  # it was there just now
        raise SetupError(f"{plain(url)!r} cannot be read: {error.strerror or error}") from None
    if len(data) > most:
        raise SetupError(f"{plain(url)!r} has more than {most} bytes")
    return data


async def _into_cache(url: str, path: Path, settings: OSWorldSettings) -> None:
    source, is_mirror = _source(url, settings)
    if settings.offline and not isinstance(source, _InFolder):
        raise SetupError(f"{plain(url)} is not in the cache, and offline is set; put the file at {path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    async with hold_lock(path.with_name(f".{path.name}.lock")):
        if path.is_file():
            return  # somebody else was quicker
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".part-", delete=False) as part:
            try:
                digest = await _fill(part.fileno(), source, settings, is_mirror=is_mirror)
                os.fsync(part.fileno())
                os.fchmod(part.fileno(), 0o644)
                _side(path).write_text(f"{digest}  {path.name}\n")
                Path(part.name).rename(path)
            finally:
                Path(part.name).unlink(missing_ok=True)


class _InFolder(NamedTuple):
    """A file that stands for an address, in a folder of this machine that is a mirror."""

    url: str
    mirror: str
    root: Path
    path: str

    def open(self) -> int:
        """A descriptor of the file; `..`, however it is written, and links do not lead out of the mirror."""
        try:
            return open_linked_below(self.root, self.path)
        except LeadsOut:
            raise SetupError(
                f"{plain(self.url)} leads out of its mirror, {self.mirror}; what lies, or links, elsewhere is not read"
            ) from None
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise SetupError(
                f"{self.root / self.path} is not there; it stands for an address by way of mirrors"
            ) from None
        except OSError as error:  # a null byte; links in a circle; a pipe
            raise SetupError(f"{plain(self.url)!r} is not an address: {error.strerror}") from None


def _source(url: str, settings: OSWorldSettings) -> tuple[str | _InFolder, bool]:
    """The address or the file to get it from, and whether that is a mirror's.

    Only a mirror may be a folder of this machine: the rest is not theirs.
    """
    fitting = [prefix for prefix in settings.mirrors if url.startswith(prefix)]
    if fitting:
        prefix = max(fitting, key=len)
        mirror = settings.mirrors[prefix]
        source = mirror + url[len(prefix) :]
        if urlsplit(mirror).scheme != "file":
            return source, True
        root, path = (unquote(urlsplit(each).path) for each in (mirror, source))
        return _InFolder(url, mirror, Path(root), os.path.relpath(path, root)), True
    if urlsplit(url).scheme not in ("http", "https"):
        raise SetupError(f"{plain(url)!r} is not an address that can be fetched; allowed: http and https")
    return url, False


async def _fill(file: int, source: str | _InFolder, settings: OSWorldSettings, *, is_mirror: bool) -> str:
    """Write what is at an address, or in a file, into an open file; returns its checksum."""
    if isinstance(source, _InFolder):
        return await asyncio.to_thread(_copy, source, file, settings)
    shown, pause, last = plain(source), _PAUSE_S, ""
    try:
        async with time_limit(settings.download_timeout):
            for n in range(_TRIES):
                if n:
                    await asyncio.sleep(pause)
                    pause *= 2
                try:
                    return await _get(source, file, settings, is_mirror=is_mirror)
                except (_Passing, aiohttp.ClientError, OSError) as error:
                    last = plain(f"{error}" or type(error).__name__)
    except TimeoutError:
        raise SetupError(f"{shown} did not arrive within {settings.download_timeout:g} s (download_timeout)") from None
    raise SetupError(f"{shown} could not be fetched, in {_TRIES} tries: {last}; a mirror can be set (mirrors)")


async def _get(source: str, file: int, settings: OSWorldSettings, *, is_mirror: bool) -> str:
    os.ftruncate(file, 0)
    os.lseek(file, 0, os.SEEK_SET)
    async with asking(source, is_mirror=is_mirror, private=settings.allow_private_downloads) as response:
        if response.status != HTTPStatus.OK:
            said = f"{plain(source)} answers {response.status}"
            if response.status in _PASSING:
                raise _Passing(said)
            raise SetupError(f"{said}; a mirror can be set (mirrors)")
        return await _stream(response, file, settings)


async def _stream(response: aiohttp.ClientResponse, file: int, settings: OSWorldSettings) -> str:
    digest, size, most = hashlib.sha256(), 0, _most(settings)
    async for chunk in response.content.iter_chunked(_CHUNK):
        size += len(chunk)
        _check_size(size, most, str(response.url))
        digest.update(chunk)
        _write(file, chunk)
    return digest.hexdigest()


def _copy(source: _InFolder, file: int, settings: OSWorldSettings) -> str:
    digest, size, most = hashlib.sha256(), 0, _most(settings)
    with os.fdopen(source.open(), "rb") as data:
        while chunk := data.read(_CHUNK):
            size += len(chunk)
            _check_size(size, most, str(source.root / source.path))
            digest.update(chunk)
            _write(file, chunk)
    return digest.hexdigest()


def _most(settings: OSWorldSettings) -> int:
    """Bytes that a file may have."""
    return settings.download_max_mb * 1024 * 1024


def _check_size(size: int, most: int, name: str) -> None:
    if size > most:
        raise SetupError(f"{plain(name)} has more than {most // 1024 // 1024} MiB (download_max_mb)")


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _side(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _checked(path: Path) -> bytes:
    """A file of the cache, compared with its checksum; one that somebody put there gets its checksum now."""
    data, side = path.read_bytes(), _side(path)
    digest = hashlib.sha256(data).hexdigest()
    try:
        noted = side.read_text().split()
    except FileNotFoundError:
        _note(side, f"{digest}  {path.name}\n")
        return data
    if noted[:1] != [digest]:
        raise SetupError(f"{path} is not what {side.name} says: it was changed or damaged; remove both, or the latter")
    return data


def _note(side: Path, text: str) -> None:
    """Whole or not at all: others may read it at the same time."""
    try:
        with tempfile.NamedTemporaryFile("w", dir=side.parent, prefix=".part-", delete=False) as part:
            part.write(text)
            os.fchmod(part.fileno(), 0o644)
        Path(part.name).rename(side)
    except OSError:
        pass  # a folder that we may only read: its files are used as they are
