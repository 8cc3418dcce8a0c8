"""Action spaces: every notation becomes the same actions, by pixels or by marks; pictures of other sizes map back."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from deskroll.actions import Action, Click, Done, DragTo, Fail, Hotkey, MoveTo, Script, Typing, Wait
from deskroll.config import Settings
from deskroll.envs.osworld.action_space import action_space
from deskroll.envs.osworld.env import OSWorldEnv
from deskroll.envs.osworld.scaling import Scale
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.errors import ActionError
from deskroll.registry import TABLE
from deskroll.types import ToolRequest

SPACES = {entry.name: action_space(entry.name)(Settings()) for entry in TABLE["action_space"]}

MARKS = [(10, 20), (300, 200)]


def actions(space: str, arguments: object, marks: list[tuple[int, int]] | None = None) -> list[Action]:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    call = ToolRequest(id="c", name=SPACES[space].tool.name, arguments=written)
    return list(SPACES[space].decode(call, 640, 480, MARKS if marks is None else marks))


def unmarked(space: str, arguments: object) -> list[Action]:
    call = ToolRequest(id="c", name=SPACES[space].tool.name, arguments=json.dumps(arguments))
    return list(SPACES[space].decode(call, 640, 480))


@pytest.mark.parametrize(
    ("space", "arguments", "expected"),
    [
        ("computer_13", {"action_type": "CLICK", "parameters": {"x": 5, "y": 6}}, [Click(x=5, y=6)]),
        ("computer_13", {"action_type": "CLICK", "x": 5, "y": 6}, [Click(x=5, y=6)]),
        ("computer_13", {"action_type": "CLICK", "parameters": {"mark": 2}}, [Click(x=300, y=200)]),
        ("computer_13", {"action_type": "MOVE_TO", "mark": 1}, [MoveTo(10, 20)]),
        ("computer_13", {"action_type": "DONE"}, [Done()]),
        ("pyautogui", {"code": "pyautogui.click(5, 6)"}, [Click(x=5, y=6)]),
        ("pyautogui", {"code": "import pyautogui\npyautogui.typewrite('a b')"}, [Typing("a b")]),
        ("pyautogui", {"code": "pyautogui.click(tag_2)"}, [Click(x=300, y=200)]),
        ("pyautogui", {"code": "pyautogui.moveTo(tag_1, duration=0.5)"}, [MoveTo(10, 20)]),
        ("pyautogui", {"code": "pyautogui.moveTo(*tag_1)"}, [MoveTo(10, 20)]),
        ("pyautogui", {"code": "pyautogui.click(tag_2[0], tag_2[1])"}, [Click(x=300, y=200)]),
        ("pyautogui", {"code": "pyautogui.click(x=tag_2[0], y=tag_2[1])"}, [Click(x=300, y=200)]),
        (
            "pyautogui",
            {"code": "  pyautogui.click(tag_2)\n  pyautogui.click(5, 6); DONE"},
            [Click(x=300, y=200), Click(x=5, y=6), Done()],
        ),
        ("pyautogui", {"code": "pyautogui.write('see tag_1')"}, [Typing("see tag_1")]),
        (
            "pyautogui",
            {"code": "pyautogui.click(tag_1); pyautogui.write('tag_2')"},
            [Click(x=10, y=20), Typing("tag_2")],
        ),
        (
            "pyautogui",
            {"code": "x, y = tag_2\npyautogui.click(x, y + 5)"},
            [Script("tag_2=(300, 200)\nx, y = tag_2\npyautogui.click(x, y + 5)")],
        ),
        (
            "pyautogui",
            {"code": "for t in (tag_2, tag_1):\n    pyautogui.click(t)\nDONE"},
            [Script("tag_1 = (10, 20)\ntag_2 = (300, 200)\nfor t in (tag_2, tag_1):\n    pyautogui.click(t)"), Done()],
        ),
        (
            "pyautogui",
            {"code": "print(tag_2, tag_1)"},
            [Script("tag_1=(10, 20); tag_2=(300, 200)\nprint(tag_2, tag_1)")],
        ),
        (
            "pyautogui",
            {"code": "tag_9 = (5, 6)\npyautogui.click(tag_9)"},
            [Script("tag_9 = (5, 6)\npyautogui.click(tag_9)")],
        ),
        ("pyautogui", {"code": "print(tag_1[0.0], tag_1[2])"}, [Script("tag_1=(10, 20)\nprint(tag_1[0.0], tag_1[2])")]),
        ("pyautogui", {"code": "print(f'{tag_1}')"}, [Script("tag_1=(10, 20)\nprint(f'{tag_1}')")]),
        ("pyautogui", {"code": "pyautogui.hotkey('ctrl', 's')"}, [Hotkey(("ctrl", "s"))]),
        ("pyautogui", {"code": "DONE"}, [Done()]),
        ("pyautogui", {"code": "FAIL"}, [Fail()]),
        ("claude_computer_use", {"action": "left_click", "coordinate": [5, 6]}, [Click(x=5, y=6)]),
        ("claude_computer_use", {"action": "left_click", "mark": 2}, [Click(x=300, y=200)]),
        ("claude_computer_use", {"action": "type", "text": "a b"}, [Typing("a b")]),
        ("claude_computer_use", {"action": "screenshot"}, [Wait(seconds=0.0)]),
        ("claude_computer_use", {"action": "done"}, [Done()]),
        ("claude_computer_use", {"action": "fail"}, [Fail()]),
    ],
)
def test_a_call_is_read(space: str, arguments: object, expected: list[Action]) -> None:
    assert actions(space, arguments) == expected


@pytest.mark.parametrize(
    ("space", "arguments", "said"),
    [
        ("computer_13", "{broken", "the arguments are not valid JSON"),
        ("computer_13", "[1]", "the arguments are not an object"),
        ("computer_13", {"action_type": "CLICK", "parameters": {"xx": 640, "y": 0}}, "unknown parameter 'xx'"),
        ("computer_13", {"action_type": "CLICK", "parameters": {"mark": 3}}, "mark is 3; allowed: 1 to 2"),
        ("computer_13", {"action_type": "CLICK", "parameters": {"mark": True}}, "mark is True"),
        ("computer_13", {"action_type": "JUMP"}, "JUMP"),
        ("pyautogui", {}, "code is missing"),
        ("pyautogui", {"code": 7}, "code is missing, or no text"),
        ("pyautogui", {"code": "pyautogui.click(tag_9)"}, "mark is 9; allowed: 1 to 2"),
        ("pyautogui", {"code": "pyautogui.click(tag_0)"}, "mark is 0; allowed: 1 to 2"),
        (
            "pyautogui",
            {"code": "# so\npyautogui.click(tag_1)\npyautogui.press('retrun')"},
            "line 3, press: key is 'retrun'",
        ),
        ("pyautogui", {"code": "pyautogui.click("}, "not valid Python"),
        ("pyautogui", {"code": ""}, "does nothing"),
        ("claude_computer_use", {"action": "left_click", "coordinate": [5]}, "coordinate"),
        ("claude_computer_use", {"action": "left_click", "mark": 0}, "mark is 0"),
        ("claude_computer_use", {"action": "jump"}, "jump"),
        ("claude_computer_use", {}, "action"),
    ],
)
def test_what_is_wrong_is_told(space: str, arguments: object, said: str) -> None:
    with pytest.raises(ActionError, match=said.replace("(", r"\(")):
        actions(space, arguments)


def test_without_marks_there_is_nothing_to_name() -> None:
    with pytest.raises(ActionError, match="nothing is marked on this screen: give coordinates"):
        actions("computer_13", {"action_type": "CLICK", "mark": 1}, marks=[])


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pyautogui.write('see tag_1')", Typing("see tag_1")),
        ("tag_1 = 5, 6\npyautogui.click(tag_1)", Script("tag_1 = 5, 6\npyautogui.click(tag_1)")),
    ],
)
def test_where_marks_are_not_offered_a_tag_is_a_name_like_any_other(code: str, expected: Action) -> None:
    assert unmarked("pyautogui", {"code": code}) == [expected]


@pytest.mark.parametrize("space", ["computer_13", "claude_computer_use"])
def test_where_marks_are_not_offered_none_can_be_named(space: str) -> None:
    with pytest.raises(ActionError, match="nothing is marked on this screen: give coordinates"):
        unmarked(space, {"action_type": "CLICK", "action": "left_click", "mark": 1})


@pytest.mark.parametrize(
    ("space", "word"), [("computer_13", "mark"), ("claude_computer_use", "mark"), ("pyautogui", "tag_3")]
)
def test_who_is_shown_marks_is_told_of_them(space: str, word: str) -> None:
    plain, marked = (
        OSWorldEnv.offered(OSWorldSettings(action_space=space, observation_type=kind))[0]
        for kind in ("screenshot_a11y_tree", "som")
    )
    assert (word in plain.description, word in marked.description) == (False, True)
    assert word not in json.dumps(plain.parameters)
    properties = marked.parameters["properties"]
    assert word in properties if word == "mark" else word in properties["code"]["description"]
    assert marked.name == plain.name
    assert marked.parameters["required"] == plain.parameters["required"]


pieces = st.sampled_from(
    [
        "tag_1",
        "tag_2",
        "tag_7",
        "*",
        "[0]",
        "[1]",
        "pyautogui.click(",
        ")",
        ", ",
        "x=",
        "\n",
        "    ",
        "for t in ",
        ":",
        "'",
        "DONE",
    ]
)


@given(st.lists(pieces, max_size=12).map("".join))
def test_any_source_with_tags_is_actions_or_an_error(code: str) -> None:
    try:
        assert actions("pyautogui", {"code": code})
    except ActionError:
        pass


@pytest.mark.parametrize("code", ["+".join(["tag_1"] * 20_000), "f(" * 150 + "tag_1" + ")" * 150, "\x00tag_1"])
def test_deep_sources_are_no_trouble(code: str) -> None:
    try:
        assert actions("pyautogui", {"code": code})
    except ActionError:
        pass


@pytest.mark.parametrize("space", SPACES)
@given(text=st.text(max_size=200))
def test_any_text_is_actions_or_an_error(space: str, text: str) -> None:
    for arguments in (text, {"code": text}, {"action": text}, {"action_type": text, "parameters": {"mark": text}}):
        try:
            assert actions(space, arguments)
        except ActionError:
            pass


def png(width: int, height: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), "navy").save(out, "PNG")
    return out.getvalue()


def test_a_picture_has_the_size_that_is_wanted() -> None:
    scale = Scale(screen=(1920, 1080), shown=(1280, 720))
    assert Image.open(io.BytesIO(scale.picture(png(1920, 1080)))).size == (1280, 720)
    same = png(800, 600)
    assert Scale(screen=(800, 600), shown=(800, 600)).picture(same) is same


@pytest.mark.parametrize(
    ("shown", "real"),
    [((0, 0), (0, 0)), ((1279, 719), (1919, 1079)), ((640, 360), (960, 540)), ((1, 1), (2, 2)), ((2, 2), (3, 3))],
)
def test_points_are_brought_back(shown: tuple[int, int], real: tuple[int, int]) -> None:
    scale = Scale(screen=(1920, 1080), shown=(1280, 720))
    assert scale.back(MoveTo(*shown)) == MoveTo(*real)
    assert scale.back(DragTo(*shown)) == DragTo(*real)
    assert scale.back(Click(x=shown[0], y=shown[1], button="right")) == Click(x=real[0], y=real[1], button="right")


def test_what_has_no_point_stays_and_a_program_is_refused() -> None:
    scale = Scale(screen=(1920, 1080), shown=(1280, 720))
    assert scale.back(Typing("x")) == Typing("x")
    assert scale.back(Click()) == Click()
    with pytest.raises(ActionError, match="plain pyautogui calls"):
        scale.back(Script("for n in range(3): pyautogui.click(n, n)"))


@given(
    screen=st.tuples(st.integers(1, 4000), st.integers(1, 4000)),
    shown=st.tuples(st.integers(1, 4000), st.integers(1, 4000)),
    part=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_every_point_of_a_picture_is_on_the_screen(
    screen: tuple[int, int], shown: tuple[int, int], part: tuple[float, float]
) -> None:
    point = [min(int(share * size), size - 1) for share, size in zip(part, shown, strict=True)]
    moved = Scale(screen=screen, shown=shown).back(MoveTo(*point))
    assert isinstance(moved, MoveTo)
    assert 0 <= moved.x < screen[0]
    assert 0 <= moved.y < screen[1]
    if screen[0] >= shown[0]:  # a finer screen: going there and back is the same pixel
        assert (2 * moved.x + 1) * shown[0] // (2 * screen[0]) == point[0]
