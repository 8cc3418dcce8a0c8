"""What an agent sees of a real desktop, and that acting on it, in every space and size, hits what it points at."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from PIL import Image

from deskroll.actions import Click
from deskroll.desktops.base import DesktopSpec, StepResult
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.providers.local.provider import LocalProvider
from deskroll.envs import EnvContext
from deskroll.envs.osworld.elements import elements
from deskroll.envs.osworld.env import OSWorldEnv
from deskroll.envs.osworld.observe import View
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.errors import ActionError
from deskroll.tasks import parse_task
from deskroll.types import ToolRequest
from tests.envs.test_osworld_elements import SEEN, screen, tree

SIZE = {"screen_width": 1024, "screen_height": 768}
TASK = parse_task({"id": "t", "instruction": "Open the menu."}, "here")


@pytest_asyncio.fixture(scope="module")
async def desktop() -> AsyncIterator[GuestDesktop]:
    """One with an editor, whose menu bar is to be seen in the accessibility tree."""
    async with LocalProvider() as provider:
        address = await provider.boot(DesktopSpec(width=1024, height=768))
        async with GuestDesktop(address) as guest:
            await guest.launch(["mousepad"])
            async with asyncio.timeout(60):
                before = ""
                while 'name="File"' not in (tree := await guest.accessibility_tree()) or tree != before:
                    before = tree
                    await asyncio.sleep(0.2)
            yield guest


def env(desktop: GuestDesktop, **options: Any) -> OSWorldEnv:
    return OSWorldEnv(TASK, OSWorldSettings(**SIZE, **options), EnvContext(desktop=desktop))


def call(env: OSWorldEnv, **arguments: Any) -> ToolRequest:
    return ToolRequest(id="c", name=env.tools[0].name, arguments=json.dumps(arguments))


def rows(table: str | None) -> list[list[str]]:
    return [line.split("\t") for line in (table or "").splitlines()]


async def test_the_tree_is_a_table_of_what_can_be_used(desktop: GuestDesktop) -> None:
    seen = await env(desktop, observation_type="a11y_tree").reset()
    header, *lines = rows(seen.accessibility_tree)
    assert header[:3] == ["tag", "name", "text"]
    assert "menu" in [tag for tag, name, *_ in lines if name == "File"]
    assert seen.screenshot is None


@pytest.mark.parametrize(("width", "height"), [(512, 384), (1500, 900)])
async def test_the_table_says_where_things_are_on_the_picture(desktop: GuestDesktop, width: int, height: int) -> None:
    one = env(desktop, image_width=width, image_height=height)
    (row,) = [row for row in rows((await one.reset()).accessibility_tree) if row[1] == "Search"]
    (x, y), (w, h) = (json.loads(f"[{cell[1:-1]}]") for cell in row[5:])
    await one.step(one.decode(call(one, action_type="MOVE_TO", x=x + w // 2, y=y + h // 2)))
    (real,) = [row for row in rows((await env(desktop).reset()).accessibility_tree) if row[1] == "Search"]
    place, size = (json.loads(f"[{cell[1:-1]}]") for cell in real[5:])
    for at, start, length in zip(await desktop.cursor_position(), place, size, strict=True):
        assert start <= at < start + length


@pytest.mark.parametrize(("width", "height"), [(1024, 768), (512, 384), (1500, 900)])
@pytest.mark.parametrize("space", ["computer_13", "pyautogui", "claude_computer_use"])
async def test_a_mark_leads_to_its_element(desktop: GuestDesktop, space: str, width: int, height: int) -> None:
    one = env(desktop, observation_type="som", action_space=space, image_width=width, image_height=height)
    seen = await one.reset()
    assert Image.open(io.BytesIO(seen.screenshot or b"")).size == (width, height)
    header, *lines = rows(seen.accessibility_tree)
    assert header == ["index", "tag", "name", "text"]
    number = next(int(index) for index, tag, name, *_ in lines if (tag, name) == ("menu", "File"))
    arguments = {
        "computer_13": {"action_type": "MOVE_TO", "parameters": {"mark": number}},
        "pyautogui": {"code": f"pyautogui.moveTo(tag_{number})"},
        "claude_computer_use": {"action": "mouse_move", "mark": number},
    }[space]
    await one.step(one.decode(call(one, **arguments)))
    x, y = await desktop.cursor_position()
    table = rows((await env(desktop, observation_type="a11y_tree").reset()).accessibility_tree)
    place, size = next(
        (json.loads(f"[{row[5][1:-1]}]"), json.loads(f"[{row[6][1:-1]}]")) for row in table if row[1] == "File"
    )
    assert place[0] <= x < place[0] + size[0]
    assert place[1] <= y < place[1] + size[1]


SAVE = tree(f'<push-button name="Save" {SEEN} cp:screencoord="(15, 15)" cp:size="(40, 20)"/>')
SMALL = {"screen_width": 320, "screen_height": 240}
MARK_1 = ToolRequest(id="c", name="computer", arguments='{"action_type": "CLICK", "mark": 1}')


@pytest.mark.parametrize(
    ("place", "size", "middle"),
    [
        ((20, 40), (100, 9000), (70, 140)),
        ((120, 40), (9000, 100), (220, 90)),
        ((0, 0), (9000, 9000), (160, 120)),
        ((20, 40), (100, 60), (70, 70)),
    ],
)
async def test_a_mark_is_the_middle_of_the_box_that_is_drawn(
    place: tuple[int, int], size: tuple[int, int], middle: tuple[int, int]
) -> None:
    long = tree(f'<document-web name="A long page" {SEEN} cp:screencoord="{place}" cp:size="{size}"/>')
    noise = io.BytesIO()
    Image.effect_noise((320, 240), 60).save(noise, "PNG")
    for width, height in ((320, 240), (160, 120)):
        view = View(OSWorldSettings(**SMALL, observation_type="som", image_width=width, image_height=height))
        await view.show(StepResult(screenshot=noise.getvalue(), tree=long))
        (action,) = view.decode(MARK_1)
        assert isinstance(action, Click)
        assert (action.x, action.y) == pytest.approx(middle, abs=320 // width)


@pytest.mark.parametrize("after", [None, "<broken", tree()], ids=["no tree", "a broken tree", "an empty tree"])
async def test_marks_are_those_of_the_screen_that_is_shown(after: str | None) -> None:
    view = View(OSWorldSettings(**SMALL, observation_type="som"))
    await view.show(StepResult(screenshot=screen(), tree=SAVE))
    assert view.decode(MARK_1) == (Click(x=35, y=25),)
    await view.show(StepResult(screenshot=screen(), tree=after))
    with pytest.raises(ActionError, match="nothing is marked on this screen"):
        view.decode(MARK_1)


async def test_numbers_of_the_table_can_be_named_where_there_is_no_picture() -> None:
    view = View(OSWorldSettings(**SMALL, observation_type="som"))
    seen = await view.show(StepResult(tree=SAVE))
    assert rows(seen.accessibility_tree)[1][0] == "1"
    assert view.decode(MARK_1) == (Click(x=35, y=25),)


@pytest.mark.parametrize("kind", ["a11y_tree", "som"])
async def test_the_tree_itself_goes_with_the_table_where_the_agent_reads_it(kind: str) -> None:
    view = View(OSWorldSettings(**SMALL, observation_type=kind), raw_tree=True)
    assert not view.observe.shown_only
    assert (await view.show(StepResult(tree=SAVE))).raw_tree == SAVE
    assert (await view.show(StepResult())).raw_tree is None
    assert (await view.show(StepResult(tree=f"<!DOCTYPE d>{SAVE}"))).raw_tree is None, "nobody shall parse that"
    view = View(OSWorldSettings(**SMALL, observation_type=kind))
    assert view.observe.shown_only, "nobody wants more than the table"
    seen = await view.show(StepResult(tree=SAVE))
    assert seen.accessibility_tree
    assert seen.raw_tree is None


async def test_on_a_picture_of_another_size_the_tree_says_where_things_are_there() -> None:
    settings = OSWorldSettings(**SMALL, observation_type="a11y_tree", image_width=160, image_height=120)
    view = View(settings, raw_tree=True)
    thin = f'<label name="l" {SEEN} cp:screencoord="(301, -5)" cp:size="(1, 0)"/>'
    raw = (await view.show(StepResult(tree=SAVE.replace("</desktop", f"{thin}</desktop")))).raw_tree or ""
    (button,) = elements(raw)
    assert (button.x, button.y, button.width, button.height) == (7, 7, 20, 10)
    assert 'cp:screencoord="(150, -3)" cp:size="(1, 0)"' in raw
