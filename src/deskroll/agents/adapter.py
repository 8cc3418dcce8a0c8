"""AdapterAgent: an agent class written for OSWorld, unchanged: `predict(instruction, obs)` and `reset()`.

    agent: adapter
    agent_options: {class: "mm_agents.agent:PromptAgent", model: gpt-4o, action_space: pyautogui}

What else stands in the options goes to the class as keyword arguments. Its actions may be pyautogui source, the words
WAIT, DONE and FAIL, computer_13 objects, or objects that hold source under `command` or `action`, as OSWorld's own
agents give them; points are pixels of the picture that it is shown. `obs` holds the accessibility tree as XML. It asks
its model by itself: tokens and costs are not known here, and what its model does is its own.

Guarantees: `predict` runs in a thread of its own, so that a slow one holds up nobody else; when the attempt is stopped
the thread is left alone and its answer dropped. The screen that it is shown first is kept, as all later ones are.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec
from pydantic import ConfigDict, Field

from deskroll.actions import WORDS, Action, computer13, pyautogui_code
from deskroll.actions.noting import noting
from deskroll.actions.pixels import Size
from deskroll.agents.base import NO_MODEL, Agent, AgentContext
from deskroll.config import Settings
from deskroll.errors import ActionError, AgentError, InputError, plain
from deskroll.registry import Registry
from deskroll.types import Decision, Observation

_log = logging.getLogger("desktopenv.agent")
_LONGEST_THOUGHT = 100_000
T = TypeVar("T")


class AdapterSettings(Settings):
    """Options of the adapter; all others are the class's own."""

    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=True)

    target: str = Field(alias="class", min_length=3)
    """Where the class is: `package.module:Class` or `FILE.py:Class`."""
    max_retries: int = Field(default=3, ge=0, le=100)
    """How often in a row a prediction that holds no usable action is made again."""


class AdapterAgent(Agent):
    """One attempt of somebody else's agent."""

    Settings: ClassVar[type[AdapterSettings]] = AdapterSettings
    protocol: ClassVar[str] = NO_MODEL
    reads_tree: ClassVar[bool] = True
    code_options: ClassVar[tuple[str, ...]] = ("class", "target")

    def __init__(self, context: AgentContext, settings: AdapterSettings) -> None:
        super().__init__(context, settings)
        self._screen = context.require_screen("adapter")
        self._agent: Any = None
        self._instruction = ""
        self._seen = Observation()
        """The last observation that showed anything."""
        self._useless = 0

    async def act(self, observation: Observation) -> Decision:
        """Ask it for its prediction."""
        if self._agent is None:
            self._instruction = observation.instruction
            if observation.screenshot:
                self.context.log.screen(observation.screenshot)  # the beginning: no step holds it
            self._agent = await in_thread(lambda: _made(self.settings), "the adapted agent")
        if observation.screenshot or observation.accessibility_tree or observation.terminal:
            self._seen = observation
        predicted = await in_thread(
            lambda: self._agent.predict(self._instruction, _obs(self._seen, self._instruction)), "the adapted agent"
        )
        try:
            response, given = _split(predicted)
            with noting() as notes:
                actions = self._actions(given)
        except ActionError as error:
            return self._again(str(error), predicted)
        if not actions:
            return self._again("predict gave no actions", predicted)
        self._useless = 0
        return Decision(actions=tuple(actions), thought=_thought(response), notes=tuple(notes))

    def _actions(self, given: Sequence[object]) -> list[Action]:
        """What a prediction means on the desktop: it was made on the picture that was shown last."""
        picture = self.context.picture(self._screen, self._seen.screenshot)
        return [picture.back(action) for each in given for action in read_action(each, picture.shown)]

    def _again(self, problem: str, predicted: object) -> Decision:
        self._useless += 1
        decision = Decision(thought=_thought(predicted), problem=problem)
        if self._useless <= self.settings.max_retries:
            return decision
        why = f"{self._useless} predictions in a row could not be used; the last one: {plain(problem)}"
        return msgspec.structs.replace(decision, gave_up=why)


def read_action(given: object, screen: Size) -> Sequence[Action]:
    """The actions that one of a prediction's items stands for."""
    match given:
        case str():
            if given.strip() in WORDS:
                return (WORDS[given.strip()](),)
            return pyautogui_code.decode(given, *screen)
        case {"command": str(source)} | {"action": str(source)}:
            return read_action(source, screen)
        case Mapping():
            return (computer13.decode(given, *screen),)
    raise ActionError(f"an action is a {type(given).__name__}; allowed: pyautogui source, a word, a computer_13 object")


async def in_thread(work: Callable[[], T], what: str) -> T:
    """Run it in a thread that nothing waits for: neither a pool of few threads, nor the end of the process."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def tell(setter: Callable[[Any], None], value: object) -> None:
        if not outcome.done():  # who asked may have been stopped
            setter(value)

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001  (whatever it is, who asked shall have it)
            told: tuple[Callable[[Any], None], object] = (outcome.set_exception, _sayable(error, what))
        else:
            told = (outcome.set_result, result)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there any more
            loop.call_soon_threadsafe(tell, *told)

    threading.Thread(target=run, name="adapted-agent", daemon=True).start()
    return await outcome


def _sayable(error: BaseException, what: str) -> Exception:
    """The error, where a future can carry it: StopIteration and exits cannot be."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    made = AgentError(f"{what}: {type(error).__name__}: {plain(str(error))}")
    made.unforeseen = error
    return made


def _made(settings: AdapterSettings) -> Any:
    """The agent, reset as OSWorld's runner resets it."""
    if ":" not in settings.target:
        raise InputError(f"agent_options.class is {settings.target!r}; write package.module:Class, or FILE.py:Class")
    kind: Any = Registry().load("agent", settings.target)
    if not callable(getattr(kind, "predict", None)):
        raise InputError(f"agent_options.class: {settings.target} has no method predict(instruction, obs)")
    agent = kind(**(settings.model_extra or {}))
    reset = getattr(agent, "reset", None)
    if callable(reset):
        wanted = inspect.signature(reset).parameters.values()
        places = [each for each in wanted if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        reset(*([_log] if places else []))
    return agent


def _obs(seen: Observation, instruction: str) -> dict[str, object]:
    return {
        "screenshot": seen.screenshot,
        "accessibility_tree": seen.accessibility_tree if seen.raw_tree is None else seen.raw_tree,
        "terminal": seen.terminal,
        "instruction": instruction,
    }


def _split(predicted: object) -> tuple[object, Sequence[object]]:
    """What `predict` returned: the response and the actions; some agents add more behind."""
    if not isinstance(predicted, tuple | list) or len(predicted) < 2:
        raise ActionError(f"predict gave a {type(predicted).__name__}; allowed: (response, actions)")
    response, actions = predicted[0], predicted[1]
    if isinstance(actions, str | Mapping):
        return response, [actions]
    if not isinstance(actions, list | tuple):
        raise ActionError(f"predict gave {type(actions).__name__} as its actions; allowed: a list")
    return response, actions


def _thought(response: object) -> str:
    text = response if isinstance(response, str) else "" if response is None else str(response)
    return text[:_LONGEST_THOUGHT].encode(errors="replace").decode()
