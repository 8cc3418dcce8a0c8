"""What every environment must do. Give it tasks with `--plugin-tasks FILE`; a desktop is a simulated one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deskroll.actions import Answer, Click, Done, Fail, Wait
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.providers.sim.provider import SimProvider
from deskroll.envs import Ending, Env, EnvContext, TurnResult
from deskroll.errors import ActionError, DeskrollError, FailureClass, InputError
from deskroll.tasks import load_tasks
from deskroll.testing import Chosen, awaited
from deskroll.types import Observation, Score, StopReason, Task, Tool, ToolRequest

_JUNK = ("", "{", "null", "[]", '"text"', "{}", '{"no_such_argument": 1}', "[" * 5000)
"""What models write for arguments."""


def tasks_of(chosen: Chosen) -> list[Task]:
    """The tasks that were given, or a question."""
    if chosen.tasks is None:
        return [Task(id="contract", instruction="What is 6 times 7?", answer="42")]
    return list(load_tasks(chosen.tasks, limit=3))


@asynccontextmanager
async def live(chosen: Chosen, *, at: int = 0) -> AsyncIterator[Env]:
    """An environment of one task, prepared and closed as a run does it."""
    kind, settings = chosen.load(), chosen.settings()
    tasks = tasks_of(chosen)
    task = tasks[at % len(tasks)]
    folder = (chosen.tasks or Path("x")).absolute().parent
    await asyncio.to_thread(kind.prepare, tasks, settings, folder)
    spec = kind.desktop_spec(task, settings)
    async with SimProvider() as provider:
        desktop = None if spec is None else GuestDesktop(await provider.boot(spec))
        env: Env = kind(task, settings, EnvContext(desktop=desktop, folder=folder))
        try:
            yield env
        finally:
            await env.close()
            await kind.close_shared()
            if desktop is not None:
                await desktop.close()


def call(name: str, arguments: str = "{}") -> ToolRequest:
    """A call as a model makes it."""
    return ToolRequest(id="call-1", name=name, arguments=arguments)


def test_its_tasks_are_taken_and_it_says_whether_they_will_be_scored(chosen: Chosen) -> None:
    """Before anything is started, and without a desktop."""
    kind = chosen.load()
    for task in tasks_of(chosen):
        kind.check_task(task)
        assert kind.is_judged(task) in (True, False)
    assert isinstance(kind.prepare(tasks_of(chosen), chosen.settings(), (chosen.tasks or Path("x")).parent), str)


def test_a_task_of_another_kind_is_refused_or_taken_but_never_a_crash(chosen: Chosen) -> None:
    """An `InputError` names what is wrong."""
    odd = Task(id="odd", instruction="", setup=({"type": "no such step"},), evaluator={"func": "no such function"})
    try:
        chosen.load().check_task(odd)
    except InputError as error:
        assert str(error)


@awaited
async def test_its_tools_are_described_for_a_model(chosen: Chosen) -> None:
    """Names are unique, parameters are a JSON schema, and an attempt has what was announced for it."""
    announced = list(chosen.load().offered(chosen.settings()))
    async with live(chosen) as env:
        tools = list(env.tools)
    for tool in (*announced, *tools):
        assert isinstance(tool, Tool)
        assert tool.name.replace("_", "").replace("-", "").isalnum()
        assert tool.description
        assert tool.parameters.get("type", "object") == "object"
    names = [tool.name for tool in tools]
    assert len(set(names)) == len(names)
    assert {tool.name for tool in announced} <= set(names)


@awaited
async def test_the_beginning_shows_the_instruction(chosen: Chosen) -> None:
    """Agents learn what to do from the first observation alone."""
    async with live(chosen) as env:
        seen = await env.reset()
    assert isinstance(seen, Observation)
    assert seen.instruction.strip()


@awaited
async def test_a_call_that_is_no_call_is_told_to_the_model(chosen: Chosen) -> None:
    """An unknown tool and arguments of any shape are an `ActionError` or actions, never a bug."""
    async with live(chosen) as env:
        await env.reset()
        with pytest.raises(ActionError):
            env.decode(call("no_such_tool"))
        for tool in env.tools:
            for junk in _JUNK:
                try:
                    list(env.decode(call(tool.name, junk)))
                except ActionError as error:
                    assert str(error)


@pytest.mark.parametrize(
    ("last", "stop"), [(Answer(text="42"), StopReason.ANSWER), (Done(), StopReason.DONE), (Fail(), StopReason.FAIL)]
)
@awaited
async def test_what_ends_an_episode_ends_it(chosen: Chosen, last: Answer | Done | Fail, stop: StopReason) -> None:
    """With the reason, and the answer where there is one."""
    async with live(chosen) as env:
        await env.reset()
        turn = await env.step([last])
    assert isinstance(turn, TurnResult)
    assert turn.stop is not None
    if turn.stop is StopReason.ANSWER:
        assert stop is StopReason.ANSWER
        assert turn.answer == "42"


@awaited
async def test_each_action_has_a_result_and_one_that_cannot_be_done_says_so(chosen: Chosen) -> None:
    """Also an action that the environment has no use for: that is told, and the episode goes on."""
    async with live(chosen) as env:
        await env.reset()
        turn = await env.step([Wait(seconds=0.0), Click(x=5, y=5)])
    if turn.stop is None:
        assert len(turn.observation.results) == 2


@awaited
async def test_every_attempt_has_a_score_or_a_reason_why_not(chosen: Chosen) -> None:
    """A number from 0 to 1; a score is never silent. A wrong answer is not the full score."""
    scores = []
    for ending in (
        Ending(stop=StopReason.ANSWER, answer="surely not this"),
        Ending(stop=StopReason.FAIL),
        Ending(stop=StopReason.MAX_TURNS),
    ):
        async with live(chosen) as env:
            await env.reset()
            scores.append(await env.score(ending))
    for score in scores:
        assert isinstance(score, Score)
        assert score.reason.strip()
        assert score.value is None or 0.0 <= score.value <= 1.0
    assert scores[0].value != 1.0, "an attempt that did nothing right has the full score"


@awaited
async def test_it_can_be_closed_whatever_came_before(chosen: Chosen) -> None:
    """Before its reset, and after a step that was cancelled."""
    async with live(chosen):
        pass
    async with live(chosen) as env:
        await env.reset()
        step = asyncio.ensure_future(env.step([Wait(seconds=0.0)]))
        await asyncio.sleep(0)
        step.cancel()
        await asyncio.gather(step, return_exceptions=True)


@awaited
async def test_attempts_do_not_see_each_other(chosen: Chosen) -> None:
    """Two at a time: one ends, and the other goes on."""
    async with live(chosen) as second:
        async with live(chosen, at=1) as first:
            await asyncio.gather(first.reset(), second.reset())
            await first.step([Done()])
        assert isinstance(await second.step([Answer(text="x")]), TurnResult)


@awaited
async def test_what_fails_carries_whose_fault_it_was(chosen: Chosen) -> None:
    """A tool that is called with nonsense answers, or raises an error with a failure class; nothing else."""
    async with live(chosen) as env:
        await env.reset()
        for tool in env.tools:
            try:
                actions = env.decode(call(tool.name, "{}"))
                await env.step(actions)
            except DeskrollError as error:
                assert error.failure in tuple(FailureClass)
