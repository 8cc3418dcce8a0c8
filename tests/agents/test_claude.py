"""The Claude agent, over a server that speaks the Messages API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from deskroll.actions import Action, Answer, Click, Done, Fail, Hotkey, MoveTo, Scroll, Typing, Wait
from deskroll.agents import Agent, agent_kind, agents_model
from deskroll.models.anthropic import AnthropicModel
from deskroll.models.openai import OpenAIModel
from deskroll.models.settings import ModelSettings
from deskroll.types import Observation
from tests.agents.screens import BEGIN, LATER, agent, picture
from tests.agents.talk import Notes
from tests.models.servers import Canned, canned
from tests.models.test_anthropic import client, said, text

TOOLS = ["computer_toolset_20260801", "computer_20251124", "computer_20250124", "computer_20241022"]


def use(call_id: str, action: str, *, one_tool: bool = False, **given: Any) -> dict[str, Any]:
    """A call, in the toolset's words or in those of the older tool."""
    if one_tool:
        return {"type": "tool_use", "id": call_id, "name": "computer", "input": {"action": action, **given}}
    return {"type": "tool_use", "id": call_id, "name": action, "input": given, "toolset_name": "computer"}


def calling(*blocks: dict[str, Any]) -> bytes:
    return said(*blocks, stop="tool_use")


@asynccontextmanager
async def claude(*answers: bytes, **options: Any) -> AsyncIterator[tuple[Agent, Canned, Notes]]:
    """An agent whose model says this; every request must be one that the API takes."""
    async with canned(*answers) as server, client(server.url, retries=0) as model:
        notes = Notes()
        yield agent("claude", model, notes, **options), server, notes
        for body in server.bodies:
            strict(json.loads(body))


def strict(request: dict[str, Any]) -> None:
    """Check a request as the API does."""
    turns = request["messages"]
    assert [turn["role"] for turn in turns] == [("user", "assistant")[n % 2] for n in range(len(turns))]
    assert turns[-1]["role"] == "user"
    toolset = request["tools"][0]["type"].startswith("computer_toolset")
    asked: list[str] = []
    for turn in turns:
        answered = [each["tool_use_id"] for each in turn["content"] if each["type"] == "tool_result"]
        assert answered == asked
        kinds = [each["type"] for each in turn["content"]]
        assert kinds == sorted(kinds, key=lambda kind: kind != "tool_result"), "results come first"
        asked = [each["id"] for each in turn["content"] if each["type"] == "tool_use"]
        for block in turn["content"]:
            assert block.get("text", "x").strip()
            if block["type"].startswith("tool_"):
                assert ("toolset_name" in block) is toolset


@pytest.mark.parametrize("tool", TOOLS)
async def test_calls_are_performed_and_answered_with_the_screen(tool: str) -> None:
    one = tool != TOOLS[0]
    first = calling(
        text("I see."),
        use("a", "left_click", one_tool=one, coordinate=[10, 20]),
        use("b", "type", one_tool=one, text="hi"),
    )
    async with claude(first, said(text("All done.")), tool=tool) as (agent, server, _):
        decision = await agent.act(BEGIN)
        assert decision.actions == (Click("left", 10, 20), Typing("hi"))
        assert decision.thought == "I see."
        last = await agent.act(Observation(results=("", "typed"), screenshot=picture(shade=1)))
        assert last.actions == (Answer("All done."),)
        results = json.loads(server.bodies[-1])["messages"][-1]["content"]
        assert [[part["type"] for part in each["content"]] for each in results] == [["text"], ["text", "image"]]
        assert results[1]["content"][0] == text("typed")
        offered = json.loads(server.bodies[0])["tools"][0]
        assert offered.get("display_width_px", 1920) == 1920


CALLS: list[tuple[dict[str, Any], list[Action]]] = [
    (use("a", "key", text="ctrl+s"), [Hotkey(("ctrl", "s"))]),
    (use("a", "scroll", coordinate=[5, 6], scroll_direction="down", scroll_amount=3), [MoveTo(5, 6), Scroll(dy=-3)]),
    (use("a", "wait", duration=2), [Wait(2.0)]),
    (use("a", "screenshot"), [Wait(0.0)]),
]


@pytest.mark.parametrize(
    ("block", "actions"), CALLS, ids=lambda value: value["name"] if isinstance(value, dict) else ""
)
async def test_each_call_is_what_it_says(block: dict[str, Any], actions: list[Action]) -> None:
    async with claude(calling(block)) as (agent, _, _):
        assert list((await agent.act(BEGIN)).actions) == actions


async def test_coordinates_are_those_of_the_screen_that_was_shown() -> None:
    shown = Observation(instruction="Do it.", screenshot=picture((1280, 720)))
    drag = use("a", "left_click_drag", one_tool=True, start_coordinate=[0, 0], coordinate=[640, 360])
    async with claude(calling(drag), tool="computer_20250124") as (agent, server, _):
        actions = (await agent.act(shown)).actions
        offered = json.loads(server.bodies[0])["tools"][0]
    assert (offered["display_width_px"], offered["display_height_px"]) == (1280, 720)
    assert [(action.x, action.y) for action in actions if hasattr(action, "x")] == [(0, 0), (960, 540)]


@pytest.mark.parametrize(
    ("blocks", "action"),
    [
        ([text("The answer is 42.")], Answer("The answer is 42.")),
        ([], Done()),
        ([text("There is no such program. [INFEASIBLE]")], Fail()),
    ],
)
async def test_a_reply_without_a_call_ends_it(blocks: list[dict[str, Any]], action: Action) -> None:
    async with claude(said(*blocks)) as (agent, _, _):
        assert (await agent.act(BEGIN)).actions == (action,)


WRONG = [
    (use("a", "left_click", coord=[5, 1]), "left_click: it has the unknown parameter 'coord'; did you mean coordinate"),
    (use("a", "left_click", coordinate="here"), "coordinate is 'here'"),
    (use("a", "jump"), "action is 'jump'"),
    (use("a", "zoom", region=[0, 0, 1, 1]), "zoom is not offered here"),
    ({"type": "tool_use", "id": "a", "name": "wait", "input": [1]}, "the input is not an object"),
    ({"type": "tool_use", "id": "a", "name": "", "input": {}}, "action is 'unnamed'"),
]


@pytest.mark.parametrize(("block", "words"), WRONG, ids=[words for _, words in WRONG])
async def test_the_model_is_told_what_was_wrong(block: dict[str, Any], words: str) -> None:
    good = use("b", "wait")
    # What is no member of the toolset cannot name it.
    tool = {} if block["name"] in ("left_click", "zoom", "wait") else {"tool": "computer_20250124"}
    async with canned(calling(block, good), said(text("sorry"))) as server, client(server.url, retries=0) as model:
        one = agent("claude", model, max_retries=1, **tool)
        decision = await one.act(BEGIN)
        assert decision.actions == ()
        assert words in decision.problem
        assert (await one.act(LATER)).actions == (Answer("sorry"),)
        first, second = json.loads(server.bodies[1])["messages"][-1]["content"]
        assert first["is_error"] is True
        assert words in first["content"][0]["text"]
        assert second["content"][0]["text"].startswith("not performed")


async def test_a_reply_that_was_cut_off_is_no_end() -> None:
    async with claude(said(text("I will"), stop="max_tokens"), said(text("done"))) as (agent, _, _):
        assert "cut off" in (await agent.act(BEGIN)).problem
        assert (await agent.act(LATER)).actions == (Answer("done"),)


async def test_old_screens_are_withheld() -> None:
    answers = [calling(use(f"call{n}", "wait")) for n in range(4)]
    async with claude(*answers, max_images=2) as (agent, server, _):
        await agent.act(BEGIN)
        for _ in range(3):
            await agent.act(LATER)
        assert server.bodies[-1].count(b'"type":"image"') == 2
        assert server.bodies[-1].count(b"[image withheld]") == 2


def test_its_client_speaks_the_other_protocol() -> None:
    assert agents_model(agent_kind("claude"), ModelSettings()) is AnthropicModel
    for name in ("chat", "uitars", "noop"):
        assert agents_model(agent_kind(name), ModelSettings()) is OpenAIModel


async def test_tree_and_terminal_go_with_the_last_result() -> None:
    answers = calling(use("a", "wait"), use("b", "wait")), said(text("done"))
    async with claude(*answers) as (agent, server, _):
        await agent.act(BEGIN)
        seen = Observation(results=("", ""), screenshot=picture(), accessibility_tree="<tree/>", terminal="$ ls")
        await agent.act(seen)
        first, last = json.loads(server.bodies[-1])["messages"][-1]["content"]
    assert first["content"] == [text("done")]
    assert last["content"][:2] == [text("done\n\nTerminal:\n$ ls"), text("Accessibility tree:\n<tree/>")]
    assert [part["type"] for part in last["content"]] == ["text", "text", "image"]


@pytest.mark.parametrize(("point", "pixel"), [([0, 0], (1, 1)), ([959, 539], (1919, 1079)), ([10.7, 20], (21, 41))])
async def test_a_point_is_the_pixel_under_the_middle_of_the_one_that_was_shown(
    point: list[float], pixel: tuple[int, int]
) -> None:
    async with claude(calling(use("a", "left_click", coordinate=point))) as (agent, _, _):
        decision = await agent.act(Observation(instruction="Do it.", screenshot=picture((960, 540))))
    assert decision.actions == (Click("left", *pixel),)


async def test_a_point_beyond_the_picture_is_brought_to_its_edge_and_that_is_noted() -> None:
    async with claude(calling(use("a", "left_click", coordinate=[960, 5]))) as (agent, _, _):
        decision = await agent.act(Observation(instruction="Do it.", screenshot=picture((960, 540))))
    assert decision.actions == (Click("left", 1919, 11),)
    assert decision.notes == ("CLICK: (960, 5) is off the 960x540 screen; taken: (959, 5)",)


@pytest.mark.parametrize(("name", "action"), [("done", Done()), ("fail", Fail())])
async def test_it_can_end_the_task_as_osworlds_agent_does(name: str, action: Action) -> None:
    async with claude(calling(use("a", name, one_tool=True)), tool="computer_20250124") as (agent, _, _):
        assert (await agent.act(BEGIN)).actions == (action,)


async def test_without_a_picture_the_size_is_that_of_the_runs_settings() -> None:
    click = use("a", "left_click", one_tool=True, coordinate=[480, 270])
    async with claude(calling(click), tool="computer_20250124", shown=(960, 540)) as (agent, server, _):
        decision = await agent.act(Observation(instruction="Do it.", accessibility_tree="tag"))
        assert json.loads(server.bodies[0])["tools"][0]["display_width_px"] == 960
    assert decision.actions == (Click("left", 961, 541),)
