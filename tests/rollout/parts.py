"""Environments and agents of the tests' own, named by their path: they fail, hang and crash on purpose."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar
from weakref import WeakKeyDictionary

from deskroll.actions import Action, Answer
from deskroll.agents.base import NO_MODEL, Agent
from deskroll.agents.chat import ChatAgent
from deskroll.envs.base import Ending, EnvContext, TurnResult
from deskroll.envs.math import MathEnv
from deskroll.envs.osworld.env import OSWorldEnv
from deskroll.envs.tooled import ToolSettings
from deskroll.errors import DeathCause, DesktopLost, DesktopTimeout, ModelError, SetupError
from deskroll.types import Decision, Observation, Score, Task, Tool, ToolRequest


def _crash(task: Task) -> None:
    """As the task's metadata says: `{"crash": "exit"|"hang"|"memory", "once": FILE}`."""
    how, once = task.metadata.get("crash"), task.metadata.get("once")
    if how is None:
        return
    if once is not None:
        try:
            Path(once).touch(exist_ok=False)
        except FileExistsError:
            return
    if how == "exit":
        os._exit(3)
    elif how == "signal":
        os.kill(os.getpid(), 40)  # one for real time, which has no name
    elif how == "hang":
        time.sleep(3600)
    elif how == "memory":
        _EATEN.append(bytearray(os.urandom(1 << 20)) * 500)
        time.sleep(3600)


_EATEN: list[bytearray] = []


class CrashingEnv(MathEnv):
    """Takes its process with it."""

    async def reset(self) -> Observation:
        _crash(self.task)
        return await super().reset()


class FailingEnv(MathEnv):
    """Fails where the task's metadata says: `{"fails": "setup"|"step"|"score"|"desktop"|..., "times": FILE}`."""

    def __init__(self, task: Task, settings: ToolSettings, means: EnvContext | None = None) -> None:
        super().__init__(task, settings, means)
        self._fails = task.metadata.get("fails")

    async def reset(self) -> Observation:
        if self._fails == "setup":
            raise SetupError("the file is not there")
        if self._fails == "bug":
            raise ValueError("the environment's own bug")
        if self._fails == "slow setup":
            await asyncio.sleep(3600)
        return await super().reset()

    async def step(self, actions: Sequence[Action]) -> TurnResult:
        if self._fails == "desktop":
            raise DesktopLost("desktop x is gone")
        if self._fails == "wedged":
            raise DesktopTimeout("desktop x did not answer")
        if self._fails == "slow step":
            await asyncio.sleep(3600)
        return await super().step(actions)

    async def score(self, ending: Ending) -> Score:
        if self._fails == "score":
            raise KeyError("no such metric")
        if self._fails == "slow score":
            await asyncio.sleep(3600)
        return await super().score(ending)


class DyingEnv(OSWorldEnv):
    """Its desktop dies at the agent's first action, of what was done in it or what the task says: `{"cause": ...}`.

    `{"together": N}`: when the desktops of N such tasks are to die, all of them do.
    """

    _together: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Barrier]] = WeakKeyDictionary()

    async def step(self, actions: Sequence[Action]) -> TurnResult:
        if many := self.task.metadata.get("together"):
            await self._together.setdefault(asyncio.get_running_loop(), asyncio.Barrier(int(many))).wait()
        cause = DeathCause(self.task.metadata.get("cause", "inside"))
        raise DesktopLost(f"desktop {self._desktop.id} is gone", cause)


class BuggyDesktopEnv(OSWorldEnv):
    """Stumbles at the agent's first action, as only its own code can."""

    async def step(self, actions: Sequence[Action]) -> TurnResult:
        raise IndexError("the environment's own bug")


class OddEnv(MathEnv):
    """Does what no environment should, as the task's metadata says: `{"odd": ...}`."""

    @property
    def tools(self) -> Sequence[Tool]:
        if self.task.metadata.get("odd") == "tools":
            raise KeyError("the environment's own bug")
        return super().tools

    def decode(self, call: ToolRequest) -> Sequence[Action]:
        if self.task.metadata.get("odd") == "decode":
            raise KeyError("the environment's own bug")
        return super().decode(call)

    async def score(self, ending: Ending) -> Score:
        match self.task.metadata.get("odd"):
            case "nan":
                return Score(value=math.nan, reason="not a number")
            case "float":
                return 1.0  # type: ignore[return-value]
        return await super().score(ending)

    async def close(self) -> None:
        if self.task.metadata.get("odd") == "close":
            raise KeyError("it cannot be closed")


async def await_something_cancelled() -> None:
    """What a library does whose own inner task was cancelled."""
    inner = asyncio.ensure_future(asyncio.sleep(3600))
    inner.cancel()
    await inner


class LeakyEnv(MathEnv):
    """Lets a cancellation that nobody has sent escape, where the task's metadata says: `{"leaks": "setup"|...}`."""

    async def reset(self) -> Observation:
        await self._leak("setup")
        return await super().reset()

    async def step(self, actions: Sequence[Action]) -> TurnResult:
        await self._leak("step")
        return await super().step(actions)

    async def score(self, ending: Ending) -> Score:
        await self._leak("score")
        return await super().score(ending)

    async def close(self) -> None:
        await self._leak("close")

    async def _leak(self, where: str) -> None:
        if self.task.metadata.get("leaks") == where:
            await await_something_cancelled()


class ClingingEnv(MathEnv):
    """Cannot let go."""

    closing: ClassVar[int] = 0

    async def close(self) -> None:
        type(self).closing += 1
        await asyncio.sleep(3600)


class TalkativeEnv(MathEnv):
    """Prints more than is kept, and is prepared if the file is short after that: also with one more line in it."""

    async def reset(self) -> Observation:
        os.write(2, b"x" * 2**20 * 17)
        deadline = time.monotonic() + 30.0
        while os.fstat(2).st_size and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        os.write(2, b"one more line\n")
        if os.fstat(2).st_size > 1000:
            raise ValueError(f"what was printed takes {os.fstat(2).st_size} bytes")
        return await super().reset()


class WarningEnv(MathEnv):
    """Says something at once, and takes its time then."""

    async def reset(self) -> Observation:
        logging.getLogger("deskroll.here").warning("it begins")
        await asyncio.sleep(5)
        return await super().reset()


class LeavingEnv(MathEnv):
    """Raises what Ctrl-C raises, when it is closed."""

    async def close(self) -> None:
        raise KeyboardInterrupt


class AnsweringAgent(Agent):
    """Needs no model."""

    async def act(self, observation: Observation) -> Decision:
        return Decision(actions=(Answer(text="42"),))


class MemberAgent(AnsweringAgent):
    """Does what the task's metadata says for its sample: `{"plays": [...]}`; an answer, or one of these.

    `hang`, `crash`; `model`: the server fails, `model FILE`: once; `wait FILE`: the answer is 42 once FILE is there.
    """

    protocol: ClassVar[str] = NO_MODEL

    async def act(self, observation: Observation) -> Decision:
        task, sample = self.context.task, self.context.sample
        assert task is not None
        what, _, file = str(task.metadata["plays"][sample]).partition(" ")
        if what == "hang":
            await asyncio.sleep(3600)
        elif what == "crash":
            os._exit(3)
        elif what == "model":
            if not file or not Path(file).exists():
                if file:
                    Path(file).touch()
                raise ModelError("nobody answers")
            what = "42"
        elif what == "wait":
            while not Path(file).exists():
                await asyncio.sleep(0.01)
            what = "42"
        return Decision(actions=(Answer(text=what),))


class BrokenAgent(AnsweringAgent):
    """Its own code fails."""

    async def act(self, observation: Observation) -> Decision:
        raise ZeroDivisionError("division by zero")


class SlowAgent(AnsweringAgent):
    """Asks no model, and takes its time."""

    protocol: ClassVar[str] = NO_MODEL

    async def act(self, observation: Observation) -> Decision:
        await asyncio.sleep(3600)
        raise AssertionError("it never comes here")


class PonderingAgent(ChatAgent):
    """Its model answers at once; what it makes of that takes its time."""

    async def act(self, observation: Observation) -> Decision:
        await super().act(observation)
        await asyncio.sleep(3600)
        raise AssertionError("it never comes here")


class HesitantAgent(ChatAgent):
    """Gives up waiting for its model soon, and takes its time then."""

    async def act(self, observation: Observation) -> Decision:
        with suppress(TimeoutError):
            await asyncio.wait_for(super().act(observation), 0.01)
        await asyncio.sleep(3600)
        raise AssertionError("it never comes here")


class LeakyAgent(AnsweringAgent):
    """Lets a cancellation that nobody has sent escape."""

    async def act(self, observation: Observation) -> Decision:
        await await_something_cancelled()
        raise AssertionError("it never comes here")


class SelfCancellingAgent(AnsweringAgent):
    """Cancels the very task that runs it, as nobody should."""

    async def act(self, observation: Observation) -> Decision:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(3600)
        raise AssertionError("it never comes here")


class WrappingAgent(AnsweringAgent):
    """Makes an error of its own of whatever ends its request, also of being stopped."""

    async def act(self, observation: Observation) -> Decision:
        try:
            await asyncio.sleep(3600)
        except BaseException as error:
            raise RuntimeError("the request failed") from error
        raise AssertionError("it never comes here")


class StubbornAgent(AnsweringAgent):
    """Answers all the same when it is stopped."""

    async def act(self, observation: Observation) -> Decision:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        return await super().act(observation)


class ImpatientAgent(ChatAgent):
    """Asks its model again and again, and never waits for long."""

    async def act(self, observation: Observation) -> Decision:
        while True:
            with suppress(TimeoutError):
                return await asyncio.wait_for(super().act(observation), 0.1)


class LeavingAgent(AnsweringAgent):
    """Wants to end the whole program."""

    async def act(self, observation: Observation) -> Decision:
        sys.exit(3)


class InterruptingAgent(AnsweringAgent):
    """Raises what Ctrl-C raises."""

    async def act(self, observation: Observation) -> Decision:
        raise KeyboardInterrupt


class IdleAgent(AnsweringAgent):
    """Decides nothing, without awaiting anything."""

    async def act(self, observation: Observation) -> Decision:
        return Decision()


class PuzzledAgent(AnsweringAgent):
    """Never understands its model."""

    async def act(self, observation: Observation) -> Decision:
        return Decision(problem="what the model said could not be used")


class WordyAgent(AnsweringAgent):
    """Takes a word for an action."""

    async def act(self, observation: Observation) -> Decision:
        return Decision(actions=("click",))  # type: ignore[arg-type]


class SilentAgent(AnsweringAgent):
    """Gives no decision."""

    async def act(self, observation: Observation) -> Decision:
        return None  # type: ignore[return-value]


class BabblingAgent(AnsweringAgent):
    """Says half a character, which no file can hold."""

    async def act(self, observation: Observation) -> Decision:
        return Decision(actions=(Answer(text="\ud800"),))


class ForsakenAgent(AnsweringAgent):
    """Its model fails."""

    async def act(self, observation: Observation) -> Decision:
        raise ModelError("the model is gone")


class CountingEnv(MathEnv):
    """Counts how many are live at a time, in this process."""

    live: ClassVar[int] = 0
    most: ClassVar[int] = 0

    async def reset(self) -> Observation:
        kind = type(self)
        kind.live += 1
        kind.most = max(kind.most, kind.live)
        await asyncio.sleep(0.02)
        return await super().reset()

    async def close(self) -> None:
        type(self).live -= 1
