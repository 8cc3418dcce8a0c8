"""Where the cause of a desktop's death lies: told by those who can know, and carried to whoever judges the episode."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from deskroll.desktops.base import Address
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.errors import DeathCause, DesktopLost, DesktopTimeout
from deskroll.rollout.stopping import error_of
from deskroll.types import Failure


@asynccontextmanager
async def guest_saying(folder: Path, answer: dict[str, object]) -> AsyncIterator[GuestDesktop]:
    """A guest that answers everything with one refusal, as a hostile one may."""

    async def refuse(_request: web.Request) -> web.Response:
        return web.json_response(answer, status=503)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(folder / "guest.sock")).start()
        address = Address(id="d1", endpoint=f"unix:{folder / 'guest.sock'}", provider="static", width=800, height=600)
        async with GuestDesktop(address) as desktop:
            yield desktop
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("said", "believed"),
    [
        ({}, DeathCause.UNKNOWN),
        ({"cause": "inside"}, DeathCause.INSIDE),
        ({"cause": "unknown"}, DeathCause.UNKNOWN),
        ({"cause": "outside"}, DeathCause.UNKNOWN),  # a program inside could say so to be acquitted
        ({"cause": "no such"}, DeathCause.UNKNOWN),
    ],
)
async def test_what_a_guest_says_of_its_death(tmp_path: Path, said: dict[str, object], believed: DeathCause) -> None:
    async with guest_saying(tmp_path, {"message": "Xvfb is gone", "lost": True, **said}) as desktop:
        with pytest.raises(DesktopLost, match="Xvfb is gone") as caught:
            await desktop.screenshot()
    assert caught.value.cause is believed


@pytest.mark.parametrize("cause", DeathCause)
def test_a_failure_keeps_the_cause_and_gives_it_back(cause: DeathCause) -> None:
    failure = Failure.of(DesktopLost("desktop d1 is gone", cause))
    assert failure.cause is cause
    again = error_of(failure)
    assert isinstance(again, DesktopLost) and again.cause is cause and str(again) == "desktop d1 is gone"


def test_no_other_failure_has_a_cause() -> None:
    assert Failure.of(DesktopTimeout("desktop d1 did not answer")).cause is None
    assert DesktopLost("desktop d1 is gone").cause is DeathCause.UNKNOWN
