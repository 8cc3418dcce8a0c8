"""Agents that ask no model: oracle, random, noop."""

from __future__ import annotations

from typing import Any

import pytest

from deskroll.actions import Action, Answer, Click, Done, Fail, Press, Typing, Wait, check
from deskroll.agents import agent_kind, model_protocol
from deskroll.errors import AgentError
from deskroll.types import Task
from tests.agents.screens import BEGIN, LATER, SCREEN, NoModel, agent


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
    named = task(solution="not_saved", near_misses={"not_saved": [TYPE]})
    assert (await played("oracle", task=named))[0] == (Typing("hi"),)


@pytest.mark.parametrize(
    ("metadata", "play", "words"),
    [
        ({}, "solution", "task 'task-1': solution is missing"),
        ({"solution": 5}, "solution", "solution is no list of actions"),
        ({"solution": "solution"}, "solution", "solution is no list of actions"),
        ({"solution": [CLICK, "JUMP"]}, "solution", r"task 'task-1': solution\[1\]: a bare action is 'JUMP'"),
        ({"solution": [{"action_type": "CLICK", "x": 9999, "y": 1}]}, "solution", r"solution\[0\]: CLICK.x is 9999"),
        ({"near_misses": {"a": [], "b": []}}, "c", "has no near miss 'c'; it has: a, b"),
        ({}, "c", "has no near miss 'c'; it has: none"),
    ],
)
def test_what_cannot_be_played_is_told_before_anything_is_touched(
    metadata: dict[str, Any], play: str, words: str
) -> None:
    with pytest.raises(AgentError, match=words):
        agent("oracle", NoModel(), task=task(**metadata), play=play)


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
    assert [model_protocol(agent_kind(name)) for name in ("oracle", "random", "noop", "adapter")] == ["none"] * 4
    assert [model_protocol(agent_kind(name)) for name in ("chat", "prompt", "qwen", "claude")] == ["openai"] * 3 + [
        "anthropic"
    ]
