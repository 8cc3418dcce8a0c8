"""googledrive: what is asked of Google's API, of a server that stands for it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import BodyPartReader, web
from aiohttp.test_utils import TestServer

from deskroll.desktops.guest.client import GuestDesktop
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.envs.osworld.setup import SetupContext, perform
from deskroll.errors import SetupError
from tests.envs.osworld.conftest import Shelf

FOLDER = "application/vnd.google-apps.folder"


class Google:
    """A drive in memory: enough of the API, and a note of every call."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.queries: list[str] = []
        self.finds: dict[str, list[str]] = {}
        """Ids by a part of the query that finds them."""
        self.made: list[dict[str, Any]] = []
        self.uploaded: list[bytes] = []
        self.page = 1
        """How many ids one page lists."""
        self.refuse = False
        self.url = ""

    async def token(self, request: web.Request) -> web.Response:
        form = await request.post()
        known = (form["refresh_token"], form["client_id"], form["client_secret"], form["grant_type"])
        if known != ("r-token", "c-id", "c-secret", "refresh_token"):
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response({"access_token": "a-token"})

    async def api(self, request: web.Request) -> web.Response:
        if self.refuse or request.headers.get("Authorization") != "Bearer a-token":
            return web.Response(status=401)
        self.calls.append(f"{request.method} {request.path}")
        if request.method == "GET":
            return self._list(request)
        if request.path.startswith("/upload"):
            assert request.query["uploadType"] == "multipart"
            parts = [part async for part in self._parts(request)]
            self.made.append(json.loads(parts[0]))
            self.uploaded.append(parts[1])
        elif request.method == "POST" and request.path == "/drive/v2/files":
            self.made.append(await request.json())
        elif request.path.endswith("gone"):
            return web.Response(status=404)
        return web.json_response({"id": f"made-{len(self.made)}"})

    def _list(self, request: web.Request) -> web.Response:
        self.queries.append(request.query["q"])
        found = [each for part, ids in self.finds.items() if part in request.query["q"] for each in ids]
        at = int(request.query.get("pageToken", "0"))
        end = at + self.page
        more = {"nextPageToken": str(end)} if end < len(found) else {}
        return web.json_response({"items": [{"id": each} for each in found[at:end]], **more})

    async def _parts(self, request: web.Request) -> AsyncIterator[bytes]:
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            yield bytes(await part.read())


@pytest_asyncio.fixture
async def google() -> AsyncIterator[Google]:
    found = Google()
    app = web.Application()
    app.router.add_post("/token", found.token)
    app.router.add_route("*", "/{path:.*}", found.api)
    async with TestServer(app) as server:
        found.url = str(server.make_url("")).rstrip("/")
        yield found


@pytest.fixture
def here(google: Google, tmp_path: Path) -> SetupContext:
    return around(google, tmp_path)


def around(google: Google, folder: Path, **other: str) -> SetupContext:
    key = {"client_id": "c-id", "client_secret": "c-secret", "refresh_token": "r-token", "more": 1, **other}
    folder.joinpath("key.json").write_text(json.dumps({**key, "token_uri": f"{google.url}/token"}))
    settings = OSWorldSettings(
        google_drive=str(folder / "key.json"),
        google_api=google.url,
        cache_dir=str(folder / "cache"),
        allow_private_downloads=True,
    )
    return SetupContext("t", settings)


def step(operation: str, **args: Any) -> dict[str, Any]:
    given = {"settings_file": "/etc/passwd", "operation": [operation], "args": [args]}
    return {"type": "googledrive", "parameters": given}


@pytest.mark.parametrize(
    ("trash", "call"), [(False, "DELETE /drive/v2/files/{}"), (True, "POST /drive/v2/files/{}/trash")]
)
async def test_delete(trash: bool, call: str, google: Google, here: SetupContext, sim: GuestDesktop) -> None:
    google.finds = {"mimeType !=": ["f1", "f2"], "mimeType =": ["d1"]}
    await perform([step("delete", query="title = 'emails'", trash=trash)], sim, here)
    assert [each for each in google.calls if not each.startswith("GET")] == [call.format(n) for n in ("f1", "f2", "d1")]
    assert set(google.queries) == {
        f"( title = 'emails' ) and mimeType != '{FOLDER}'",
        f"( title = 'emails' ) and mimeType = '{FOLDER}'",
    }


async def test_a_long_page_is_read_to_its_end(google: Google, here: SetupContext, sim: GuestDesktop) -> None:
    google.page = 1000
    google.finds = {"title = 'there'": [f"id-{n:04d}-{'x' * 1000}" for n in range(1000)]}
    await perform([step("mkdirs", path=["there", "new"])], sim, here)
    assert google.made == [{"title": "new", "mimeType": FOLDER, "parents": [{"id": f"id-0000-{'x' * 1000}"}]}]
    google.finds = {"title = 'there'": ["x" * 17 * 1024 * 1024]}
    with pytest.raises(
        SetupError, match=r"Google Drive: GET /drive/v2/files: it answers with more than 16777216 bytes"
    ):
        await perform([step("mkdirs", path="there")], sim, here)


async def test_what_went_with_its_folder_is_deleted(google: Google, here: SetupContext, sim: GuestDesktop) -> None:
    google.finds = {"mimeType !=": ["gone"]}
    await perform([step("delete", query="title = 'x'")], sim, here)


async def test_folders_are_made_where_they_are_not(google: Google, here: SetupContext, sim: GuestDesktop) -> None:
    google.finds = {"title = 'there'": ["d7"]}
    await perform([step("mkdirs", path=["there", "it's new"])], sim, here)
    assert google.made == [{"title": "it's new", "mimeType": FOLDER, "parents": [{"id": "d7"}]}]
    assert r"'d7' in parents and title = 'it\'s new'" in google.queries[-1]


async def test_a_file_is_fetched_and_uploaded(
    google: Google, here: SetupContext, sim: GuestDesktop, shelf: Shelf
) -> None:
    shelf.files["/invoice"] = b"%PDF\x00"
    await perform([step("upload", url=f"{shelf.url}/invoice", path=["invoice.pdf"])], sim, here)
    assert google.made == [{"title": "invoice.pdf", "parents": [{"id": "root"}]}]
    assert google.uploaded == [b"%PDF\x00"]


async def test_what_google_refuses_says_what_to_look_at(google: Google, sim: GuestDesktop, tmp_path: Path) -> None:
    bad = around(google, tmp_path, refresh_token="r-stale")
    with pytest.raises(
        SetupError, match=r"\(googledrive\): Google Drive: asking for a token: it answers 400"
    ) as caught:
        await perform([step("mkdirs", path="a")], sim, bad)
    assert "r-stale" not in str(caught.value)
    good = around(google, tmp_path)
    google.refuse = True
    with pytest.raises(SetupError, match="it answers 401; is the account's consent") as caught:
        await perform([step("mkdirs", path="a")], sim, good)
    assert "a-token" not in str(caught.value)


async def test_without_a_key_no_drive_is_touched(google: Google, sim: GuestDesktop) -> None:
    with pytest.raises(
        SetupError, match=r"needs an account at Google, and none is given; set env_options.google_drive"
    ):
        await perform([step("mkdirs", path="a")], sim, SetupContext("t", OSWorldSettings(google_api=google.url)))
    assert not google.calls
