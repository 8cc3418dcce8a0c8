"""What a model is let off, in every notation: done as was meant, and noted."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskroll.actions import Action, Click, Done, Hotkey, MoveTo, Scroll, claude, computer13, pyautogui_code
from deskroll.actions.noting import MOST, note, noting
from deskroll.actions.pixels import THOUSAND, Grid
from deskroll.actions.qwen_text import parse as parse_qwen
from deskroll.actions.uitars_text import parse as parse_uitars
from deskroll.errors import ActionError
from tests.actions.strategies import HEIGHT, WIDTH

GRID = Grid(cells=THOUSAND, screen=(WIDTH, HEIGHT))
EDGE = (WIDTH - 1, HEIGHT - 1)
Read = Callable[[str], Sequence[Action]]
READERS: dict[str, Read] = {
    "computer_13": lambda text: [computer13.decode(json.loads(text), WIDTH, HEIGHT)],
    "claude": lambda text: claude.decode(json.loads(text), WIDTH, HEIGHT),
    "pyautogui": lambda text: pyautogui_code.decode(text, WIDTH, HEIGHT),
    "qwen": lambda text: parse_qwen(f'{{"name": "computer_use", "arguments": {text}}}', GRID).actions,
    "uitars": lambda text: parse_uitars(f"Thought: so\nAction: {text}", GRID).actions,
}  # fmt: skip


@pytest.mark.parametrize(
    ("notation", "text", "actions", "words"),
    [
        ("computer_13", '{"action_type": "CLICK", "x": 9000, "y": 9000}', [Click("left", *EDGE)], "(9000, 9000) is"),
        ("computer_13", '{"action_type": "MOVE_TO", "x": -5.5, "y": 3}', [MoveTo(0, 3)], "(-6, 3) is off"),
        ("computer_13", '{"action_type": "DONE", "reason": "so"}', [Done()], "DONE has the unknown parameter 'reason'"),
        ("computer_13", '{"action_type": "CLICK", "thought": "so", "parameters": {"x": 1, "y": 2}}',
         [Click("left", 1, 2)], "CLICK has the unknown parameter 'thought'"),
        ("claude", '{"action": "left_click", "coordinate": [9000, 9000]}', [Click("left", *EDGE)], "(9000, 9000) is"),
        ("claude", '{"action": "left_click", "coordinate": [1, 2], "why": 1}', [Click("left", 1, 2)],
         "left_click has the unknown parameter 'why'"),
        ("claude", '{"action": "screenshot", "text": "x"}', [], "screenshot has the unknown parameter 'text'"),
        ("pyautogui", "pyautogui.click(9000, 9000)", [Click("left", *EDGE)], "(9000, 9000) is"),
        ("pyautogui", "pyautogui.click(1, 2, wait=3)", [Click("left", 1, 2)], "click has the unknown parameter 'wait'"),
        ("qwen", '{"action": "left_click", "coordinate": [1200, 1200]}', [Click("left", *EDGE)], "(1200, 1200) is off"),
        ("qwen", '{"action": "left_click", "coordinate": [0, 0], "element": "OK"}', [Click("left", 0, 0)],
         "left_click has the unknown parameter 'element'"),
        ("uitars", "click(start_box='(1200,1200)')", [Click("left", *EDGE)], "(1200, 1200) is off"),
        ("uitars", "click(start_box='(0,0)', element='OK')", [Click("left", 0, 0)],
         "click has the unknown parameter 'element'"),
        ("uitars", "scroll(start_box='(0,0)', direction='up', amount='3')", [MoveTo(0, 0), Scroll(0, 5)],
         "scroll has the unknown parameter 'amount'"),
    ],
)  # fmt: skip
def test_a_point_beyond_the_edge_and_an_unknown_parameter_cost_nothing(
    notation: str, text: str, actions: list[Action], words: str
) -> None:
    with noting() as notes:
        assert list(READERS[notation](text)) == actions
    (noted,) = notes
    assert words in noted


@pytest.mark.parametrize(
    ("notation", "text"),
    [
        ("computer_13", '{"action_type": "CLICK", "x": 1, "y": 2}'),
        ("claude", '{"action": "left_click", "coordinate": [1, 2]}'),
        ("pyautogui", "pyautogui.click(1, 2)"),
        ("pyautogui", "pyautogui.click(9000, 2)\nfor n in range(3):\n    pyautogui.press('a')"),
        ("qwen", '{"action": "left_click", "coordinate": [1, 2], "keys": [], "status": "success"}'),
        ("uitars", "click(start_box='(1,2)')"),
    ],
)
def test_what_is_performed_as_it_was_written_is_not_noted(notation: str, text: str) -> None:
    with noting() as notes:
        assert READERS[notation](text)
    assert notes == []


@pytest.mark.parametrize(
    ("notation", "text"),
    [
        ("computer_13", '{"action_type": "CLICK", "parameters": {"xx": 1, "y": 2}}'),
        ("claude", '{"action": "left_click", "coordinates": [1, 2]}'),
        ("pyautogui", "pyautogui.click(1, 2, click=2)"),
    ],
)
def test_a_parameter_that_is_misspelt_is_meant(notation: str, text: str) -> None:
    with pytest.raises(ActionError, match=r"unknown parameter .*; did you mean"):
        READERS[notation](text)


@pytest.mark.parametrize(
    ("notation", "text"),
    [
        ("computer_13", '{"action_type": "HOTKEY", "parameters": {"keys": ["ctrl-s"]}}'),
        ("claude", '{"action": "key", "text": "ctrl-s"}'),
        ("pyautogui", "pyautogui.hotkey('ctrl-s')"),
        ("qwen", '{"action": "key", "keys": ["ctrl-s"]}'),
        ("uitars", "hotkey(key='ctrl-s')"),
    ],
)
def test_keys_may_be_joined_by_a_dash(notation: str, text: str) -> None:
    assert list(READERS[notation](text)) == [Hotkey(("ctrl", "s"))]


@given(st.lists(st.text(max_size=400), max_size=60))
def test_notes_are_few_short_and_told_once(texts: list[str]) -> None:
    with noting() as outer:
        with noting() as inner:
            for text in [*texts, *texts]:
                note(text)
        assert outer == []
    assert len(inner) <= MOST
    assert len(set(inner)) == len(inner)
    assert all(len(each) <= 210 and each.isprintable() for each in inner)
    note("nobody collects it")
