"""The appearance of a browser that runs: what it says itself counts, not the profile that it writes late."""

from __future__ import annotations

import json
import shutil

import pytest

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.providers.local.provider import LocalProvider
from deskroll.envs.base import Ending
from deskroll.envs.osworld.evaluate import evaluate
from deskroll.envs.osworld.setup.cdp import browser_of
from deskroll.types import StopReason
from tests.envs.osworld_evaluate.making import judged, rule
from tests.waiting import eventually

DARK, LIGHT = (json.dumps({"browser": {"theme": {"color_scheme2": mode}}}).encode() for mode in (2, 1))


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
async def test_the_browser_itself_is_asked() -> None:
    task = judged("match_in_list", {"type": "chrome_appearance_mode_ui"}, rule(expected=["dark"]))
    async with LocalProvider() as provider:
        address = await provider.boot(DesktopSpec(width=800, height=600))
        async with GuestDesktop(address) as desktop:
            home = (await desktop.run('printf %s "$HOME"')).output
            profile = f"{home}/.config/chromium/Default/Preferences"
            await desktop.write_file(profile, DARK)
            await desktop.launch(["chromium", "--no-first-run", "--remote-debugging-port=9222", "about:blank"])
            async with browser_of(desktop) as browser:
                await eventually(browser.tabs, "the browser shows a page")
                before = sorted(tab.id for tab in await browser.tabs())
                await desktop.write_file(profile, LIGHT)
                assert (await evaluate(task, desktop, Ending(stop=StopReason.DONE))).value == 1.0
                assert sorted(tab.id for tab in await browser.tabs()) == before, "no tab is left"
