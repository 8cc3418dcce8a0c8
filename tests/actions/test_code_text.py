"""Code blocks, as OSWorld's baseline asks for them, and the ways in which they can be off; forms, not recordings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskroll.actions import Action, Click, Done, Fail, Hotkey, Script, Typing, Wait, check, pyautogui_code
from deskroll.actions.code_text import objects, parse
from deskroll.errors import ActionError

SCREEN = (1920, 1080)


def read(source: str) -> list[Action]:
    return list(pyautogui_code.decode(source, *SCREEN))


REPLIES: dict[str, list[Action]] = {
    "DONE": [Done()],
    " FAIL\n": [Fail()],
    "```DONE```": [Done()],
    "It is done.\n```\nDONE\n```": [Done()],
    "```python\nDONE\n```": [Done()],
    "```python\npyautogui.click(10, 20)\n```": [Click("left", 10, 20)],
    "```\npyautogui.click(10, 20)\n```": [Click("left", 10, 20)],
    "```py\npyautogui.click(10, 20)": [Click("left", 10, 20)],
    "```python pyautogui.click(10, 20)```": [Click("left", 10, 20)],
    "```python\nimport pyautogui\nimport time\n# click\npyautogui.click(10, 20); time.sleep(0.5);\n```": [
        Click("left", 10, 20),
        Wait(0.5),
    ],
    "First:\n```python\npyautogui.hotkey('ctrl', 's')\n```\nthen\n```WAIT```": [Hotkey(("ctrl", "s")), Wait()],
    "I do not say ```DONE``` yet:\n```python\npyautogui.click(10, 20)\n```": [Click("left", 10, 20)],
    "```FAIL``` or\n```\nWAIT\n```\nrather\n```DONE```": [Done()],
    "```python\npyautogui.write('a')\nDONE\n```": [Typing("a"), Done()],
    "```python\nfor n in range(3):\n    pyautogui.press('tab')\n```": [
        Script("for n in range(3):\n    pyautogui.press('tab')")
    ],
}


@pytest.mark.parametrize("reply", REPLIES)
def test_what_the_models_write_is_read(reply: str) -> None:
    assert list(parse(reply, read).actions) == REPLIES[reply]


def test_what_stands_before_the_code_is_the_thought() -> None:
    assert parse("The menu is open.\n\n```python\nWAIT\n```\nSo be it.", read).thought == "The menu is open."


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("", "there is no code in the reply; write it"),
        ("pyautogui.click(1, 2)", "there is no code in the reply"),
        ("``````", "there is no code in the reply"),
        ("```python\n```", "there is no code in the reply"),
        ("```python\n# nothing\n```", "the source does nothing"),
        ("```python\npyautogui.click(\n```", "not valid Python"),
        ("```bash\nls\n```", "a block is of bash; write it"),
    ],
)
def test_what_cannot_be_read_says_what_is_wrong(reply: str, words: str) -> None:
    with pytest.raises(ActionError, match=words):
        parse(reply, read)


pieces = st.sampled_from(
    ["```", "```python\n", "\n", "pyautogui.click(", "1, 2", ")", "DONE", "WAIT", ";", "'", "(", "x=1"]
)


@given(st.text() | st.lists(pieces | st.text(max_size=4), max_size=20).map("".join))
def test_any_text_is_actions_or_an_action_error(text: str) -> None:
    try:
        reading = parse(text, read)
    except ActionError:
        return
    assert reading.actions
    for action in reading.actions:
        check(action, *SCREEN)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ('{"a": 1}', [{"a": 1}]),
        ('[{"a": 1}, "WAIT"]', [{"a": 1}, "WAIT"]),
        ('{"a": 1}\n\n{"b": 2}\n', [{"a": 1}, {"b": 2}]),
    ],
)
def test_a_json_block_holds_one_action_or_several(block: str, expected: list[object]) -> None:
    assert objects(block) == expected


@given(st.text())
def test_any_block_is_json_or_an_action_error(block: str) -> None:
    try:
        objects(block)
    except ActionError as error:
        assert "not valid JSON" in str(error)
