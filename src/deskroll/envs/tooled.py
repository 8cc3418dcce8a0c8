"""ToolEnv: an environment that is a set of tools and a question, without a desktop.

Owns calling tools in order, one result for each call. A tool that fails is a result which says so, never the end of the
episode, unless the machine failed it: an error that carries such a failure class passes through. The episode ends with
an `Answer`, and the answer is compared with the task's own by the run's metric.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from deskroll.actions import Action, Answer, ToolCall
from deskroll.envs.answers import AnswerSettings, judge_answer
from deskroll.envs.base import STOPS, Ending, Env, EnvContext, TurnResult, decode_call
from deskroll.errors import DeskrollError, FailureClass, InputError, plain
from deskroll.types import Observation, Record, Score, Task, Tool, ToolRequest

LONGEST_RESULT = 20_000
"""Characters of a tool's result that an agent is shown."""


class ToolFunction:
    """One tool: what the model is told, the record of its arguments, and what runs."""

    def __init__(self, name: str, description: str, arguments: type[Record], run: Callable[[Any], Awaitable[str]]):
        schema = msgspec.json.schema(arguments)
        body = schema["$defs"][arguments.__name__] if "$defs" in schema else schema
        self.tool = Tool(name=name, description=description, parameters=body)
        self.arguments = arguments
        self._run = run

    async def __call__(self, call: ToolCall) -> str:
        """Run it; what it raises for the model to read is its result, and anything else is a bug of its own."""
        try:
            arguments = msgspec.convert(call.arguments, self.arguments)
            return plain(await self._run(arguments), LONGEST_RESULT, keep="\n\t")
        except DeskrollError as error:
            if error.failure not in (None, FailureClass.AGENT):
                raise
            return f"error: {type(error).__name__}: {plain(str(error))}"


class ToolSettings(AnswerSettings):
    """Options of environments without a desktop."""


def refuse_desktop_parts(task: Task) -> None:
    """Refuse a task that was written for a desktop: it would be run without its set-up, and judged by its answer."""
    for name, part in (("config (set-up steps)", task.setup), ("evaluator", task.evaluator)):
        if part:
            raise InputError(f"it has {name}, which is for desktops; run it with env osworld")


class ToolEnv(Env):
    """A question and tools to answer it with. Kinds of it say which tools."""

    Settings: ClassVar[type[ToolSettings]] = ToolSettings

    def __init__(self, task: Task, settings: ToolSettings, context: EnvContext | None = None) -> None:
        super().__init__(task, settings, context or EnvContext())
        self._functions = self.functions()

    def functions(self) -> Mapping[str, ToolFunction]:
        """The tools of this kind, by name."""
        return {}

    @classmethod
    def offered(cls, settings: ToolSettings) -> Sequence[Tool]:
        """Its functions."""
        return cls(Task(id="none", instruction=""), settings).tools

    @classmethod
    def check_task(cls, task: Task) -> None:
        """Any question will do, with nothing that belongs to a desktop; one without an answer is not scored."""
        refuse_desktop_parts(task)
        if env_config := task.metadata.get("env_config"):
            raise InputError(f"env_config is {env_config!r}, and this environment has nothing that a task may set")

    @classmethod
    def is_judged(cls, task: Task) -> bool:
        """By its answer; a kind that scores in a way of its own needs none."""
        return cls.score is not ToolEnv.score or task.answer is not None

    @property
    def tools(self) -> Sequence[Tool]:
        """What the agent can call."""
        return [each.tool for each in self._functions.values()]

    async def reset(self) -> Observation:
        """The question."""
        return Observation(instruction=self.task.instruction)

    def decode(self, call: ToolRequest) -> Sequence[Action]:
        """Check a call."""
        return (decode_call(call, {name: each.arguments for name, each in self._functions.items()}),)

    async def step(self, actions: Sequence[Action]) -> TurnResult:
        """Run the calls in order; an answer ends the episode."""
        results: list[str] = []
        for action in actions:
            if (stop := STOPS.get(type(action))) is not None:
                answer = action.text if isinstance(action, Answer) else None
                return TurnResult(observation=Observation(results=tuple(results)), stop=stop, answer=answer)
            if isinstance(action, ToolCall):
                results.append(await self._functions[action.name](action))
            else:
                results.append(f"error: {action.__struct_config__.tag} needs a desktop, and there is none")
        return TurnResult(observation=Observation(results=tuple(results)))

    async def score(self, ending: Ending) -> Score:
        """Compare the answer with the reference."""
        return await judge_answer(self.task, ending.answer, self.settings, self.context.judge)
