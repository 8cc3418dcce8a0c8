"""TaskLoader: where the batches of a service come from: a folder, a file that names tasks, or an HTTP address.

A batch is known by its id and the digest of what it says: whoever remembers those (`Knows`) is given none twice, also
after a restart; a bad one may be put back when it was mended. Guarantees: what cannot be read is a `BadBatch` with what
is wrong, never an exception, and can be set aside; nothing is read but what the source names, and never more than
`max_mb` of it. What passes (a server that does not answer) is a `SourceError`: it is polled again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import ClassVar, Protocol, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from deskroll.config import Settings
from deskroll.errors import ConfigError, DeskrollError, InputError
from deskroll.host.folder_watch import FolderWatch
from deskroll.host.home import expand_home
from deskroll.tasks.reading import is_folder
from deskroll.types import Record, Task

ADDRESSES = ("http://", "https://")
SUFFIXES = (".json", ".jsonl")
BAD = "bad"
"""The folder of what was set aside."""


class SourceError(DeskrollError):
    """A source cannot be looked into at the moment."""


class SourceSettings(Settings):
    """Where batches of tasks come from."""

    text_is: ClassVar[str] = "at"
    at: str = ""
    """A folder in which each .json or .jsonl file is a batch; a file, {type: [ids]}, which is a batch whenever it
    changes; or an address (http, https) that answers {"id": ..., "tasks": [...]}, or 204 where there is none."""
    root: str = ""
    """The folder with the tasks that a file {type: [ids]} names; empty: `examples` beside it. Of an address: the folder
    with the files that its tasks name; empty: they may name none."""
    newest_only: bool = False
    """Of several new files in a folder only the newest is run; the others are passed over for good."""
    rest_ms: int = Field(default=500, ge=0, le=600_000)
    """A file is read when it has not changed for so long, in milliseconds; one that is moved into place is whole."""
    token_env: str = ""
    """The environment variable with the token that is sent to an address (Authorization: Bearer); empty: none is."""
    timeout: float = Field(default=30.0, gt=0, le=3600)
    """The longest that an address may take to answer, in seconds."""
    max_mb: float = Field(default=64.0, gt=0, le=2000)
    """The largest batch that is read, in megabytes (10^6 bytes)."""

    @field_validator("at", "root")
    @classmethod
    def _expand(cls, value: str) -> str:
        return expand_home(value)

    @field_validator("at")
    @classmethod
    def _check_address(cls, value: str) -> str:
        if value.startswith(ADDRESSES):
            parts = urlsplit(value)
            if not parts.hostname:
                raise ValueError("it names no host")
            if parts.username is not None or parts.password is not None:
                raise ValueError("it holds a name or a password; put a token into a variable (token_env)")
        elif "://" in value:
            raise ValueError("an address begins with http:// or https://")
        return value

    @property
    def is_address(self) -> bool:
        """Whether it is asked over HTTP."""
        return self.at.startswith(ADDRESSES)

    @property
    def shown(self) -> str:
        """What people are told of it: an address without its query, which may hold a secret."""
        return self.at.partition("?")[0] if self.is_address else self.at

    @property
    def is_file(self) -> bool:
        """Whether it is one file."""
        return not self.is_address and self.at.lower().endswith(SUFFIXES)


class BatchName(Record, frozen=True):
    """What a batch is known by."""

    id: str
    digest: str


class TaskBatch(BatchName, frozen=True, kw_only=True):
    """Tasks that came together."""

    tasks: tuple[Task, ...]
    passed: tuple[BatchName, ...] = ()
    """Older ones that are not run, because this one is newer."""


class BadBatch(BatchName, frozen=True, kw_only=True):
    """A batch that cannot be run."""

    error: str
    """What is wrong with it."""


Knows = Callable[[BatchName], bool]
"""Whether a batch was taken before, or passed over. A bad one that was set aside is new when it comes again."""


class Source(Protocol):
    """One kind of source."""

    folder: Path | None
    """What is watched for changes; None: nothing can be."""

    def concerns(self, name: str) -> bool:
        """Whether a change of the file of this name in that folder is worth a look."""
        return False

    @property
    def waiting(self) -> int:
        """Batches that were seen and not handed out yet, as far as that is known."""
        return 0

    @property
    def unsettled_s(self) -> float | None:
        """When to look again at what is still being written, in seconds; None: nothing is."""
        return None

    async def close(self) -> None:
        """Let go of what it holds."""
        return

    async def poll(self, knows: Knows) -> TaskBatch | BadBatch | None:
        """The next batch that nobody knows."""

    async def set_aside(self, bad: BadBatch) -> str:
        """Take a bad batch out of the way, with what is wrong with it; where it is now."""


class TaskLoader:
    """Use with `async with`."""

    def __init__(self, source: Source, knows: Knows) -> None:
        self._source = source
        self._knows = knows
        self._watch: FolderWatch | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._source.close)
            if self._source.folder is not None:
                self._watch = await stack.enter_async_context(FolderWatch(self._source.folder, self._source.concerns))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    @property
    def waiting(self) -> int:
        """Batches that were seen and not handed out yet, as far as that is known."""
        return self._source.waiting

    async def poll_for_tasks(self) -> TaskBatch | BadBatch | None:
        """The next batch that nobody knows, if there is one; raises `SourceError` where that cannot be seen."""
        return await self._source.poll(self._knows)

    async def set_aside(self, bad: BadBatch) -> str:
        """Take a bad batch out of the way; where it is now."""
        return await self._source.set_aside(bad)

    async def wait(self, seconds: float) -> bool:
        """Wait until it is worth polling again, at most so long; whether something has changed."""
        if (soon := self._source.unsettled_s) is not None:
            await asyncio.sleep(min(soon, seconds))  # whether a size rests shows by waiting, however often it changes
            return True
        if self._watch is None:
            await asyncio.sleep(seconds)  # an address tells nobody that it has something
            return False
        return await self._watch.wait(seconds)


def open_source(settings: SourceSettings, aside: Path, after: str = "") -> Source:
    """The source that settings name; `aside`: where bad batches go that lie in no folder of their own.

    `after`: which batch an earlier start took last.
    """
    # Each imports this file; and who reads a folder needs no HTTP.
    from deskroll.tasks.batches_file import FileSource  # noqa: PLC0415
    from deskroll.tasks.batches_folder import FolderSource  # noqa: PLC0415
    from deskroll.tasks.batches_http import HttpSource  # noqa: PLC0415

    if not settings.at.strip():
        raise ConfigError("source is empty; name a folder, a file {type: [ids]}, or an address (http://...)")
    if settings.is_address:
        return HttpSource(settings, read_token(settings), aside, after)
    if settings.token_env:
        raise ConfigError(f"source.token_env is for an address; {settings.at} is a path")
    if settings.root and not is_folder(Path(settings.root)):
        raise InputError(f"source.root: there is no folder {Path(settings.root).absolute()}, which tasks are read from")
    return FileSource(settings, aside) if settings.is_file else FolderSource(settings)


def read_token(settings: SourceSettings) -> str:
    """The token for an address; empty: none is wanted."""
    token = os.environ.get(settings.token_env, "").strip() if settings.token_env else ""
    if settings.token_env and not token:
        raise ConfigError(f"source.token_env is {settings.token_env}, and that environment variable is not set")
    return token


def as_text(text: str) -> str:
    """The same, with what no UTF-8 can hold (half of a character, odd bytes of a file's name) written out."""
    return text.encode(errors="backslashreplace").decode()


def bad_batch(name: BatchName, error: object) -> BadBatch:
    """A batch that cannot be run, and why; fit to be written down."""
    return BadBatch(id=name.id, digest=name.digest, error=as_text(str(error)))


def digest_of(data: bytes) -> str:
    """Of what a batch says."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def check_size(data: bytes, settings: SourceSettings, name: str) -> None:
    """Refuse what is larger than the limit."""
    if len(data) > most_bytes(settings):
        raise InputError(f"{name}: it is larger than {settings.max_mb:g} MB; split it, or raise source.max_mb")


def most_bytes(settings: SourceSettings) -> int:
    """The largest batch, in bytes; reading one more shows that there is more."""
    return int(settings.max_mb * 1e6)
