"""HttpSource: an address that is asked for the next batch: GET → `{"id": ..., "tasks": [...]}`, or 204: there is none.

Each request says in `after` which batch was taken last, so that an address can go on from there after either side has
crashed: a batch is taken when the next request names it. Guarantees: no redirect is followed, so that nobody else gets
the token; an answer has a deadline and a size; what it says can name no file but those below `root`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import msgspec

from deskroll.errors import InputError, plain
from deskroll.host.tokens import bearer_headers
from deskroll.tasks.aside import keep_aside
from deskroll.tasks.batches import (
    BadBatch,
    BatchName,
    Knows,
    Source,
    SourceError,
    SourceSettings,
    TaskBatch,
    bad_batch,
    check_size,
    digest_of,
    most_bytes,
)
from deskroll.tasks.load import parse_list
from deskroll.tasks.reading import decode, kind_of, text_of

LONGEST_ID = 200
_CHUNK = 1 << 16


class HttpSource(Source):
    """See `Source`."""

    def __init__(self, settings: SourceSettings, token: str, aside: Path, after: str = "") -> None:
        """`after`: which batch an earlier start took last."""
        self.folder: Path | None = None
        self._settings = settings
        self._headers = bearer_headers(token)
        self._aside = aside
        self._http: aiohttp.ClientSession | None = None
        self._after = after
        self._last: BatchName | None = None
        self._said = b""
        """What it answered then."""

    async def close(self) -> None:
        """See `Source`."""
        if self._http is not None:
            await self._http.close()

    async def poll(self, knows: Knows) -> TaskBatch | BadBatch | None:
        """See `Source`."""
        if (data := await self._ask()) is None:
            return None
        batch = await asyncio.to_thread(self._read, data)
        name = BatchName(id=batch.id, digest=batch.digest)
        if name == self._last or knows(name):
            return None  # it repeats what it said: there is nothing new
        self._last, self._said, self._after = name, data, batch.id
        return batch

    async def set_aside(self, bad: BadBatch) -> str:
        """See `Source`."""
        data = self._said if self._last is not None and self._last.id == bad.id else b""
        return await asyncio.to_thread(keep_aside, self._aside, f"{bad.id}.json", bad, data)

    async def _ask(self) -> bytes | None:
        """What it answers; None: it has nothing."""
        settings = self._settings
        if self._http is None:
            timeout = aiohttp.ClientTimeout(total=settings.timeout)
            self._http = aiohttp.ClientSession(
                timeout=timeout, headers=self._headers, cookie_jar=aiohttp.DummyCookieJar()
            )
        after = {"after": self._after} if self._after else {}
        try:
            async with self._http.get(settings.at, params=after, allow_redirects=False) as response:
                if response.status == 204:
                    return None
                if response.status != 200:
                    raise SourceError(f"source: {settings.shown} answered {_meaning(response)}")
                return await _read_body(response, most_bytes(settings) + 1)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            why = plain(str(error)) or f"no answer within {settings.timeout:g} s"
            raise SourceError(f"source: {settings.shown} cannot be asked: {why}") from error

    def _read(self, data: bytes) -> TaskBatch | BadBatch:
        name, digest, shown = "", digest_of(data), self._settings.shown
        try:
            check_size(data, self._settings, shown)
            said = decode(text_of(data, shown), shown)
            name = _batch_id(said, shown)
            digest = _digest(said, shown)
            tasks = parse_list(_list_of_tasks(said, shown), f"{shown}: batch {name!r}: tasks")
        except InputError as error:
            return bad_batch(BatchName(id=name or f"answer-{digest[:8]}", digest=digest), error)
        return TaskBatch(id=name, digest=digest, tasks=tuple(tasks))


def _digest(said: object, where: str) -> str:
    """Of what it says, however it is spaced and ordered."""
    try:
        return digest_of(msgspec.json.encode(said, order="deterministic"))
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise InputError(f"{where}: it holds half of a character ({half!a}); write the whole character") from None


def _list_of_tasks(said: object, where: str) -> list[object]:
    tasks = said.get("tasks") if isinstance(said, dict) else None
    if not isinstance(tasks, list):
        raise InputError(f"{where}: tasks is a {kind_of(tasks)}; it must be a list of tasks")
    return tasks


def _batch_id(said: object, where: str) -> str:
    if not isinstance(said, dict):
        raise InputError(f'{where}: it answers a {kind_of(said)}; it must be an object: {{"id": ..., "tasks": [...]}}')
    name = said.get("id")
    if isinstance(name, int) and not isinstance(name, bool):
        name = str(name)
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"{where}: the id of the batch is missing; it must be a text")
    if len(name) > LONGEST_ID or plain(name, LONGEST_ID) != name:
        raise InputError(f"{where}: the id of the batch has over {LONGEST_ID} characters, or some that do not show")
    return name


def _meaning(response: aiohttp.ClientResponse) -> str:
    if 300 <= response.status < 400:
        return f"{response.status} (a redirect, which is not followed: name the address that it leads to)"
    hint = "; is the token right (source.token_env)?" if response.status in (401, 403) else ""
    return f"{response.status} {plain(response.reason or '')}{hint}"


async def _read_body(response: aiohttp.ClientResponse, most: int) -> bytes:
    """What it says, up to so many bytes."""
    data = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        data += chunk
        if len(data) >= most:
            break
    return bytes(data[:most])
