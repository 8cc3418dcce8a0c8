"""Agents written for OSWorld, unchanged."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from deskroll.actions import Action, Click, Done, Fail, Script, Typing, Wait
from deskroll.agents import Agent, agent_kind, agent_settings
from deskroll.agents.image import image_size
from deskroll.errors import AgentError, ConfigError, InputError
from deskroll.rollout.config import RunConfig
from deskroll.rollout.session import Session
from deskroll.store import Run
from deskroll.tasks import parse_task
from deskroll.types import Observation
from tests.agents.screens import BEGIN, LATER, NoModel, picture
from tests.agents.screens import agent as make

HERE = "tests.agents.foreign:"


def adapted(name: str, **options: Any) -> Agent:
    return make("adapter", NoModel(), **{"class": f"{HERE}{name}", **options})


ITEMS: list[tuple[Any, list[Action]]] = [
    ("import pyautogui\npyautogui.click(10, 20)", [Click("left", 10, 20)]),
    (
        "import pyautogui\nimport time\n\n'''\nThought:\nclick\n'''\n\npyautogui.click(10.5, 20.2, button='left')",
        [Click("left", 10, 20)],
    ),
    ("x = 5\npyautogui.press('tab', presses=x)", [Script("x = 5\npyautogui.press('tab', presses=x)")]),
    ("WAIT", [Wait()]),
    (" DONE ", [Done()]),
    ("FAIL", [Fail()]),
    ({"action_type": "TYPING", "text": "hi"}, [Typing("hi")]),
    ({"action_type": "DONE"}, [Done()]),
    (
        {"name": "computer", "input": {}, "action_type": "tool_use", "command": "pyautogui.click(1, 2)"},
        [Click("left", 1, 2)],
    ),
    ({"action_space": "pyautogui", "action": "pyautogui.write('a')", "pending_checks": []}, [Typing("a")]),
]


@pytest.mark.parametrize(("item", "actions"), ITEMS, ids=lambda value: str(value)[:30])
@pytest.mark.parametrize("name", ["Listed", "Strict"])
async def test_its_actions_are_understood(name: str, item: Any, actions: list[Action]) -> None:
    decision = await adapted(name, predictions=[item], platform="ubuntu").act(BEGIN)
    assert list(decision.actions) == actions
    assert decision.thought == "Do it. 1"


async def test_it_goes_on_with_what_is_seen() -> None:
    agent = adapted("Listed", predictions=["pyautogui.click(1, 2)", "pyautogui.click(", "DONE"])
    assert (await agent.act(BEGIN)).actions == (Click("left", 1, 2),)
    broken = await agent.act(LATER)
    assert broken.actions == ()
    assert "not valid Python" in broken.problem
    assert (await agent.act(Observation(results=(broken.problem,)))).actions == (Done(),), "it is shown the last screen"


async def test_an_agent_may_have_no_reset_and_return_more() -> None:
    assert (await adapted("Bare").act(BEGIN)).actions == (Done(),)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "predict gave a NoneType; allowed: (response, actions)"),
        (["x"], "predict gave a tuple; allowed: (response, actions)"),
        (["x", 5], "predict gave int as its actions; allowed: a list"),
        (["x", []], "predict gave no actions"),
        (["x", [5]], "an action is a int; allowed: pyautogui source"),
        (["x", [{"action_type": "JUMP"}]], "action_type is 'JUMP'"),
    ],
)
async def test_what_is_no_prediction_is_asked_for_again_and_ends_it_at_last(value: Any, words: str) -> None:
    agent = adapted("Odd", value=value, max_retries=1)
    first = await agent.act(BEGIN)
    assert words in first.problem
    assert not first.gave_up
    assert (await agent.act(BEGIN)).gave_up.startswith("2 predictions in a row could not be used; the last one: ")


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("value", ValueError, "as told"),
        ("exit", AgentError, "SystemExit: as told"),
        ("stop", AgentError, "StopIteration"),
    ],
)
async def test_its_own_errors_are_told(how: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        await adapted("Failing", how=how).act(BEGIN)


async def test_a_slow_one_holds_up_nobody_and_can_be_left() -> None:
    begun = time.monotonic()
    slow = [asyncio.create_task(adapted("Slow").act(BEGIN)) for _ in range(20)]
    assert (await adapted("Bare").act(BEGIN)).actions == (Done(),)
    for task in slow:
        task.cancel()
    assert all(isinstance(each, asyncio.CancelledError) for each in await asyncio.gather(*slow, return_exceptions=True))
    assert time.monotonic() - begun < 15


@pytest.mark.parametrize(
    ("path", "kind", "words"),
    [
        ("nowhere", InputError, "agent_options.class is 'nowhere'; write package.module:Class, or FILE.py:Class"),
        ("no.such.module:Agent", InputError, "there is no module"),
        ("tests.agents.foreign:Absent", InputError, "has no Absent"),
        ("tests.agents.screens:NoModel", InputError, r"has no method predict\(instruction, obs\)"),
    ],
)
async def test_what_is_no_agent_is_refused(path: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        await make("adapter", NoModel(), **{"class": path}).act(BEGIN)


def test_the_class_must_be_named() -> None:
    with pytest.raises(ConfigError, match=r"agent_options \(agent adapter\): class"):
        agent_settings(agent_kind("adapter"), {}, "adapter")


@pytest.mark.parametrize(
    ("item", "action"),
    [
        ("pyautogui.click(959, 539)", Click("left", 1919, 1079)),
        ({"action_type": "CLICK", "x": 10, "y": 20}, Click("left", 21, 41)),
        ("pyautogui.write('a')", Typing("a")),
        ("DONE", Done()),
    ],
)
async def test_points_are_those_of_the_picture_that_it_was_shown(item: Any, action: Action) -> None:
    half = Observation(instruction="Do it.", screenshot=picture((960, 540)))
    assert (await adapted("Listed", predictions=[item]).act(half)).actions == (action,)


async def test_on_a_picture_of_another_size_programs_are_refused_and_points_off_it_brought_to_its_edge() -> None:
    half = Observation(instruction="Do it.", screenshot=picture((960, 540)))
    agent = adapted("Listed", predictions=["x = 5\npyautogui.click(x, x)", "pyautogui.click(960, 5)"])
    assert "a program cannot be brought to the screen's own size" in (await agent.act(half)).problem
    decision = await agent.act(half)
    assert decision.actions == (Click("left", 1919, 11),)
    assert decision.notes == ("CLICK: (960, 5) is off the 960x540 screen; taken: (959, 5)",)


async def test_without_a_picture_points_are_those_of_the_runs_settings() -> None:
    agent = adapted("Odd", value=["x", ["pyautogui.click(480, 270)"]], shown=(960, 540))
    decision = await agent.act(Observation(instruction="Do it.", accessibility_tree="tag"))
    assert decision.actions == (Click("left", 961, 541),)


async def test_the_first_screen_is_kept(tmp_path: Path) -> None:
    task = parse_task({"id": "1", "instruction": "Do it.", "evaluator": {"func": "infeasible"}}, "here")
    config = RunConfig.model_validate({
        "env": "osworld", "agent": "adapter", "provider": "sim", "num_vms": 1, "run_id": "run", "backend": "inline",
        "agent_options": {"class": f"{HERE}Listed", "predictions": ["DONE"]}, "output_dir": str(tmp_path),
    })  # fmt: skip
    async with Session.open(config, [task]) as session:
        (episode,) = await session.run()
    attempt = Run.open(tmp_path / "run").attempt(episode.key, episode.attempt)
    assert image_size(attempt.image("screens/0.png")) == (1920, 1080)


async def test_it_reads_the_tree_as_xml() -> None:
    agent = adapted("Reader")
    assert (await agent.act(Observation(accessibility_tree="tag\tname", raw_tree="<tree name='a'/>"))).thought == "a"
    assert (await agent.act(Observation(accessibility_tree="<tree name='b'/>"))).thought == "b"
