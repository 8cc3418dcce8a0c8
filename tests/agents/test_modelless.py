"""Agents that ask no model: oracle, random, noop."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskroll.actions import Action, Answer, Click, Done, DragTo, Fail, Press, Typing, Wait, check
from deskroll.agents import agent_kind
from deskroll.agents.oracle import OracleAgent, OracleSettings
from deskroll.agents.targets import Target, rows
from deskroll.errors import AgentError, InputError
from deskroll.types import Observation, Task
from tests.agents.screens import BEGIN, LATER, SCREEN, NoModel, agent, picture


def task(**metadata: Any) -> Task:
    return Task(id="task-1", instruction="Do it.", metadata=metadata)


async def played(name: str, **options: Any) -> list[tuple[Action, ...]]:
    """All turns until it says that it is over."""
    one = agent(name, NoModel(), **options)
    turns = [(await one.act(BEGIN)).actions]
    while not isinstance(turns[-1][-1], Done | Fail | Answer):
        turns.append((await one.act(LATER)).actions)
    return turns


CLICK = {"action_type": "CLICK", "parameters": {"x": 10, "y": 20}}
TYPE = {"action_type": "TYPING", "text": "hi"}


async def test_the_oracle_plays_the_solution_turn_by_turn() -> None:
    turns = await played(
        "oracle", task=task(solution=[CLICK, [TYPE, {"action_type": "PRESS", "key": "enter"}], "WAIT"])
    )
    assert turns == [(Click("left", 10, 20),), (Typing("hi"), Press("enter")), (Wait(),), (Done(),)]


@pytest.mark.parametrize(
    ("last", "action"),
    [("FAIL", Fail()), ("DONE", Done()), ({"action_type": "ANSWER", "parameters": {"text": "42"}}, Answer("42"))],
)
async def test_a_solution_may_end_by_itself(last: object, action: Action) -> None:
    assert await played("oracle", task=task(solution=[CLICK, last])) == [(Click("left", 10, 20),), (action,)]


async def test_near_misses_are_played_by_name() -> None:
    tried = task(solution=[CLICK], near_misses={"not_saved": [TYPE], "nothing": []})
    assert await played("oracle", task=tried, play="not_saved") == [(Typing("hi"),), (Done(),)]
    assert await played("oracle", task=tried, play="nothing") == [(Done(),)]
    assert await played("oracle", task=tried, play="near_miss") == [(Typing("hi"),), (Done(),)]


TABLE = (
    "tag\tname\ttext\tclass\tdescription\tposition (top-left x&y)\tsize (w&h)\n"
    'label\t"A ""b"""\t""\t\t\t(10, 20)\t(100, 50)\n'
    "push-button\tSave\t\t\t\t(200, 100)\t(80, 20)\n"
    "push-button\tSave\tall of it\t\t\t(400, 100)\t(80, 20)\n"
    "menu\tFile\n"
    "text\t\tx\t\t\t(-1, 5)\t(5, 5)\n"
)
SAVED = "label\tSaved\t\t\t\t(10, 10)\t(10, 10)"


@pytest.mark.parametrize(
    ("on", "place"),
    [
        ({"tag": "push-button"}, (240, 110)),
        ({"tag": "push-button", "nth": 1}, (440, 110)),
        ({"name": "Save", "nth": -1, "at": [0, 0]}, (400, 100)),
        ({"has": "all of"}, (440, 110)),
        ({"text": "all of it", "at": [0.1, 0.9]}, (408, 118)),
        ({"name": 'A "b"'}, (60, 45)),
        ({"has": "b"}, (60, 45)),
        ({"tag": "push-button", "nth": 2}, None),
        ({"tag": "menu"}, None),
        ({"text": "x"}, None),
    ],
)
def test_a_target_is_found_in_the_table(on: dict[str, Any], place: tuple[int, int] | None) -> None:
    assert msgspec.convert(on, Target).found(TABLE) == place


@given(st.text() | st.lists(st.sampled_from(["\t", "\n", '"', "(1, 2)", "a", "\r", "\0"])).map("".join))
def test_any_table_is_rows_or_nothing(table: str) -> None:
    for row in rows(table):
        assert min(row.x, row.y, row.width, row.height) >= 0


async def test_the_oracle_waits_for_what_it_acts_on() -> None:
    tried = task(
        solution=[
            [{"action_type": "CLICK", "on": {"name": "Save"}}, TYPE],
            {"wait_until_gone": {"name": "Save"}},
            {"wait_for": {"name": "Saved"}},
            {"action_type": "DRAG_TO", "parameters": {"on": {"name": "Saved"}}},
        ]
    )
    one = agent("oracle", NoModel(), task=tried)
    empty, there, saved = (msgspec.structs.replace(LATER, accessibility_tree=each) for each in ("", TABLE, SAVED))
    waited = [(await one.act(each)).actions for each in (empty, empty)]
    assert waited == [(Wait(0.1),), (Wait(0.2),)]
    assert (await one.act(there)).actions == (Click("left", 240, 110), Typing("hi"))
    assert [(await one.act(each)).actions for each in (there, empty)] == [(Wait(0.1),), (Wait(0.1),)]
    assert (await one.act(saved)).actions == (DragTo(15, 15),)
    assert (await one.act(saved)).actions == (Done(),)


async def test_the_oracle_finds_its_place_on_a_smaller_picture() -> None:
    tried = task(solution=[{"action_type": "CLICK", "on": {"name": "Saved"}}])
    half = Observation(screenshot=picture((960, 540)), accessibility_tree=SAVED)
    assert (await agent("oracle", NoModel(), task=tried).act(half)).actions == (Click("left", 31, 31),)


async def test_what_never_comes_fails_the_attempt() -> None:
    one = agent("oracle", NoModel(), task=task(solution=[{"wait_for": {"name": "Saved"}}]), patience=1e-9)
    assert (await one.act(msgspec.structs.replace(LATER, accessibility_tree=TABLE))).actions == (Wait(0.1),)
    with pytest.raises(AgentError, match=r'solution\[0\]: no element {"name":"Saved"} is on the screen after'):
        await one.act(msgspec.structs.replace(LATER, accessibility_tree=TABLE))


async def test_who_looks_for_elements_must_be_shown_some() -> None:
    one = agent("oracle", NoModel(), task=task(solution=[{"wait_for": {"name": "Saved"}}]))
    with pytest.raises(AgentError, match="set observation_type to screenshot_a11y_tree"):
        await one.act(LATER)


@pytest.mark.parametrize(
    ("metadata", "play", "words"),
    [
        ({}, "solution", "task 'task-1': solution is missing"),
        ({"solution": 5}, "solution", "solution is not a list of actions"),
        ({"solution": "FAIL"}, "solution", "solution is not a list of actions"),
        ({"solution": [CLICK, "JUMP"]}, "solution", r"task 'task-1': solution\[1\]: a bare action is 'JUMP'"),
        (
            {"solution": [{"action_type": "CLICK", "x": 9999, "y": 1}]},
            "solution",
            r"\[0\]: CLICK: \(9999, 1\) is off",
        ),
        (
            {"solution": [{"action_type": "DONE", "why": 1}]},
            "solution",
            r"\[0\]: DONE has the unknown",
        ),
        ({"near_misses": {"a": [], "b": []}}, "c", "has no near miss 'c'; it has: a, b"),
        ({}, "c", "has no near miss 'c'; it has: none"),
        ({}, "near_miss", "has no near miss; it has: none"),
        ({"solution": [{"wait_for": {}}]}, "solution", r"solution\[0\]: a target needs one of"),
        ({"solution": [{"wait_for": {"name": "a"}, "click": 1}]}, "solution", r"unknown field `click`"),
        ({"solution": [{"action_type": "CLICK", "on": {"nam": "a"}}]}, "solution", r"unknown field `nam`"),
        ({"solution": [{"action_type": "CLICK", "on": {"name": "a", "at": [0, 1]}}]}, "solution", "< 1.0"),
    ],
)
def test_what_cannot_be_played_is_told_before_anything_is_touched(
    metadata: dict[str, Any], play: str, words: str
) -> None:
    with pytest.raises(AgentError, match=words):
        agent("oracle", NoModel(), task=task(**metadata), play=play)
    with pytest.raises(InputError, match=words):  # and a run, before it begins
        OracleAgent.check_task(task(**metadata), OracleSettings(play=play), SCREEN)


async def test_the_random_agent_does_the_same_on_every_attempt_of_a_sample() -> None:
    first, again = await played("random"), await played("random")
    assert first == again
    others = [
        await played("random", sample=1),
        await played("random", seed=1),
        await played("random", task=Task(id="x", instruction="")),
    ]
    assert all(other != first for other in others)
    assert len(first) == 16


async def test_random_actions_fit_the_screen_and_never_give_up() -> None:
    turns = await played("random", steps=2000)
    for action in (action for turn in turns for action in turn):
        check(action, *SCREEN)
        assert not isinstance(action, Fail)
    assert len({type(action) for turn in turns for action in turn}) == 10


async def test_nothing_is_done_by_noop() -> None:
    assert await played("noop") == [(Done(),)]


def test_they_say_that_they_need_no_model() -> None:
    assert [agent_kind(name).protocol for name in ("oracle", "random", "noop", "adapter")] == ["none"] * 4
    assert [agent_kind(name).protocol for name in ("chat", "prompt", "qwen", "claude")] == ["openai"] * 3 + [
        "anthropic"
    ]


async def test_looks_become_rare_so_that_patience_ends_before_the_turns_do() -> None:
    one = agent("oracle", NoModel(), task=task(solution=[{"wait_for": {"name": "Saved"}}]))
    looks = [(await one.act(msgspec.structs.replace(LATER, accessibility_tree=TABLE))).actions[0] for _ in range(18)]
    pauses = [each.seconds or 0.0 for each in looks if isinstance(each, Wait)]
    assert pauses[-2:] == [5.0, 5.0]
    assert sum(pauses) > 60


async def test_the_oracle_finds_its_place_where_no_picture_tells_the_size() -> None:
    tried = task(solution=[{"action_type": "CLICK", "on": {"name": "Saved"}}])
    one = agent("oracle", NoModel(), task=tried, shown=(960, 540))
    assert (await one.act(Observation(accessibility_tree=SAVED))).actions == (Click("left", 31, 31),)


@pytest.mark.parametrize("turn", [{"action_type": "CLICK", "on": {"name": "Save"}}, {"wait_for": {"name": "Save"}}])
async def test_what_lies_beyond_the_edge_is_not_there_yet(turn: dict[str, Any]) -> None:
    one = agent("oracle", NoModel(), task=task(solution=[turn]))
    beyond = Observation(accessibility_tree="push-button\tSave\t\t\t\t(1900, 1070)\t(200, 100)")
    decision = await one.act(beyond)
    assert decision.actions == (Wait(0.1),)
    assert decision.thought == 'no element {"name":"Save"} is on the screen'
