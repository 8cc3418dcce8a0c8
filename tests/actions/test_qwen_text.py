"""Qwen-VL's calls in the forms that are about: in the models' prompts and in other parsers; forms, not recordings."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskroll.actions import (
    Action,
    Answer,
    Click,
    Done,
    DoubleClick,
    DragTo,
    Fail,
    Hotkey,
    MoveTo,
    Press,
    RightClick,
    Scroll,
    Typing,
    Wait,
    check,
)
from deskroll.actions.pixels import THOUSAND, Grid
from deskroll.actions.qwen_text import as_text, parse
from deskroll.errors import ActionError
from tests.actions.strategies import json_values, texts

SCREEN = (1920, 1080)
SAME = Grid(cells=SCREEN, screen=SCREEN)
QWEN3 = Grid(cells=THOUSAND, screen=SCREEN)


def call(**arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': 'computer_use', 'arguments': arguments})}\n</tool_call>"


ARGUMENTS: list[tuple[dict[str, Any], list[Action]]] = [
    ({"action": "left_click", "coordinate": [230, 598]}, [Click("left", 230, 598)]),
    ({"action": "left_click"}, [Click("left")]),
    ({"action": "left_click", "coordinate": [2.9, 3.0], "text": None}, [Click("left", 2, 3)]),
    ({"action": "right_click", "coordinate": [1, 2]}, [RightClick(1, 2)]),
    ({"action": "middle_click", "coordinate": [1, 2]}, [Click("middle", 1, 2)]),
    ({"action": "double_click", "coordinate": [1, 2]}, [DoubleClick(1, 2)]),
    ({"action": "triple_click", "coordinate": [1, 2]}, [Click("left", 1, 2, 3)]),
    ({"action": "mouse_move", "coordinate": [1, 2]}, [MoveTo(1, 2)]),
    ({"action": "left_click_drag", "coordinate": [1, 2], "duration": 0.5}, [DragTo(1, 2)]),
    ({"action": "type", "text": "英雄联盟"}, [Typing("英雄联盟")]),
    ({"action": "type", "text": "value", "coordinate": [10, 20]}, [Typing("value")]),
    ({"action": "key", "keys": ["enter"]}, [Press("enter")]),
    ({"action": "key", "keys": ["ENTER"], "coordinate": [10, 20]}, [Press("enter")]),
    ({"action": "key", "keys": ["ctrl", "c"]}, [Hotkey(("ctrl", "c"))]),
    ({"action": "key", "keys": "ctrl+shift+t"}, [Hotkey(("ctrl", "shift", "t"))]),
    ({"action": "key", "keys": ["ctrl+s"]}, [Hotkey(("ctrl", "s"))]),
    ({"action": "key", "keys": ["ctrl++"]}, [Hotkey(("ctrl", "+"))]),
    ({"action": "key", "keys": ["ctrl", "+"]}, [Hotkey(("ctrl", "+"))]),
    ({"action": "scroll", "pixels": -5}, [Scroll(dy=-5)]),
    ({"action": "scroll", "pixels": -500}, [Scroll(dy=-500)]),
    ({"action": "scroll", "pixels": 3, "coordinate": [4, 5]}, [MoveTo(4, 5), Scroll(dy=3)]),
    ({"action": "hscroll", "pixels": 4}, [Scroll(dx=4)]),
    ({"action": "wait", "time": 2}, [Wait(2.0)]),
    ({"action": "wait"}, [Wait()]),
    ({"action": "terminate", "status": "success"}, [Done()]),
    ({"action": "terminate", "status": "failure"}, [Fail()]),
    ({"action": "terminate"}, [Done()]),
    ({"action": "answer", "text": "42"}, [Answer("42")]),
]


@pytest.mark.parametrize(("arguments", "actions"), ARGUMENTS, ids=lambda value: str(value)[:60])
def test_what_the_models_call_is_read(arguments: dict[str, Any], actions: list[Action]) -> None:
    assert list(parse(f"Action: do it.\n{call(**arguments)}", SAME).actions) == actions


CLICK = '{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [500, 300]}}'

INSIDE = json.dumps(json.dumps(json.loads(CLICK)["arguments"]))
"""Arguments that are JSON in a string."""


@pytest.mark.parametrize(
    ("reply", "thought"),
    [
        (f"Action: Click the search box.\n<tool_call>\n{CLICK}\n</tool_call>", "Click the search box."),
        (f"I will click.</think><tool_call>{CLICK}</tool_call>", "I will click."),
        (f"<thinking>\nI should click.\n</thinking>\n<tool_call>\n{CLICK}\n</tool_call>", "I should click."),
        (f"<tool_call>{CLICK}", ""),
        (f"Click it.\n{CLICK}", "Click it."),
        (f"```\n`{CLICK}`\n```", "```\n```"),
        (f'<tool_call>{{"name": "computer_use", "arguments": {INSIDE}}}', ""),
    ],
)
def test_calls_are_found_in_what_surrounds_them(reply: str, thought: str) -> None:
    reading = parse(reply, SAME)
    assert reading.actions == (Click("left", 500, 300),)
    assert reading.thought == thought


def test_several_calls_are_performed_in_their_order() -> None:
    reply = call(action="type", text="a") + call(action="key", keys=["ctrl", "a"]) + "\n" + call(action="terminate")
    assert parse(reply, SAME).actions == (Typing("a"), Hotkey(("ctrl", "a")), Done())


@pytest.mark.parametrize(
    ("point", "pixel"),
    [([500, 500], (960, 540)), ([0, 0], (0, 0)), ([999, 999], (1918, 1078)), ([1000, 1000], (1919, 1079))],
)
def test_relative_coordinates_are_of_a_thousand(point: list[int], pixel: tuple[int, int]) -> None:
    assert parse(call(action="left_click", coordinate=point), QWEN3).actions == (Click("left", *pixel),)


@pytest.mark.parametrize(("pixels", "clicks"), [(-500, -5), (-120, -1), (-7, -1), (0, 0), (7, 1), (250, 2)])
def test_pixels_can_be_counted_as_clicks(pixels: int, clicks: int) -> None:
    assert parse(call(action="scroll", pixels=pixels), SAME, 100).actions == (Scroll(dy=clicks),)


def test_a_text_that_is_typed_may_hold_the_tags() -> None:
    reply = call(action="type", text="a <tool_call> b </tool_call> c") + call(action="wait")
    assert parse(reply, SAME).actions == (Typing("a <tool_call> b </tool_call> c"), Wait())


WRONG = {
    "": "there is no call of computer_use in the reply; end it with  <tool_call>",
    "I am done.": "there is no call of computer_use",
    "<tool_call>\n{'name': 'computer_use'}\n</tool_call>": "the call is not valid JSON",
    "<tool_call></tool_call>": "the call is not valid JSON",
    "<tool_call>[1]</tool_call>": r"the call is \[1\]; write",
    '<tool_call>{"name": "mobile_use", "arguments": {}}</tool_call>': "there is no tool 'mobile_use'",
    '<tool_call>{"name": "computer_use"}</tool_call>': "arguments is None; allowed: an object",
    '<tool_call>{"name": "computer_use", "arguments": "{"}</tool_call>': "arguments is not valid JSON",
    call(): "action is None; allowed: key, type,",
    call(action="left_clik"): "did you mean left_click",
    call(action="left_click", coordinate=[1]): r"left_click: coordinate is \[1\]; allowed: \[x, y\]",
    call(action="left_click", coordinate=["1", 2]): r"coordinate\[0\] is '1'; allowed: a number",
    call(action="mouse_move"): "mouse_move: coordinate is missing",
    call(action="scroll"): "scroll: pixels is missing",
    call(action="scroll", pixels=5000): "allowed: -1000 to 1000",
    call(action="key"): "keys is None; allowed: a list of keys",
    call(action="key", keys=[]): "keys is empty",
    call(action="key", keys=["hyper"]): "which is not a key",
    call(action="type"): "type: text is None; allowed: a string",
    call(action="wait", time="long"): "time is 'long'; allowed: a number",
    call(action="terminate", status="maybe"): "status is 'maybe'; allowed: success, failure",
}


@pytest.mark.parametrize("reply", WRONG)
def test_what_cannot_be_read_says_how_to_write_it(reply: str) -> None:
    with pytest.raises(ActionError, match=WRONG[reply]):
        parse(reply, SAME)


names = st.sampled_from(["action", "coordinate", "keys", "text", "pixels", "time", "status", "x"])
actions = st.sampled_from([arguments["action"] for arguments, _ in ARGUMENTS])


@given(
    st.text()
    | st.dictionaries(names, json_values | actions).map(lambda given: call(**given))
    | st.builds(lambda given, action: call(**{**given, "action": action}), st.dictionaries(names, json_values), actions)
    | st.text().map(lambda text: f"<tool_call>{text}</tool_call>")
)
def test_any_text_is_actions_or_an_action_error(text: str) -> None:
    try:
        reading = parse(text, QWEN3)
    except ActionError:
        return
    assert reading.actions
    for action in reading.actions:
        check(action, *SCREEN)


@given(texts)
def test_texts_make_the_round_trip(text: str) -> None:
    assert parse(call(action="type", text=text), SAME).actions == (Typing(text),)


def test_a_call_that_the_server_took_out_is_put_back() -> None:
    text = as_text("computer_use", '{"action": "wait"}')
    assert parse(text, SAME).actions == (Wait(),)
    with pytest.raises(ActionError, match="no tool 'other\"'"):
        parse(as_text('other"', ""), SAME)
