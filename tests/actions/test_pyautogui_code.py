"""pyautogui source: what is plain, what stays a script, what is wrong, and round trips."""

# ruff: noqa: E501 - a table reads best with one example a line

import ast
import importlib.util
from pathlib import Path

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
    Script,
    Scroll,
    ToolCall,
    Typing,
    Wait,
)
from deskroll.actions.pyautogui_calls import CALLS
from deskroll.actions.pyautogui_code import decode, encode
from deskroll.errors import ActionError
from tests.actions.strategies import HEIGHT, WIDTH, keyboard, pointer, scrolls, waits, words

PREAMBLE = "import pyautogui; import time; pyautogui.FAILSAFE = False; "


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("pyautogui.click()", [Click()]),
        ("pyautogui.click(100, 200)", [Click(x=100, y=200)]),
        ("pyautogui.click((100, 200))", [Click(x=100, y=200)]),
        ("pyautogui.click(x=100.9, y=2, clicks=2, button='right')", [Click("right", 100, 2, 2)]),
        ("pyautogui.click(1, 2, button=pyautogui.MIDDLE, duration=0.5)", [Click("middle", 1, 2)]),
        ("pyautogui.click(1, 2, 5, 0.1)", [Click(x=1, y=2, num_clicks=3), Click(x=1, y=2, num_clicks=2)]),
        ("pyautogui.leftClick(1, 2)", [Click(x=1, y=2)]),
        ("pyautogui.rightClick()", [RightClick()]),
        ("pyautogui.middleClick(1, 2)", [Click("middle", 1, 2)]),
        ("pyautogui.doubleClick(1, 2, interval=0.2)", [DoubleClick(1, 2)]),
        ("pyautogui.doubleClick(button='SECONDARY')", [Click("right", num_clicks=2)]),
        ("pyautogui.tripleClick(x=1, y=2)", [Click(x=1, y=2, num_clicks=3)]),
        ("pyautogui.moveTo(1, 2, 0.7, pyautogui.easeInOutQuad)", [MoveTo(1, 2)]),
        ("pyautogui.moveTo([1, 2])", [MoveTo(1, 2)]),
        ("pyautogui.dragTo(1, 2, duration=1.0, button='left', mouseDownUp=True)", [DragTo(1, 2)]),
        ("pyautogui.mouseDown()", [MouseDown()]),
        ("pyautogui.mouseDown(1, 2, 'middle')", [MoveTo(1, 2), MouseDown("middle")]),
        ("pyautogui.mouseUp(button='right')", [MouseUp("right")]),
        ("pyautogui.scroll(-5)", [Scroll(dy=-5)]),
        ("pyautogui.scroll(5, x=10, y=20)", [MoveTo(10, 20), Scroll(dy=5)]),
        ("pyautogui.vscroll(2.9)", [Scroll(dy=2)]),
        ("pyautogui.hscroll(3)", [Scroll(dx=3)]),
        ("pyautogui.typewrite('a\\nb', interval=0.1)", [Typing("a\nb")]),
        ("pyautogui.write(message='né')", [Typing("né")]),
        ("pyautogui.typewrite(['a', 'Left', 'enter'])", [Press("a"), Press("left"), Press("enter")]),
        ("pyautogui.press('ENTER')", [Press("enter")]),
        ("pyautogui.press('tab', presses=3, interval=0.1)", [Press("tab")] * 3),
        ("pyautogui.press(['a', 'b'], 2)", [Press("a"), Press("b")] * 2),
        ("pyautogui.keyDown('shift'); pyautogui.keyUp(key='shift')", [KeyDown("shift"), KeyUp("shift")]),
        ("pyautogui.hotkey('ctrl', 'shift', 't', interval=0.1)", [Hotkey(("ctrl", "shift", "t"))]),
        ("pyautogui.hotkey(['ctrl', 'c'])", [Hotkey(("ctrl", "c"))]),
        ("pyautogui.shortcut('alt', 'f4')", [Hotkey(("alt", "f4"))]),
        ("time.sleep(1.5)", [Wait(1.5)]),
        ("from time import sleep\nsleep(2)", [Wait(2.0)]),
        ("pyautogui.sleep(1)", [Wait(1.0)]),
        ("WAIT", [Wait()]),
        ("FAIL", [Fail()]),
        ("# a comment\npyautogui.PAUSE = 0.5\npyautogui.click(1, 2)  # here\nDONE\n", [Click(x=1, y=2), Done()]),
        ("   pyautogui.click()\n   time.sleep(1)", [Click(), Wait(1.0)]),
        ("pyautogui.write('C:\\d')", [Typing("C:\\d")]),
    ],
)  # fmt: skip
def test_plain_calls(source: str, expected: list[Action]) -> None:
    assert decode(source, WIDTH, HEIGHT) == expected


def test_the_preamble_does_nothing() -> None:
    assert decode(PREAMBLE + "pyautogui.click(1, 2)", WIDTH, HEIGHT) == [Click(x=1, y=2)]


@pytest.mark.parametrize(
    "source",
    [
        "x = 5\npyautogui.click(x, x)",
        "for _ in range(3):\n    pyautogui.press('tab')",
        "pyautogui.click(100 + 5, 3)",
        "pyautogui.write(f'{1}')",
        "pyautogui.moveRel(10, 0)",
        "pyautogui.move(10, 0)",
        "pyautogui.click('button.png')",
        "pyautogui.click(x=5)",
        "pyautogui.click((1, 2, 3, 4))",
        "pyautogui.click(clicks=1000)",
        "pyautogui.click(clicks=2, interval=1)",
        "pyautogui.dragTo(1, 2, button='right')",
        "pyautogui.dragTo(1, 2, mouseDownUp=False)",
        "pyautogui.click(1, 2, logScreenshot=True)",
        "pyautogui.hotkey(*['ctrl', 'c'])",
        "pyautogui.click(**{'x': 1, 'y': 2})",
        "with pyautogui.hold('shift'):\n    pyautogui.press('a')",
        "import os\npyautogui.click(1, 2)",
        "import pyautogui as pg\npg.click(1, 2)",
        "print('hello')",
        "pyautogui.press('nokey')\nprint('pyautogui takes this for nothing')",
    ],
)
def test_all_else_is_one_script(source: str) -> None:
    assert decode(source, WIDTH, HEIGHT) == [Script(source)]


def test_words_at_the_end_stay_outside_a_script() -> None:
    source = "for _ in range(3):\n    pyautogui.press('tab')  # again\nWAIT\nDONE"
    script = Script("for _ in range(3):\n    pyautogui.press('tab')")
    assert decode(source, WIDTH, HEIGHT) == [script, Wait(), Done()]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("pyautogui.click(1, 2)\npyautogui.click(", "line 2 is not valid Python: '(' was never closed"),
        ("a\x00b", "the source "),
        ("return 5", "line 1 is not valid Python: 'return' outside function"),
        ("", "the source does nothing; write at least one call, or one of WAIT, DONE, FAIL"),
        (PREAMBLE, "the source does nothing"),
        ("x = 1\nWAIT\npyautogui.click(x, x)", "line 2: WAIT stands amid a script"),
        ("if True:\n    DONE", "line 2: DONE stands amid a script"),
        ("\npyautogui.click(1, num_click=2)", "line 2, click: the call has the unknown parameter 'num_click'; did you mean clicks"),
        ("pyautogui.scroll(5000)", "line 1, scroll: SCROLL.dx, dy are 0, 5000; allowed: -1000 to 1000"),
        ("pyautogui.scroll()", "line 1, scroll: the call lacks clicks; allowed: clicks, x, y"),
        ("pyautogui.click(1, x=1)", "line 1, click: x is given twice"),
        ("pyautogui.sleep(1, 2)", "line 1, sleep: 2 arguments; its parameters: seconds"),
        ("pyautogui.click(1, 2, button='lfet')", "line 1, click: button is 'lfet'; did you mean left?"),
        ("pyautogui.press('retrun')", "line 1, press: key is 'retrun', which is not a key; did you mean return"),
        ("pyautogui.press('a', 'b')", "line 1, press: presses is 'b'; allowed: a whole number"),
        ("pyautogui.press(5)", "line 1, press: keys is 5; allowed: a key, or a list of keys"),
        ("pyautogui.hotkey()", "line 1, hotkey: HOTKEY.keys is empty"),
        ("time.sleep('a')", "line 1, sleep: seconds is 'a'; allowed: a number"),
        ("time.sleep(1000)", "line 1, sleep: WAIT.seconds is 1000.0; allowed: 0 to 300"),
        ("pyautogui.write('\\x1b')", "line 1, write: TYPING.text holds '\\x1b' at character 0"),
        ("(" * 5000, "line 1 is not valid Python: too many nested parentheses"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(source: str, message: str) -> None:
    with pytest.raises(ActionError) as caught:
        decode(source, WIDTH, HEIGHT)
    assert str(caught.value).startswith(message)


def test_parameters_are_those_of_the_installed_pyautogui() -> None:
    spec = importlib.util.find_spec("pyautogui")  # read, not imported: importing it needs a display
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text())
    functions = {node.name: node.args for node in tree.body if isinstance(node, ast.FunctionDef)}
    functions["write"] = functions["typewrite"]
    for name, call in CALLS.items():
        arguments = functions[name]
        split = len(arguments.args) - len(arguments.defaults)
        names = tuple(argument.arg for argument in arguments.args)
        assert (call.required, call.optional) == (names[:split], names[split:]), name


@given(st.lists(st.one_of(pointer, scrolls, keyboard, waits, words), min_size=1, max_size=5))
def test_round_trip(actions: list[Action]) -> None:
    assert decode(encode(actions), WIDTH, HEIGHT) == actions


def test_a_slanted_scroll_is_written_as_osworld_does() -> None:
    assert encode([Scroll(2, -3)]) == "pyautogui.hscroll(2)\npyautogui.vscroll(-3)"


def test_pyautogui_s_own_name_of_the_menu_key_is_written() -> None:
    assert encode([Press("menu")]) == "pyautogui.press('apps')"


def test_a_script_is_written_as_it_is() -> None:
    assert encode([Script("x = 1\nprint(x)")]) == "x = 1\nprint(x)"


@pytest.mark.parametrize("action", [ToolCall("t"), Answer("a")])
def test_what_has_no_call_is_refused(action: Action) -> None:
    with pytest.raises(ActionError, match=r"^pyautogui has no call for"):
        encode([action])


_literals = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.complex_numbers()),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)
_calls = st.builds(
    lambda name, args, keywords: (
        f"pyautogui.{name}({', '.join([*map(repr, args), *(f'{k}={v!r}' for k, v in keywords.items())])})"
    ),
    st.sampled_from([*CALLS, "hotkey", "position"]),
    st.lists(_literals, max_size=4),
    st.dictionaries(st.sampled_from(["x", "y", "clicks", "button", "interval", "keys", "presses"]), _literals, max_size=3),
)  # fmt: skip


@given(st.text() | _calls | st.lists(_calls, max_size=3).map("\n".join))
@example("pyautogui.click(0x" + "f" * 9000 + ", 1)")
@example("pyautogui.scroll(0x" + "f" * 9000 + ")")
@example("pyautogui.press('a', 0x" + "f" * 9000 + ")")
@example("-" * 20_000 + "1")
@example("x" + ".a" * 20_000 + "\nDONE")
@example("'\ud800'")
def test_nothing_but_action_errors_comes_out(source: str) -> None:
    try:
        assert decode(source, WIDTH, HEIGHT)
    except ActionError as error:
        assert str(error)
