"""The table of what shows, read from what shows alone, must be that of the whole tree on every program of the suite."""

from __future__ import annotations

import shutil

import pytest

from deskroll.actions import Action, Hotkey, Press, Typing
from deskroll.desktops.base import Observe, Settle
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.envs.osworld.elements import elements, table
from tests.waiting import eventually

PAGE = (
    "data:text/html,<h1>Order</h1><select><option>tea<option>milk</select><button>Send</button>"
    "<ul role=menubar><li role=menuitem>Sizes<ul role=menu hidden><li role=menuitem>small</ul></ul>"
    "<p style='margin-top:2000px'>The end</p>"
)
OFFICE = ["soffice", "--norestore", "--nologo"]
ESCAPE = Press(key="escape")
PROGRAMS: dict[str, tuple[list[str], str, list[list[Action]]]] = {
    "mousepad": (["mousepad"], "Document", [[Hotkey(("alt", "f"))], [ESCAPE], [Hotkey(("ctrl", "o"))]]),
    "galculator": (["galculator"], "View", [[Typing("12*12=")], [Hotkey(("alt", "v"))]]),
    "pcmanfm": (["pcmanfm", "/usr/share"], "Go", [[Hotkey(("alt", "g"))], [ESCAPE, Hotkey(("alt", "enter"))]]),
    "lxterminal": (["lxterminal"], "Tabs", [[Typing("date\n")], [Hotkey(("alt", "f"))]]),
    "chromium": (
        ["chromium", "--no-first-run", "--force-renderer-accessibility", PAGE],
        "Send",
        [[Press(key="tab"), Press(key="space")], [ESCAPE, Hotkey(("alt", "f"))]],
    ),
    "writer": ([*OFFICE, "--writer"], "Paragraph Style", [[Typing("Dear all")], [Hotkey(("alt", "e"))]]),
    "calc": ([*OFFICE, "--calc"], "A1", [[Typing("17\n")], [Hotkey(("alt", "d"))]]),
    "impress": ([*OFFICE, "--impress"], "Slides", [[Hotkey(("alt", "v"))]]),
}
"""Of each program: how it is started, what it shows when it is there, and what is done in it, one after the other."""


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.timeout(300)
async def test_the_table_is_that_of_the_whole_tree(local: GuestDesktop, name: str) -> None:
    command, shown, deeds = PROGRAMS[name]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    await local.launch(command)

    async def both() -> tuple[str, str] | None:
        """The table of the whole tree and that of what shows; None while the screen still changes."""
        whole = table(elements(await local.accessibility_tree()))
        part = await local.step([], settle=None, observe=Observe(screenshot=False, tree=True, shown_only=True))
        again = table(elements(await local.accessibility_tree()))
        return (whole, table(elements(part.tree or ""))) if whole == again and shown in whole else None

    for deed in [[], *deeds]:
        await local.step(deed, settle=Settle(cap=30.0))
        whole, part = await eventually(both, f"{name} is there, and at rest")
        assert part == whole
