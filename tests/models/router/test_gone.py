"""A router that goes while a request is open whose weights may change: the answer is there all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deskroll.errors import ModelError
from deskroll.host.frames import Frames
from deskroll.models.openai import OpenAIModel
from deskroll.models.router import wire
from deskroll.models.router.roster import Ticket
from deskroll.models.settings import ModelSettings
from tests.models.servers import QUESTION, canned, http
from tests.models.test_exact import body


class BriefRouter:
    """Grants one ticket, for version 3 of a server that keeps its requests, and ends."""

    def __init__(self, url: str, *, stays: bool) -> None:
        """`stays`: until the ticket comes back, which it does not acknowledge; else it ends at once."""
        self._url = url
        self._stays = stays
        self._frames = Frames(self._hear, lambda: None)

    def __call__(self) -> Frames:
        return self._frames

    def _hear(self, data: bytes) -> None:
        match wire.decode_upward(data):
            case wire.Hello():
                self._say(wire.Welcome())
            case wire.Ask(request=number):
                self._say(wire.Known(endpoint="one", url=self._url, keeps=True))
                self._say(wire.Granted(request=number, ticket=Ticket(id=1, endpoint="one", model="m", version="3")))
                if not self._stays:
                    self._frames.close()
            case wire.GiveBack(tell=True):
                self._frames.close()

    def _say(self, message: wire.Downward) -> None:
        self._frames.send(wire.encode(message))


@asynccontextmanager
async def asking(folder: Path, *, stays: bool, exact: bool) -> AsyncIterator[OpenAIModel]:
    loop, path = asyncio.get_running_loop(), str(folder / "r.sock")
    async with (
        canned(http(body())) as server,
        await loop.create_unix_server(BriefRouter(server.url, stays=stays), path),
        OpenAIModel(ModelSettings(pool=f"unix:{path}", exact=exact)) as model,
    ):
        yield model


@pytest.mark.parametrize("stays", [True, False])
async def test_the_answer_counts_and_claims_no_version(tmp_path: Path, stays: bool) -> None:
    async with asking(tmp_path, stays=stays, exact=False) as model:
        completion = await model.complete(QUESTION)
    assert (completion.text, completion.version, completion.version_end) == ("fine", "", "")


@pytest.mark.parametrize("stays", [True, False])
async def test_to_train_on_it_is_refused(tmp_path: Path, stays: bool) -> None:
    async with asking(tmp_path, stays=stays, exact=True) as model:
        with pytest.raises(ModelError, match="is gone, and nobody knows which weights gave the end of an answer"):
            await model.complete(QUESTION)
