"""AttemptWriter: the folder of one attempt, written while the attempt goes on.

Whatever was handed over is in its file at once: a killed process loses nothing of it (a machine that loses its power
may, until the attempt is sealed). `seal` makes every file durable, then writes the manifest, durably: a folder with an
`episode.json` is whole. A folder is made for one attempt and never used again; one that was not sealed stays, as
evidence. For an object store the files are spooled on this machine (`spool.py`) and uploaded in the end, the manifest
last.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from deskroll.errors import StoreError, plain
from deskroll.host.below import check_folder_below
from deskroll.store import paths
from deskroll.store.commit import Commit, write_all
from deskroll.store.index import shown
from deskroll.store.local import LocalStorage
from deskroll.store.manifest import Manifest, StoredFile, Tokens, digest
from deskroll.store.spool import Spool
from deskroll.store.storage import Storage, store_error
from deskroll.types import Episode, EpisodeKey, Step, Task

_OURS = frozenset({paths.EPISODE_JSON, paths.TASK_JSON, paths.STEPS, paths.CONVERSATION, paths.TOKENS})
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
_JPEG = b"\xff\xd8\xff"
_PART = f".{paths.EPISODE_JSON}.part"


class _Growing:
    """A file that is appended to, and what the manifest will say about it."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, _NEW, 0o666)
        self.size = 0
        self.digest = digest()

    def append(self, data: bytes) -> None:
        if (written := os.write(self.fd, data)) < len(data):  # a disk that is about to be full takes a part at first
            write_all(self.fd, data[written:])
        self.digest.update(data)
        self.size += len(data)


class AttemptWriter:
    """One attempt's folder. Use it with `async with`, or call `close` in the end."""

    def __init__(self, storage: Storage, key: EpisodeKey, attempt: int) -> None:
        self.key = key
        self.attempt = attempt
        self.name = paths.attempt_folder(key, attempt)
        """The folder, relative to the run's."""
        self.sealed = False
        self._storage = storage
        self._shown = storage.shown(self.name)
        self._growing: dict[str, _Growing] = {}
        self._files: dict[str, StoredFile] = {}
        self._screens: dict[str, str] = {}
        self._last: tuple[bytes, str] = (b"", "")
        """The image that was kept last, for it is asked for twice: by the agent and by the step."""
        self._placed: list[str] = []
        self._tokens = Tokens()
        self._closed = False
        with self._named("make"):
            if isinstance(storage, LocalStorage):
                self._folder = storage.path(self.name)
                self._make(self._folder)
                check_folder_below(storage.root, self.name)
                storage.commits.prepare()
            else:
                self._spool = Spool()
                self._folder = self._spool.folder

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- while the attempt goes on ---

    def task(self, task: Task) -> None:
        """Keep the task, once."""
        if paths.TASK_JSON not in self._files:
            data = msgspec.json.format(msgspec.json.encode(task), indent=1) + b"\n"
            self._write(paths.TASK_JSON, data, digest(data).hexdigest())

    def message(self, stored: bytes) -> None:
        """Append one message, a JSON object, to the conversation."""
        first = paths.CONVERSATION not in self._growing
        self._append(paths.CONVERSATION, (b"[\n" if first else b",\n") + stored)

    def screen(self, image: bytes) -> str:
        """Keep an image, each distinct one once, and return its name within the folder."""
        if image is self._last[0]:
            return self._last[1]
        digested = digest(image).hexdigest()
        name = self._screens.get(digested)
        if name is None:
            kind = "jpg" if image.startswith(_JPEG) else "png"
            if not self._screens:
                with self._named("make"):
                    os.mkdir(f"{self._folder}/{paths.SCREENS}")  # noqa: PTH102
            name = f"{paths.SCREENS}/{len(self._screens)}.{kind}"
            self._write(name, image, digested)
            self._screens[digested] = name
        self._last = (image, name)
        return name

    def step(self, step: Step) -> None:
        """Append one step; its token ids and log-probabilities are kept apart, where numpy is installed."""
        self._append(paths.STEPS, msgspec.json.encode(self._tokens.take(step)) + b"\n")

    def file(self, name: str, data: bytes) -> str:
        """Keep any other small file; returns its name, which is another one where that one is taken."""
        self._check(name)
        stem, dot, suffix = name.partition(".")
        free, number = name, 2
        while free in self._files or free in self._placed:
            free, number = f"{stem}-{number}{dot}{suffix}", number + 1
        self._write(free, data, digest(data).hexdigest())
        return free

    def place(self, name: str) -> Path:
        """Where another program may write a file of this name until the attempt is sealed: a recording, for one."""
        self._check(name)
        self._placed.append(name)
        return Path(self._folder, name)

    # --- in the end ---

    async def seal(self, episode: Episode) -> None:
        """Make all durable, then write the manifest. When this returns, the attempt may become the outcome."""
        self._writable()
        if (episode.key, episode.attempt) != (self.key, self.attempt):
            raise StoreError(f"{self._shown}: the record of {shown(episode.key)} does not belong here")
        if conversation := self._growing.get(paths.CONVERSATION):
            with self._named("write"):
                conversation.append(b"\n]\n")
        if len(self._tokens):
            data = self._tokens.encode()
            self._write(paths.TOKENS, data, digest(data).hexdigest())
        if self._placed:
            with self._named("read"):
                await asyncio.to_thread(self._take_placed)
        grown = (StoredFile(name=n, size=f.size, sha256=f.digest.hexdigest()) for n, f in self._growing.items())
        manifest = Manifest.of(episode, sorted([*grown, *self._files.values()], key=lambda file: file.name))
        names = [*self._growing, *self._files]
        self._closed = True
        self._close_files()
        await self._publish(manifest.encode(), names)
        self.sealed = True

    async def close(self) -> None:
        """Write no more. What was not sealed stays as it is, as evidence."""
        if self._closed:
            return
        self._closed = True
        self._close_files()
        if not isinstance(self._storage, LocalStorage):
            await asyncio.to_thread(self._upload, sorted(self._evidence()))

    async def discard(self) -> None:
        """Take the folder of an attempt that never began away again; what something was written to stays."""
        self._closed = True
        self._close_files()
        if isinstance(self._storage, LocalStorage):
            with contextlib.suppress(OSError):
                os.rmdir(self._folder)  # noqa: PTH106
        else:
            self._spool.remove()

    # --- the machinery ---

    async def _publish(self, manifest: bytes, names: list[str]) -> None:
        part = f"{self._folder}/{_PART}"
        with self._named("write"):
            fd = os.open(part, _NEW, 0o666)
            try:
                write_all(fd, manifest)
            finally:
                os.close(fd)
        target = f"{self._folder}/{paths.EPISODE_JSON}"
        if isinstance(self._storage, LocalStorage):
            files = [*(f"{self._folder}/{name}" for name in names), part]
            folders = [f"{self._folder}/{paths.SCREENS}"] if self._screens else []
            await self._storage.commits.add(Commit(self._folder, files, folders, (part, target)))
        else:
            os.rename(part, target)  # noqa: PTH104
            await asyncio.to_thread(self._upload, [*names, paths.EPISODE_JSON])

    def _upload(self, names: list[str]) -> None:
        """Copy the spooled files to the object store, the manifest last; they stay where that fails."""
        try:
            if self._storage.exists(f"{self.name}/{paths.EPISODE_JSON}"):
                raise StoreError(f"{self._shown} was sealed before: an attempt's folder is never used again")  # noqa: TRY301
            last = names[-1:] if paths.EPISODE_JSON in names else []
            for some in (names[: len(names) - len(last)], last):
                self._storage.upload({f"{self._folder}/{name}": f"{self.name}/{name}" for name in some})
        except StoreError as error:
            raise StoreError(f"{error}. What the attempt wrote is kept in {self._spool.keep()}") from error
        self._spool.remove()

    def _evidence(self) -> Iterator[str]:
        for folder, _, names in os.walk(self._folder):
            yield from (os.path.relpath(f"{folder}/{name}", self._folder) for name in names)

    def _make(self, folder: str) -> None:
        try:
            sample = folder.rpartition("/")[0]
            for above in (sample.rpartition("/")[0], sample):  # most often just these two are new
                _make_all(above)
            os.mkdir(folder)  # noqa: PTH102
        except FileExistsError:
            raise StoreError(
                f"{self._shown} is there already: an attempt's folder is never used again. Give it the next number"
            ) from None

    def _append(self, name: str, data: bytes) -> None:
        self._writable()
        try:
            file = self._growing.get(name)
            if file is None:
                file = self._growing[name] = _Growing(f"{self._folder}/{name}")
            file.append(data)
        except OSError as error:
            raise store_error("write", f"{self._shown}/{name}", error) from error

    def _write(self, name: str, data: bytes, digested: str) -> None:
        self._writable()
        with self._named("write", name):
            fd = os.open(f"{self._folder}/{name}", _NEW, 0o666)
            try:
                write_all(fd, data)
            finally:
                os.close(fd)
        self._files[name] = StoredFile(name=name, size=len(data), sha256=digested)

    def _take_placed(self) -> None:
        for name in self._placed:
            path = Path(self._folder, name)
            if path.is_file():
                found = digest()
                with path.open("rb") as file:
                    while data := file.read(1 << 20):
                        found.update(data)
                self._files[name] = StoredFile(name=name, size=path.stat().st_size, sha256=found.hexdigest())

    def _check(self, name: str) -> None:
        paths.inside(name)
        if name in _OURS or "/" in name or name.startswith("."):
            raise StoreError(f"{plain(name)!r} cannot be the name of a further file of an attempt")

    def _writable(self) -> None:
        if self._closed:
            raise StoreError(f"{self._shown} is closed: nothing can be written to it any more")

    def _close_files(self) -> None:
        for file in self._growing.values():
            os.close(file.fd)
        self._growing.clear()

    @contextmanager
    def _named(self, doing: str, name: str = "") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise store_error(doing, f"{self._shown}/{name}" if name else self._shown, error) from error


def _make_all(folder: str) -> None:
    """Make a folder and what is missing above it; others may do the same at this moment."""
    try:
        os.mkdir(folder)  # noqa: PTH102
    except FileNotFoundError:
        _make_all(folder.rpartition("/")[0])
        _make_all(folder)
    except FileExistsError:
        pass
