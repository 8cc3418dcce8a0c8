"""UI-TARS' notation in the forms that are about: in the models' prompts, in reports of what they wrote, in parsers.

The reply with a number is a model's own, from that issue of bytedance/UI-TARS; most others are forms, not recordings.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
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
    Scroll,
    Typing,
    Wait,
    check,
)
from deskroll.actions.pixels import THOUSAND, Grid
from deskroll.actions.uitars_text import parse, with_box_tokens
from deskroll.errors import ActionError
from tests.actions.strategies import keys, texts

SCREEN = (1920, 1080)
V1 = Grid(cells=THOUSAND, screen=SCREEN)
V15 = Grid(cells=(1932, 1092), screen=SCREEN)
SAME = Grid(cells=SCREEN, screen=SCREEN)

REPLIES: dict[str, list[Action]] = {
    "Thought: Click the button\nAction: click(start_box='(100,200)')": [Click("left", 100, 200)],
    "Thought: Click the button\nAction: click(point='<point>200 300</point>')": [Click("left", 200, 300)],
    "Action: click(start_box='<|box_start|>(512,345)<|box_end|>')": [Click("left", 512, 345)],
    "Thought: 点输入框\nAction: click(start_box='[500, 875, 500, 875]')": [Click("left", 500, 875)],
    "Action: click(start_box='<|box_start|>(356,948),(380,992)<|box_end|>')": [Click("left", 368, 970)],
    "Action: click(start_box=[100,50])": [Click("left", 100, 50)],
    "Action: click(start_box='<bbox>10 20 30 40</bbox>')": [Click("left", 20, 30)],
    "Action: left_double(start_box='(3.7, 4.2)')": [DoubleClick(3, 4)],
    "Action: right_single(point='<point>7 8</point>')": [RightClick(7, 8)],
    "Action: hover(start_box='(9,9)')": [MoveTo(9, 9)],
    "Action: drag(start_box='(10,20)', end_box='(300,400)')": [MoveTo(10, 20), DragTo(300, 400)],
    "Action: drag(start_point='<point>1 2</point>', end_point='<point>3 4</point>')": [MoveTo(1, 2), DragTo(3, 4)],
    "Action: scroll(start_box='(640,360)', direction='down')": [MoveTo(640, 360), Scroll(dy=-5)],
    "Action: scroll(direction='up')": [Scroll(dy=5)],
    "Action: scroll(point='<point>5 6</point>', direction='left')": [MoveTo(5, 6), Scroll(dx=-5)],
    "Action: scroll(start_box='(960,540)', direction='right', amount=3)": [MoveTo(960, 540), Scroll(dx=5)],
    "Action: scroll(start_box='(226,222)', end_box='(650,226)')": [MoveTo(226, 222), DragTo(650, 226)],
    "Action: hotkey(key='ctrl c')": [Hotkey(("ctrl", "c"))],
    "Action: hotkey(key='ctrl+shift+t')": [Hotkey(("ctrl", "shift", "t"))],
    "Action: hotkey(key='ctrl++')": [Hotkey(("ctrl", "+"))],
    "Action: hotkey(key='ctrl +')": [Hotkey(("ctrl", "+"))],
    "Action: hotkey(key='Enter')": [Press("enter")],
    "Action: hotkey(key='arrowdown')": [Press("down")],
    "Action: hotkey(key='page down')": [Press("pagedown")],
    "Action: press(key='esc')": [Press("escape")],
    "Action: keydown(key='shift')\n\nkeyup(key='shift')": [KeyDown("shift"), KeyUp("shift")],
    "Action: release(key='shift')": [KeyUp("shift")],
    "Action: mouse_down(start_box='(7,8)')": [MoveTo(7, 8), MouseDown()],
    "Action: mouse_down(button='right')": [MouseDown("right")],
    "Action: move_to(start_box='(9,9)')\n\nmouse_up()": [MoveTo(9, 9), MouseUp()],
    "Action: hotkey(key='ctrl-s')": [Hotkey(("ctrl", "s"))],
    "Thought: it is broken\nAction: error_env()": [Fail()],
    "Thought: 输入\nAction: type(content='明天见')": [Typing("明天见")],
    "Action: type(content='doubao.com\n')": [Typing("doubao.com\n")],
    "Action: type(content='doubao.com\\n')": [Typing("doubao.com\n")],
    "Action: type(content='it's John's')": [Typing("it's John's")],
    "Action: type(content='say \\'hi\\', \\\"you\\\"')": [Typing("say 'hi', \"you\"")],
    'Action: type(content="f(x) = (1, 2)")': [Typing("f(x) = (1, 2)")],
    "Action: type(content='print(1)\nclick(here)')": [Typing("print(1)\nclick(here)")],
    "Action: type(content='')": [Typing("")],
    "Thought: wait\nAction: wait()<|im_end|>": [Wait(5.0)],
    "Thought: done\nAction: finished()": [Done()],
    "Thought: 完成\nAction: finished(content='typed')": [Answer("typed")],
    "Thought: I cannot.\nAction: call_user()": [Fail()],
    "Action: click(start_box='(1,2)')\n\ntype(content='a')\n\nhotkey(key='enter')": [
        Click("left", 1, 2),
        Typing("a"),
        Press("enter"),
    ],
    "Action: click(start_box='(1,2)') # the (first) button": [Click("left", 1, 2)],
    "```\nThought: x\nAction: click(start_box='(1,2)')\n```": [Click("left", 1, 2)],
    "I will click it.\nclick(start_box='(1,2)')": [Click("left", 1, 2)],
    "Action: click(start_box='(1,2)'": [Click("left", 1, 2)],
    "Thought: all in one line. Action: wait()": [Wait(5.0)],
    "Action: type(content='see Action: click(it)')": [Typing("see Action: click(it)")],
    "Thought: the Action: label is there\nAction: wait()": [Wait(5.0)],
}


@pytest.mark.parametrize("reply", REPLIES)
def test_what_the_models_write_is_read(reply: str) -> None:
    assert list(parse(reply, SAME).actions) == REPLIES[reply]


@pytest.mark.parametrize(
    ("reply", "thought"),
    [
        ("Thought: Click the button\nAction: wait()", "Click the button"),
        ("Thought: 点击保存按钮 ✓\nAction: wait()", "点击保存按钮 ✓"),
        ("Reflection: so\nand so\nAction: wait()", "so\nand so"),
        ("just so\n\nAction: wait()", "just so"),
        ("Action: wait()", ""),
        ("I will wait.\nwait()", "I will wait."),
    ],
)
def test_the_thought_stands_before_it(reply: str, thought: str) -> None:
    assert parse(reply, SAME).thought == thought


@pytest.mark.parametrize(
    ("grid", "box", "pixel"),
    [
        (V1, "(500,500)", (960, 540)),
        (V1, "(0,0)", (0, 0)),
        (V1, "(1000,1000)", (1919, 1079)),
        (V1, "(123,456)", (236, 492)),
        (V15, "(966,546)", (960, 540)),
        (V15, "(1932,1092)", (1919, 1079)),
        (V15, "(197,525)", (195, 519)),
    ],
)
def test_coordinates_are_those_of_the_models_version(grid: Grid, box: str, pixel: tuple[int, int]) -> None:
    assert parse(f"Action: click(start_box='{box}')", grid).actions == (Click("left", *pixel),)


WRONG = {
    "": r"there is no action in the reply; end it with a line  Action: click\(start_box='\(100,200\)'\)",
    "I am not sure what to do.": "there is no action in the reply",
    "Action: click(start_box='=')": r"click: start_box is '='; allowed: a point such as \(100,200\)",  # 78
    "Action: click()": "click: start_box is missing",
    "Action: click(start_box='(1,2,3)')": "start_box is",
    "Action: click('(1,2)')": "its arguments cannot be read: .*; write it like click",
    "Action: click(100, 200)": "its arguments cannot be read",
    "Action: mouse_down(button='middel')": "button is 'middel'; did you mean middle",
    "Action: release()": "key is missing",
    "Action: jump(start_box='(1,2)')": "jump: there is no such action; allowed: click, ",
    "Action: drag(start_box='(1,2)')": "drag: end_box is missing",
    "Action: scroll(start_box='(1,2)', direction='diagonal')": "direction is 'diagonal'; allowed: up, down, left",
    "Action: hotkey(key='')": "hotkey: key is missing",
    "Action: hotkey(key='ctrl hyperspace')": "'hyperspace', which is not a key",
    "Action: type()": "type: content is missing",
    "Action: type(content='\x07')": "which cannot be sent",
}


@pytest.mark.parametrize("reply", WRONG)
def test_what_cannot_be_read_says_how_to_write_it(reply: str) -> None:
    with pytest.raises(ActionError, match=WRONG[reply]):
        parse(reply, SAME)


pieces = st.sampled_from([
    "Action:", "Thought:", "click(", "type(content='", "start_box=", "'(1,2)'", "(", ")", "'", '"', ",", "=", "\n",
    "\n\n", "<point>", "1e9", "999999999999", "-3", "key='ctrl", "direction='", "<|box_start|>", "\\", "[", "]",
    "finished(",
])  # fmt: skip


@given(st.text() | st.lists(pieces | st.text(max_size=5), max_size=30).map("".join), st.sampled_from([V1, V15, SAME]))
@example("Action: type(content=''''''''')", SAME)
@example("click(" * 50, SAME)
def test_any_text_is_actions_or_an_action_error(text: str, grid: Grid) -> None:
    try:
        reading = parse(text, grid)
    except ActionError as error:
        assert len(str(error)) < 3000
        return
    assert reading.actions
    for action in reading.actions:
        check(action, *SCREEN)


@given(st.integers(0, 1919), st.integers(0, 1079), st.sampled_from(["(%d,%d)", "<point>%d %d</point>"]))
def test_points_make_the_round_trip(x: int, y: int, form: str) -> None:
    assert parse(f"Action: click(start_box='{form % (x, y)}')", SAME).actions == (Click("left", x, y),)


@given(texts)
def test_escaped_texts_make_the_round_trip(text: str) -> None:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    assert parse(f"Action: type(content='{escaped}')", SAME).actions == (Typing(text),)


@given(st.lists(keys.filter(lambda key: key.isalnum()), min_size=1, max_size=3))
def test_keys_make_the_round_trip(names: list[str]) -> None:
    (action,) = parse(f"Action: hotkey(key='{' '.join(names)}')", SAME).actions
    assert action == (Hotkey(tuple(names)) if len(names) > 1 else Press(names[0]))


def test_a_hostile_text_is_read_in_no_time() -> None:
    for hostile in (
        "Action: type(content='" + "'  " * 50_000,
        "click(a=" * 20_000,
        "Action: " + "click(" + ")" * 100_000,
    ):
        with pytest.raises(ActionError):
            parse(hostile, SAME)


def test_box_tokens_are_put_back_once() -> None:
    bare = "Action: drag(start_box='(1,2)', end_box='(3, 4)')"
    full = "Action: drag(start_box='<|box_start|>(1,2)<|box_end|>', end_box='<|box_start|>(3, 4)<|box_end|>')"
    assert with_box_tokens(bare) == full
    assert with_box_tokens(full) == full
