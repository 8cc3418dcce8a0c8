"""Anthropic's computer-use tool: inputs of all versions, what is wrong with the wrong ones, and round trips."""

# ruff: noqa: E501 - a table reads best with one example a line

import json

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
    KeyDown,
    KeyUp,
    MouseDown,
    MouseUp,
    MoveTo,
    Press,
    RightClick,
    Script,
    Scroll,
    ToolCall,
    Typing,
    Wait,
)
from deskroll.actions.claude import decode, encode
from deskroll.errors import ActionError
from tests.actions import strategies
from tests.actions.strategies import HEIGHT, WIDTH, json_values

NAMES = [
    "key", "hold_key", "type", "mouse_move", "left_mouse_down", "left_mouse_up", "left_click", "right_click",
    "middle_click", "double_click", "triple_click", "left_click_drag", "scroll", "wait", "screenshot",
    "cursor_position", "zoom",
]  # fmt: skip


@pytest.mark.parametrize(
    ("tool_input", "expected"),
    [
        ({"action": "key", "text": "Return"}, [Press("enter")]),
        ({"action": "key", "text": "ctrl+s"}, [Hotkey(("ctrl", "s"))]),
        ({"action": "key", "text": "ctrl++"}, [Hotkey(("ctrl", "+"))]),
        ({"action": "key", "text": "ctrl+plus"}, [Hotkey(("ctrl", "+"))]),
        ({"action": "key", "text": "+"}, [Press("+")]),
        ({"action": "key", "text": " "}, [Press("space")]),
        ({"action": "key", "text": "super+Page_Down KP_0"}, [Hotkey(("win", "pagedown")), Press("num0")]),
        ({"action": "key", "text": "Down Tab", "repeat": 2}, [Press("down"), Press("tab")] * 2),
        ({"action": "hold_key", "text": "shift+w", "duration": 2}, [KeyDown("shift"), KeyDown("w"), Wait(2.0), KeyUp("w"), KeyUp("shift")]),
        ({"action": "type", "text": "héllo\n"}, [Typing("héllo\n")]),
        ({"action": "mouse_move", "coordinate": [1, 2]}, [MoveTo(1, 2)]),
        ({"action": "left_mouse_down"}, [MouseDown()]),
        ({"action": "left_mouse_up", "coordinate": [1, 2]}, [MoveTo(1, 2), MouseUp()]),
        ({"action": "left_click"}, [Click()]),
        ({"action": "left_click", "coordinate": [1.0, 2.7]}, [Click(x=1, y=2)]),
        ({"action": "left_click", "coordinate": [1, 2], "text": None}, [Click(x=1, y=2)]),
        ({"action": "left_click", "coordinate": [1, 2], "text": ""}, [Click(x=1, y=2)]),
        ({"action": "left_click", "coordinate": [1, 2], "text": "ctrl+shift"}, [KeyDown("ctrl"), KeyDown("shift"), Click(x=1, y=2), KeyUp("shift"), KeyUp("ctrl")]),
        ({"action": "left_click", "key": "alt"}, [KeyDown("alt"), Click(), KeyUp("alt")]),
        ({"action": "right_click", "coordinate": [1, 2]}, [RightClick(1, 2)]),
        ({"action": "middle_click"}, [Click("middle")]),
        ({"action": "double_click", "coordinate": [1, 2]}, [DoubleClick(1, 2)]),
        ({"action": "triple_click", "coordinate": [1, 2]}, [Click(x=1, y=2, num_clicks=3)]),
        ({"action": "left_click_drag", "coordinate": [3, 4]}, [DragTo(3, 4)]),
        ({"action": "left_click_drag", "start_coordinate": [1, 2], "coordinate": [3, 4], "text": "ctrl"}, [MoveTo(1, 2), KeyDown("ctrl"), DragTo(3, 4), KeyUp("ctrl")]),
        ({"action": "scroll", "scroll_direction": "up", "scroll_amount": 3}, [Scroll(dy=3)]),
        ({"action": "scroll", "coordinate": [1, 2], "scroll_direction": "down", "scroll_amount": 3}, [MoveTo(1, 2), Scroll(dy=-3)]),
        ({"action": "scroll", "scroll_direction": "left", "scroll_amount": 2}, [Scroll(dx=-2)]),
        ({"action": "scroll", "scroll_direction": "right", "scroll_amount": 2.0, "text": "shift"}, [KeyDown("shift"), Scroll(dx=2), KeyUp("shift")]),
        ({"action": "wait", "duration": 1}, [Wait(1.0)]),
        ({"action": "wait"}, [Wait()]),
        ({"action": "screenshot"}, []),
        ({"action": "cursor_position"}, []),
        ({"action": "zoom", "region": [0, 0, 100, 100]}, []),
        ({"action": "done"}, [Done()]),
        ({"action": "fail"}, [Fail()]),
    ],
)  # fmt: skip
def test_inputs(tool_input: object, expected: list[Action]) -> None:
    assert decode(tool_input, WIDTH, HEIGHT) == expected


@pytest.mark.parametrize(
    ("tool_input", "message"),
    [
        ([], "the input is []; allowed: an object with action and its parameters"),
        ({}, "action is None; allowed: key, hold_key, type,"),
        ({"action": "lef_click"}, "action is 'lef_click'; did you mean left_click"),
        ({"action": "left_click", "coord": [1, 2]}, "left_click: it has the unknown parameter 'coord'; did you mean coordinate?"),
        ({"action": "left_click", "coordinate": [1]}, "left_click: coordinate is [1]; allowed: [x, y]"),
        ({"action": "left_click", "coordinate": "1,2"}, "left_click: coordinate is '1,2'; allowed: [x, y]"),
        ({"action": "left_click", "coordinate": [1, True]}, "left_click: coordinate[1] is True; allowed: a number"),
        ({"action": "mouse_move"}, "mouse_move: it lacks coordinate; allowed: coordinate"),
        ({"action": "key", "text": "ctrl+"}, "key: text is 'ctrl+'; allowed: keys joined by +"),
        ({"action": "key", "text": "ctrl+foo"}, "key: text is 'foo', which is not a key"),
        ({"action": "key", "text": ""}, "key: text is '', which is not a key"),
        ({"action": "key", "text": "a", "repeat": 101}, "key: repeat is 101; allowed: 1 to 100"),
        ({"action": "hold_key", "text": "a"}, "hold_key: it lacks duration; allowed: text, duration"),
        ({"action": "hold_key", "text": "a", "duration": 301}, "hold_key: WAIT.seconds is 301.0; allowed: 0 to 300"),
        ({"action": "type", "text": 5}, "type: text is 5; allowed: a string"),
        ({"action": "scroll", "scroll_direction": "north", "scroll_amount": 1}, "scroll: scroll_direction is 'north'; allowed: up, down, left, right"),
        ({"action": "scroll", "scroll_direction": "up", "scroll_amount": -1}, "scroll: scroll_amount is -1; allowed: 0 or more"),
        ({"action": "scroll", "scroll_direction": "up", "scroll_amount": 1.5}, "scroll: scroll_amount is 1.5; allowed: a whole number"),
        ({"action": "zoom", "region": [1, 2]}, "zoom: region is [1, 2]; allowed: [left, top, right, bottom]"),
        ({"action": "wait", "duration": "long"}, "wait: duration is 'long'; allowed: a number"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tool_input: object, message: str) -> None:
    with pytest.raises(ActionError) as caught:
        decode(tool_input, WIDTH, HEIGHT)
    assert str(caught.value).startswith(message)


# Those that the tool says in one way only: it has no other button to hold, and no second word for a click.
_expressible = st.one_of(
    st.builds(MoveTo, strategies.xs, strategies.ys),
    st.builds(DragTo, strategies.xs, strategies.ys),
    strategies.points.map(lambda p: Click("left", *p)),
    strategies.points.map(lambda p: Click("left", *p, 3)),
    strategies.points.map(lambda p: Click("middle", *p)),
    strategies.points.map(lambda p: RightClick(*p)),
    strategies.points.map(lambda p: DoubleClick(*p)),
    st.sampled_from([MouseDown(), MouseUp()]),
    strategies.scrolls,
    strategies.waits,
    strategies.keyboard.filter(lambda action: not isinstance(action, KeyDown | KeyUp))
    .filter(lambda action: not isinstance(action, Hotkey) or len(action.keys) > 1),
)  # fmt: skip


@given(_expressible)
def test_round_trip_through_json(action: Action) -> None:
    inputs = json.loads(json.dumps(encode(action)))
    assert [back for tool_input in inputs for back in decode(tool_input, WIDTH, HEIGHT)] == [action]


@pytest.mark.parametrize(
    ("action", "inputs"),
    [
        (Press("enter"), [{"action": "key", "text": "Return"}]),
        (Hotkey(("win", "pageup")), [{"action": "key", "text": "super+Page_Up"}]),
        (Click("left", 1, 2, 2), [{"action": "double_click", "coordinate": [1, 2]}]),
        (Click("right", 1, 2), [{"action": "right_click", "coordinate": [1, 2]}]),
        (Click("middle", num_clicks=2), [{"action": "middle_click"}] * 2),
        (Wait(), [{"action": "wait", "duration": 1.0}]),
        (
            Scroll(2, -3),
            [
                {"action": "scroll", "scroll_direction": "right", "scroll_amount": 2},
                {"action": "scroll", "scroll_direction": "down", "scroll_amount": 3},
            ],
        ),
    ],
)
def test_what_has_a_nearest_input_gets_it(action: Action, inputs: list[dict[str, object]]) -> None:
    assert encode(action) == inputs


@pytest.mark.parametrize(
    "action",
    [KeyDown("a"), KeyUp("a"), MouseDown("right"), Done(), Fail(), Script("x"), ToolCall("t"), Answer("a")],
)
def test_what_has_no_input_is_refused(action: Action) -> None:
    with pytest.raises(ActionError, match=r"^the computer-use tool has no action for"):
        encode(action)


@given(
    json_values
    | st.builds(
        lambda name, rest: {"action": name, **rest},
        st.sampled_from(NAMES),
        st.dictionaries(
            st.sampled_from(["coordinate", "start_coordinate", "text", "key", "duration", "repeat", "region", "scroll_amount", "scroll_direction"]),
            json_values | st.lists(st.integers() | st.floats(), min_size=2, max_size=4),
        ),
    )
)  # fmt: skip
def test_nothing_but_action_errors_comes_out(tool_input: object) -> None:
    try:
        decode(tool_input, WIDTH, HEIGHT)
    except ActionError as error:
        assert str(error)
