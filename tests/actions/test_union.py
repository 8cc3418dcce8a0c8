"""The Action records: what `check` lets through, what it refuses, and the trip over the wire."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskroll.actions import (
    COMPUTER_ACTIONS,
    Action,
    Answer,
    Click,
    DoubleClick,
    DragTo,
    Hotkey,
    KeyDown,
    MoveTo,
    Press,
    RightClick,
    Script,
    Scroll,
    ToolCall,
    Typing,
    Wait,
    check,
)
from deskroll.errors import ActionError, FailureClass
from tests.actions.strategies import HEIGHT, WIDTH, actions


@given(actions)
def test_every_action_that_fits_passes_and_survives_the_wire(action: Action) -> None:
    check(action, WIDTH, HEIGHT)
    assert msgspec.json.decode(msgspec.json.encode(action), type=Action) == action


@given(
    st.builds(MoveTo, st.integers(), st.integers())
    | st.builds(Click, x=st.none() | st.integers(), y=st.none() | st.integers(), num_clicks=st.integers())
    | st.builds(Scroll, st.integers(), st.integers())
    | st.builds(Typing, st.text())
    | st.builds(Script, st.text())
    | st.builds(Press, st.text())
    | st.builds(Hotkey, st.lists(st.text()).map(tuple))
    | st.builds(Wait, st.none() | st.floats() | st.integers()),
    st.integers(1, 4000),
    st.integers(1, 4000),
)
def test_check_raises_nothing_but_action_errors(action: Action, width: int, height: int) -> None:
    try:
        check(action, width, height)
    except ActionError as error:
        assert str(error)
        assert error.failure is FailureClass.AGENT


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (MoveTo(1920, 0), "MOVE_TO.x is 1920; allowed: 0 to 1919 on this 1920x1080 screen"),
        (DragTo(0, -1), "DRAG_TO.y is -1; allowed: 0 to 1079 on this 1920x1080 screen"),
        (MoveTo(1 << 20_000, 0), "MOVE_TO.x is a huge number; allowed: 0 to 1919 on this 1920x1080 screen"),
        (Click(x=1), "CLICK: x and y go together: give both, or neither to act at the pointer"),
        (RightClick(y=1), "RIGHT_CLICK: x and y go together: give both, or neither to act at the pointer"),
        (DoubleClick(x=1, y=1080), "DOUBLE_CLICK.y is 1080; allowed: 0 to 1079 on this 1920x1080 screen"),
        (Click(num_clicks=4), "CLICK.num_clicks is 4; allowed: 1, 2 or 3"),
        (Hotkey(()), "HOTKEY.keys is empty; give at least one key, e.g. ['ctrl', 's']"),
        (Scroll(dy=-1001), "SCROLL.dx, dy are 0, -1001; allowed: -1000 to 1000"),
        (Wait(300.5), "WAIT.seconds is 300.5; allowed: 0 to 300"),
        (Wait(float("nan")), "WAIT.seconds is nan; allowed: 0 to 300"),
        (
            Typing("a" * 100_001),
            "TYPING.text has 100001 characters; allowed: at most 100000: send it in parts",
        ),
        (
            Typing("ab\x1b"),
            "TYPING.text holds '\\x1b' at character 2, which cannot be sent; press the key of that name instead",
        ),
        (
            Script("\ud800"),
            "SCRIPT.code holds '\\ud800' at character 0, which cannot be sent; write it as an escape such as \\x00",
        ),
    ],
)
def test_what_does_not_fit_is_named(action: Action, message: str) -> None:
    with pytest.raises(ActionError) as caught:
        check(action, WIDTH, HEIGHT)
    assert str(caught.value) == message


def test_a_key_is_checked_where_it_stands() -> None:
    with pytest.raises(ActionError, match=r"^HOTKEY\.keys\[1\] is '\\x00', which is not a key"):
        check(Hotkey(("ctrl", "\x00")), WIDTH, HEIGHT)
    with pytest.raises(ActionError, match=r"^KEY_DOWN\.key is 'retur', which is not a key; did you mean return"):
        check(KeyDown("retur"), WIDTH, HEIGHT)


@pytest.mark.parametrize(
    "action", [Answer("42"), ToolCall("search", {"q": 1}), Script("print(1)"), Typing("a\n\té字🙂")]
)
def test_what_needs_no_screen_passes(action: Action) -> None:
    check(action, WIDTH, HEIGHT)


def test_there_are_thirteen_computer_actions() -> None:
    assert len(COMPUTER_ACTIONS) == 13
