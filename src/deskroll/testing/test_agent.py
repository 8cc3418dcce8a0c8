"""What every agent must do. Tasks with `--plugin-tasks FILE`, where it takes some only; its model says what we want."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from deskroll.actions import Action, ToolCall
from deskroll.agents import NO_MODEL, Agent, AgentContext
from deskroll.errors import DeskrollError, FailureClass, ModelError
from deskroll.models.base import ANY_CALL, ModelCall
from deskroll.models.plugin import ModelPlugin
from deskroll.plugins import load_plugin
from deskroll.tasks import load_tasks
from deskroll.testing import Chosen, awaited
from deskroll.types import Completion, Decision, Observation, Task, Tool, ToolRequest

SCREEN = (640, 480)
_SAID = (
    Completion(text="I am done.\n\nDONE"),
    Completion(text=""),
    Completion(text="```python\nimport os; os.system('x'\n```\n{{{ \x00 \ud7ff"),
    Completion(text="Thought: ?\nAction: click(start_box='(9999999,-1)')"),
    Completion(tool_calls=(ToolRequest(id="a", name="no_such_tool", arguments="{"),)),
    Completion(tool_calls=(ToolRequest(id="", name="computer", arguments="[]"),) * 3),
)
"""What a model may say at any time."""


@dataclass
class Spoken:
    """A model that says this, one after the other, the last one for ever; or fails."""

    says: Sequence[Completion]
    error: ModelError | None = None
    asked: int = 0

    async def complete(
        self, messages: Sequence[bytes], tools: bytes | None = None, *, call: ModelCall = ANY_CALL
    ) -> Completion:
        """See `Model`."""
        assert all(isinstance(each, bytes) for each in messages)
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.asked += 1
        return self.says[min(self.asked, len(self.says)) - 1]


@dataclass
class Log:
    """Keeps the conversation."""

    messages: list[bytes] = field(default_factory=list)

    def message(self, stored: bytes) -> None:
        """See `ConversationLog`."""
        self.messages.append(stored)

    def screen(self, image: bytes) -> str:
        """See `ConversationLog`."""
        return f"screens/{len(image)}.png"


def observation(instruction: str = "") -> Observation:
    """A screen with a table of it."""
    from PIL import Image  # noqa: PLC0415  (agents that are shown a screen need it)

    out = io.BytesIO()
    Image.new("RGB", SCREEN, "navy").save(out, "PNG")
    table = "tag\tname\ttext\nlabel\tName:\t"
    return Observation(instruction=instruction, screenshot=out.getvalue(), accessibility_tree=table)


def task_of(chosen: Chosen) -> Task:
    """The task that was given, or any."""
    return next(iter(load_tasks(chosen.tasks))) if chosen.tasks else Task(id="contract", instruction="Click the label.")


def decode(call: ToolRequest) -> Sequence[Action]:
    """A tool that takes anything."""
    return (ToolCall(name=call.name, arguments={}, call_id=call.id),)


def make(chosen: Chosen, model: Spoken, log: Log | None = None) -> Agent:
    """The agent of one attempt."""
    tools = (Tool(name="computer", description="Use it.", parameters={"type": "object", "properties": {}}),)
    context = AgentContext(
        model=model, tools=tools, decode=decode, log=log or Log(), task=task_of(chosen), screen=SCREEN, model_name="m"
    )
    agent: Agent = chosen.load()(context, chosen.settings())
    return agent


def test_its_model_can_be_asked(chosen: Chosen) -> None:
    """Its protocol is a kind of model, or none."""
    protocol = chosen.load().protocol
    assert protocol == NO_MODEL or load_plugin("model", protocol, ModelPlugin)


def test_its_task_is_taken_before_anything_starts(chosen: Chosen) -> None:
    """`check_task` refuses with an `InputError` and with nothing else; this one it takes."""
    chosen.load().check_task(task_of(chosen), chosen.settings(), SCREEN)


@pytest.mark.parametrize("said", _SAID, ids=range(len(_SAID)))
@awaited
async def test_whatever_its_model_says_it_decides_or_fails_as_an_agent(chosen: Chosen, said: Completion) -> None:
    """A decision holds actions; what cannot be read is the agent's failure, never a plain exception."""
    log = Log()
    agent = make(chosen, Spoken([said]), log)
    for seen in (observation(task_of(chosen).instruction), observation(), observation()):
        try:
            decision = await agent.act(seen)
        except DeskrollError as error:
            assert error.failure is FailureClass.AGENT
            return
        assert isinstance(decision, Decision)
        assert all(isinstance(each, Action) for each in decision.actions)
        if decision.completion is not None:
            assert decision.sent is not None, "nobody can build the request again"
            assert decision.sent.messages <= len(log.messages)


@awaited
async def test_a_failure_of_its_model_is_not_its_own(chosen: Chosen) -> None:
    """It passes through as it is: the attempt is made again."""
    if chosen.load().protocol == NO_MODEL:
        pytest.skip("it asks no model")
    with pytest.raises(ModelError, match="server is down"):
        await make(chosen, Spoken([], ModelError("the server is down"))).act(observation("Click."))


@awaited
async def test_it_can_be_cancelled(chosen: Chosen) -> None:
    """A cancellation is never swallowed."""
    acting = asyncio.ensure_future(make(chosen, Spoken([_SAID[0]])).act(observation("Click.")))
    await asyncio.sleep(0)
    if acting.done():
        return
    acting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await acting


@awaited
async def test_attempts_do_not_see_each_other(chosen: Chosen) -> None:
    """Two agents at a time have conversations of their own."""
    logs = Log(), Log()
    agents = [make(chosen, Spoken([_SAID[0]]), log) for log in logs]
    seen = [observation(f"Task number {number}.") for number in (1, 2)]
    await asyncio.gather(*(agent.act(each) for agent, each in zip(agents, seen, strict=True)), return_exceptions=True)
    for number, log in enumerate(logs, 1):
        assert f"Task number {3 - number}.".encode() not in b"".join(log.messages)
