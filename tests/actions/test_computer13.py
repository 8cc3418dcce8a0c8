"""computer_13: every form it is written in, what is wrong with the wrong ones, and round trips."""

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
from deskroll.actions.computer13 import decode, encode
from deskroll.errors import ActionError
from tests.actions.strategies import HEIGHT, WIDTH, actions, json_values

EXAMPLES: list[tuple[str, dict[str, object], Action]] = [
    ("MOVE_TO", {"x": 1, "y": 2}, MoveTo(1, 2)),
    ("CLICK", {}, Click()),
    ("CLICK", {"x": 100.0, "y": 99.9}, Click(x=100, y=99)),
    ("CLICK", {"button": "right", "x": 0, "y": 0, "num_clicks": 2}, Click("right", 0, 0, 2)),
    ("CLICK", {"button": None, "x": None, "y": None}, Click()),
    ("MOUSE_DOWN", {}, MouseDown()),
    ("MOUSE_UP", {"button": "middle"}, MouseUp("middle")),
    ("RIGHT_CLICK", {"x": 5, "y": 6}, RightClick(5, 6)),
    ("DOUBLE_CLICK", {}, DoubleClick()),
    ("DRAG_TO", {"x": 1919, "y": 1079}, DragTo(1919, 1079)),
    ("SCROLL", {"dx": 0, "dy": -5}, Scroll(0, -5)),
    ("SCROLL", {"dy": 3.0}, Scroll(dy=3)),
    ("TYPING", {"text": "héllo\n"}, Typing("héllo\n")),
    ("PRESS", {"key": "Return"}, Press("enter")),
    ("KEY_DOWN", {"key": "shift"}, KeyDown("shift")),
    ("KEY_UP", {"key": "A"}, KeyUp("A")),
    ("HOTKEY", {"keys": ["ctrl", "s"]}, Hotkey(("ctrl", "s"))),
    ("WAIT", {}, Wait()),
    ("WAIT", {"seconds": 2}, Wait(2.0)),
    ("FAIL", {}, Fail()),
    ("DONE", {}, Done()),
]


@pytest.mark.parametrize(("kind", "parameters", "action"), EXAMPLES)
def test_nested_flat_and_lower_case_mean_the_same(kind: str, parameters: dict[str, object], action: Action) -> None:
    assert decode({"action_type": kind, "parameters": parameters}, WIDTH, HEIGHT) == action
    assert decode({"action_type": kind, **parameters}, WIDTH, HEIGHT) == action
    assert decode({"action_type": kind.lower(), **parameters}, WIDTH, HEIGHT) == action


@pytest.mark.parametrize(
    ("word", "action"), [("WAIT", Wait()), ("FAIL", Fail()), ("DONE", Done()), (" done\n", Done())]
)
def test_bare_words(word: str, action: Action) -> None:
    assert decode(word, WIDTH, HEIGHT) == action


def test_null_parameters_are_none() -> None:
    assert decode({"action_type": "DONE", "parameters": None}, WIDTH, HEIGHT) == Done()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("CLICK", "a bare action is 'CLICK'; allowed: WAIT, FAIL, DONE"),
        (5, "the action is 5; allowed: an object with action_type and parameters, or one of the words WAIT, FAIL, DONE"),
        ({"action_type": "CLIK"}, "action_type is 'CLIK'; did you mean click"),
        ({"action_type": 7}, "action_type is 7; allowed: MOVE_TO, CLICK,"),
        ({"x": 1}, "the action {'x': 1} lacks action_type; allowed: MOVE_TO, CLICK,"),
        ({"action_type": "MOVE_TO", "x": 1}, "MOVE_TO lacks y; allowed: x, y"),
        ({"action_type": "DRAG_TO"}, "DRAG_TO lacks x and y; allowed: x, y"),
        ({"action_type": "MOVE_TO", "x": None, "y": 1}, "MOVE_TO lacks x; allowed: x, y"),
        ({"action_type": "SCROLL"}, "SCROLL lacks dx and dy; give at least one of them"),
        ({"action_type": "CLICK", "x": True, "y": 1}, "CLICK.x is True; allowed: a number"),
        ({"action_type": "CLICK", "x": "1", "y": 1}, "CLICK.x is '1'; allowed: a number"),
        ({"action_type": "CLICK", "x": float("inf"), "y": 1}, "CLICK.x is inf; allowed: a number"),
        ({"action_type": "CLICK", "x": 1}, "CLICK: x and y go together"),
        ({"action_type": "CLICK", "num_clicks": 1.5}, "CLICK.num_clicks is 1.5; allowed: a whole number"),
        ({"action_type": "CLICK", "num_clicks": 0}, "CLICK.num_clicks is 0; allowed: 1, 2 or 3"),
        ({"action_type": "CLICK", "button": "lfet"}, "CLICK.button is 'lfet'; did you mean left? allowed: left, middle, right"),
        ({"action_type": "CLICK", "parameters": {"yy": 2}}, "CLICK has the unknown parameter 'yy'; did you mean y? allowed: button, x, y, num_clicks"),
        ({"action_type": "CLICK", "parameters": {}, "x": 2}, "CLICK: x and y go together"),
        ({"action_type": "CLICK", "parameters": [1, 2]}, "CLICK.parameters is [1, 2]; allowed: an object"),
        ({"action_type": "TYPING", "text": 5}, "TYPING.text is 5; allowed: a string"),
        ({"action_type": "PRESS", "key": "retrun"}, "PRESS.key is 'retrun', which is not a key; did you mean return"),
        ({"action_type": "PRESS", "key": 5}, "PRESS.key is 5; allowed: a string"),
        ({"action_type": "HOTKEY", "keys": "ctrl+s"}, "HOTKEY.keys is 'ctrl+s'; allowed: a list of keys, e.g. ['ctrl', 's']"),
        ({"action_type": "HOTKEY", "keys": ["ctrl", 5]}, "HOTKEY.keys[1] is 5; allowed: a string"),
        ({"action_type": "HOTKEY", "keys": []}, "HOTKEY.keys is empty"),
        ({"action_type": "WAIT", "seconds": -1}, "WAIT.seconds is -1.0; allowed: 0 to 300"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(raw: object, message: str) -> None:
    with pytest.raises(ActionError) as caught:
        decode(raw, WIDTH, HEIGHT)
    assert str(caught.value).startswith(message)


@given(actions)
def test_round_trip_through_json(action: Action) -> None:
    assert decode(json.loads(json.dumps(encode(action))), WIDTH, HEIGHT) == action


@given(
    json_values
    | st.builds(
        lambda kind, rest: {"action_type": kind, **rest},
        st.sampled_from([kind for kind, _, _ in EXAMPLES]),
        st.dictionaries(
            st.sampled_from(["x", "y", "dx", "dy", "button", "key", "keys", "text", "num_clicks", "parameters", "seconds"]),
            json_values,
        ),
    )
)  # fmt: skip
def test_nothing_but_action_errors_comes_out(raw: object) -> None:
    try:
        decode(raw, WIDTH, HEIGHT)
    except ActionError as error:
        assert str(error)


@pytest.mark.parametrize("action", [Script("x"), ToolCall("t"), Answer("a")])
def test_what_has_no_word_is_refused(action: Action) -> None:
    with pytest.raises(ActionError, match=r"^computer_13 has no word for"):
        encode(action)
