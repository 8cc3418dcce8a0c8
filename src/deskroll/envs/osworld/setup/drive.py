"""googledrive: brings a Google drive into the state that a task begins with (Drive's API, version 2, as upstream).

Guarantees: neither key nor token is in a message; what fails is said with the operation and Google's status.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from deskroll.desktops.base import Desktop
from deskroll.envs.osworld.setup.accounts import DriveKey, drive_key
from deskroll.envs.osworld.setup.bodies import whole
from deskroll.envs.osworld.setup.context import SetupContext
from deskroll.envs.osworld.setup.downloads import fetch
from deskroll.envs.osworld.setup.records import Drive, DriveArguments
from deskroll.errors import SetupError, plain

T = TypeVar("T")
CALL_S = 120.0
_FOLDER = "application/vnd.google-apps.folder"
_MOST = 16 * 1024 * 1024
_PAGES = 100
_Query = Mapping[str, str]


class _Token(msgspec.Struct):
    access_token: str


class _File(msgspec.Struct):
    id: str


class _Files(msgspec.Struct, rename="camel"):
    items: list[_File] = msgspec.field(default_factory=list)
    next_page_token: str = ""


async def operate(desktop: Desktop, given: Drive, context: SetupContext) -> None:
    """Perform the operations in order."""
    key = drive_key(context.settings)
    async with _opened(key, context.settings.google_api) as drive:
        for operation, told in zip(given.operation, given.args, strict=True):
            match operation:
                case "delete":
                    await drive.delete(told)
                case "mkdirs":
                    await drive.folder(told.parts)
                case "upload":
                    name = told.parts[-1]
                    await drive.upload(told.parts, await fetch(told.url, name, context))


@asynccontextmanager
async def _opened(key: DriveKey, api: str) -> AsyncIterator[_Drive]:
    timeout = aiohttp.ClientTimeout(total=CALL_S)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
        form = {
            "client_id": key.client_id, "client_secret": key.client_secret, "refresh_token": key.refresh_token,
            "grant_type": "refresh_token",
        }  # fmt: skip
        answer = await _ask(session, "POST", key.token_uri, "asking for a token", data=form)
        yield _Drive(session, api.rstrip("/"), _decoded(answer, _Token, "asking for a token").access_token)


class _Drive:
    """One drive."""

    def __init__(self, session: aiohttp.ClientSession, api: str, token: str) -> None:
        self._session = session
        self._api = api
        self._headers = {"Authorization": f"Bearer {token}"}

    async def delete(self, told: DriveArguments) -> None:
        """Delete what a query finds, or put it into the bin: files first, then folders."""
        for sign in ("!=", "="):
            for file in await self._found(f"( {told.query} ) and mimeType {sign} '{_FOLDER}'"):
                path = f"/drive/v2/files/{quote(file, safe='')}"
                if told.trash:
                    await self._call("POST", f"{path}/trash", gone=True)
                else:
                    await self._call("DELETE", path, gone=True)

    async def folder(self, parts: Sequence[str]) -> str:
        """The id of a folder, which is made if it is not there."""
        parent = "root"
        for part in parts:
            name = part.replace("\\", "\\\\").replace("'", "\\'")
            query = f"'{parent}' in parents and title = '{name}' and mimeType = '{_FOLDER}' and trashed = false"
            found = await self._found(query)
            parent = found[0] if found else await self._made(part, parent)
        return parent

    async def upload(self, parts: Sequence[str], data: bytes) -> None:
        """Put a file into the drive."""
        about = {"title": parts[-1], "parents": [{"id": await self.folder(parts[:-1])}]}
        with aiohttp.MultipartWriter("related") as body:
            body.append_json(about)
            body.append(data, {"Content-Type": "application/octet-stream"})
            await self._call("POST", "/upload/drive/v2/files", query={"uploadType": "multipart"}, data=body)

    async def _made(self, name: str, parent: str) -> str:
        about = {"title": name, "mimeType": _FOLDER, "parents": [{"id": parent}]}
        answer = await self._call("POST", "/drive/v2/files", json=about)
        return _decoded(answer, _File, "making a folder").id

    async def _found(self, query: str) -> list[str]:
        found: list[str] = []
        page: _Query = {}
        for _ in range(_PAGES):
            answer = await self._call("GET", "/drive/v2/files", query={"q": query, "maxResults": "1000", **page})
            files = _decoded(answer, _Files, "looking for files")
            found += [each.id for each in files.items]
            if not files.next_page_token:
                return found
            page = {"pageToken": files.next_page_token}
        raise SetupError(f"Google Drive lists more than {_PAGES} pages of files for {plain(query)}")

    async def _call(
        self, method: str, path: str, *, query: _Query | None = None, gone: bool = False, **body: Any
    ) -> bytes:
        url = f"{self._api}{path}"
        return await _ask(
            self._session, method, url, f"{method} {path}", gone=gone, params=query, headers=self._headers, **body
        )


async def _ask(
    session: aiohttp.ClientSession, method: str, url: str, what: str, *, gone: bool = False, **more: Any
) -> bytes:
    """The body of a good answer; with `gone`, that the thing is not there is good, too: its folder went before it."""
    try:
        async with session.request(method, url, allow_redirects=False, **more) as response:
            answer = await whole(response, _MOST)
            if response.status < 300 or (gone and response.status == 404):
                return answer
            status = response.status
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise SetupError(f"Google Drive: {what}: {plain(type(error).__name__)}") from None
    except SetupError as error:
        raise SetupError(f"Google Drive: {what}: {error}") from None
    raise SetupError(f"Google Drive: {what}: it answers {status}; is the account's consent (google_drive) still valid?")


def _decoded(answer: bytes, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.MsgspecError:
        raise SetupError(f"Google Drive: {what}: it answers with something else") from None
