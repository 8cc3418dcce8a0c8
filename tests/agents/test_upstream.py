"""OSWorld's own UI-TARS agent, as its package has it: run through the adapter, and compared with ours."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deskroll.actions import Click, Done, Hotkey
from deskroll.actions.pixels import Grid, smart_resize
from deskroll.actions.pyautogui_code import decode
from deskroll.actions.uitars_text import parse
from deskroll.models.scripted import Script, ScriptedServer
from deskroll.rollout.session import Session
from deskroll.tasks import parse_task
from tests.rollout.conftest import Runs, runs

__all__ = ["runs"]
pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("mm_agents") is None, reason="OSWorld's package is not installed"),
    pytest.mark.filterwarnings("ignore"),  # its own affair
]
SCREEN = (1920, 1080)
CONF = {
    "temperature": 0, "top_k": -1, "top_p": 0.9, "max_tokens": 500, "infer_mode": "qwen25vl_normal",
    "prompt_style": "qwen25vl_normal", "input_swap": False, "language": "English", "max_pixels": 16384 * 28 * 28,
    "min_pixels": 100 * 28 * 28, "callusr_tolerance": 3, "history_n": 5,
}  # fmt: skip
CLICK = "Thought: there\nAction: click(start_box='(966,546)')"


@pytest.fixture(autouse=True)
def _its_logger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the libraries that its package asks for, this agent needs one that is not installed: a logger."""
    if importlib.util.find_spec("loguru") is None:
        (tmp_path / "loguru.py").write_text("import logging\n\nlogger = logging.getLogger(__name__)\n")
        monkeypatch.syspath_prepend(str(tmp_path))


async def test_it_runs_unchanged(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    task = parse_task({"id": "t", "instruction": "Save it.", "evaluator": {"func": "infeasible"}}, "here")
    script = Script.replying(CLICK, "Thought: so\nAction: hotkey(key='ctrl s')", "Thought: done\nAction: finished()")
    async with ScriptedServer(script, keep_requests=True) as server:
        monkeypatch.setenv("DOUBAO_API_URL", server.url)
        monkeypatch.setenv("DOUBAO_API_KEY", "none")
        options: dict[str, Any] = {"class": "mm_agents.uitars15_v1:UITARSAgent", "model": "m", "runtime_conf": CONF}
        config = runs.config(env="osworld", agent="adapter", provider="sim", num_vms=1, agent_options=options)
        async with Session.open(config, [task]) as session:
            (episode,) = await session.run()
        assert (server.stats.requests, server.stats.refused) == (3, 0)
        assert server.requests[-1].count(b"data:image/png") == 3
    assert (episode.failure, episode.score.value) == (None, 0.0)
    steps = runs.read().attempt(episode.key, episode.attempt).steps()
    assert [step.actions for step in steps] == [(Click("left", 960, 540),), (Hotkey(("ctrl", "s")),), (Done(),)]
    assert steps[0].thought == CLICK


@pytest.mark.parametrize("kind", ["qwen25vl", "qwen2vl"], ids=["version 1.5", "version 1"])
@pytest.mark.parametrize(
    "action",
    [
        "click(start_box='(966,546)')",
        "click(start_box='(3,7)')",
        "left_double(start_box='(197,525)')",
        "right_single(start_box='(640,360)')",
        "hotkey(key='ctrl c')",
        "hotkey(key='enter')",
        "drag(start_box='(10,20)', end_box='(300,400)')",
        "scroll(start_box='(640,360)', direction='down')",
        "scroll(direction='up')",
        "type(content='hello world')",
        "click(start_box='(1,2)')\n\nhotkey(key='ctrl a')",
    ],
)
def test_both_read_the_same(kind: str, action: str) -> None:
    upstream: Any = importlib.import_module("mm_agents.uitars15_v1")
    reply = f"Thought: so\nAction: {action}"
    width, height = SCREEN
    read = upstream.parse_action_to_structure_output(reply, 1000, height, width, kind)
    code = upstream.parsing_response_to_pyautogui_code(read, height, width, False)
    theirs = [each for each in decode(code, *SCREEN) if type(each).__name__ != "Wait"]
    resized = smart_resize(SCREEN, factor=28, least=100 * 28 * 28, most=16384 * 28 * 28)
    ours = parse(reply, Grid(cells=resized if kind == "qwen25vl" else (1000, 1000), screen=SCREEN))
    assert [_same(each) for each in ours.actions] == [_same(each) for each in theirs]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(100, 4000), st.integers(100, 4000), st.sampled_from([1_003_520, 16384 * 28 * 28]))
def test_both_resize_alike(width: int, height: int, most: int) -> None:
    upstream: Any = importlib.import_module("mm_agents.uitars15_v1")
    rows, columns = upstream.smart_resize(height, width, 28, 78_400, most)
    assert smart_resize((width, height), factor=28, least=78_400, most=most) == (columns, rows)


def _same(action: Any) -> Any:
    """A chord of one key is a press, and a right click is a click of the right button, whoever writes it."""
    match type(action).__name__, action:
        case "Hotkey", _ if len(action.keys) == 1:
            return ("press", action.keys[0])
        case "Press", _:
            return ("press", action.key)
        case "Click", _ if action.button == "right":
            return ("right", action.x, action.y)
        case "RightClick", _:
            return ("right", action.x, action.y)
    return action
