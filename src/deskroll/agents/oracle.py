"""OracleAgent: plays what a task's file says, and asks no model: the reference solution, or a near miss by its name.

In a task's file, beside its other keys, a list of turns. A turn is an action in computer_13 notation, a list of them,
or something to wait for; an action may say on which element it is instead of where (`targets`):

    "solution": [{"action_type": "CLICK", "parameters": {"on": {"tag": "push-button", "name": "Save"}}},
                 {"wait_for": {"tag": "entry", "name": "Name"}}, {"wait_until_gone": {"name": "Save"}},
                 [{"action_type": "TYPING", "text": "a.txt"}, {"action_type": "PRESS", "key": "enter"}], "DONE"]
    "near_misses": {"wrong_cell": [...], "not_saved": [...]}

Guarantees: a solution that is not there, or holds what is no action, fails the attempt before anything is touched. What
it looks for, it looks for in what every agent is shown, again and again for `patience` seconds; what never comes fails
the attempt, with its name.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import msgspec
from pydantic import Field

from deskroll.actions import Action, Answer, Done, Wait
from deskroll.actions.computer13 import decode
from deskroll.actions.noting import noting
from deskroll.actions.pixels import Picture, Size
from deskroll.agents.base import NO_MODEL, Agent, AgentContext
from deskroll.agents.targets import Target
from deskroll.config import Settings
from deskroll.errors import ActionError, AgentError, InputError
from deskroll.types import Decision, Observation, Record, Task

SOLUTION = "solution"
NEAR_MISS = "near_miss"
NEAR_MISSES = "near_misses"
_ANY_SCREEN: Size = (7680, 4320)
_FIRST_LOOK_S, _LAST_LOOK_S = 0.1, 5.0
"""Between two looks for the same element; each is twice as long after the one before. Every look is a turn, of which an
attempt has few (`limits.max_turns`): this way a minute of patience takes 18."""


class OracleSettings(Settings):
    """Options of the oracle."""

    play: str = SOLUTION
    """What it plays: `solution`, `near_miss` (each task's first), or the name of one of the task's near misses."""
    patience: float = Field(default=60.0, gt=0.0, le=3600.0)
    """How long it looks for an element, in seconds."""


class Turn(Record, frozen=True, forbid_unknown_fields=True):
    """One turn as it is written: actions, of which some still want their place, or something to wait for."""

    actions: tuple[object, ...] = ()
    wait_for: Target | None = None
    wait_until_gone: Target | None = None

    @property
    def targets(self) -> list[Target]:
        """What must be on the screen before it is played."""
        wanted = [_on(each) for each in self.actions] + [self.wait_for]
        return [each for each in wanted if each is not None]


class OracleAgent(Agent):
    """Knows what to do."""

    Settings: ClassVar[type[OracleSettings]] = OracleSettings
    protocol: ClassVar[str] = NO_MODEL

    def __init__(self, context: AgentContext, settings: OracleSettings) -> None:
        super().__init__(context, settings)
        if context.task is None:
            raise AgentError("the oracle plays a task's solution, and there is no task")
        self._screen = context.require_screen("oracle")
        self._where = f"task {context.task.id!r}: {settings.play}"
        self._turns = solution(context.task, self._screen, settings.play)
        self._next = 0
        self._looking_since: float | None = None
        self._look_s = _FIRST_LOOK_S

    @staticmethod
    def check_task(task: Task, settings: OracleSettings, screen: Size | None) -> None:
        """Refuse a task without a solution, or with one that cannot be played."""
        try:
            solution(task, screen or _ANY_SCREEN, settings.play)
        except AgentError as error:
            raise InputError(str(error)) from None

    async def act(self, observation: Observation) -> Decision:
        """The next turn, as soon as what it needs is there; after the last one, done."""
        while self._next < len(self._turns):
            turn = self._turns[self._next]
            seen = _Seen(observation.accessibility_tree, self.context.picture(self._screen, observation.screenshot))
            if (lacking := self._lacking(turn, seen)) is not None:
                return Decision(actions=(Wait(self._pause(lacking)),), thought=lacking)
            self._next += 1
            self._looking_since, self._look_s = None, _FIRST_LOOK_S
            if turn.actions:
                return Decision(actions=tuple(_action(each, self._screen, seen) for each in turn.actions))
        return Decision(actions=(Done(),))

    def _lacking(self, turn: Turn, seen: _Seen) -> str | None:
        """What must change on the screen before the turn can be played; None where it can."""
        gone = turn.wait_until_gone
        if not turn.targets and gone is None:
            return None
        if seen.table is None:
            raise AgentError(
                f"{self._where}[{self._next}] looks for an element, and observations hold no accessibility tree; "
                f"set observation_type to screenshot_a11y_tree"
            )
        for target in turn.targets:
            if seen.pixel(target) is None:
                return f"no element {target} is on the screen"
        still = gone is not None and gone.found(seen.table) is not None
        return f"an element {gone} is still on the screen" if still else None

    def _pause(self, lacking: str) -> float:
        now = time.monotonic()
        self._looking_since = self._looking_since or now
        if now - self._looking_since > self.settings.patience:
            raise AgentError(f"{self._where}[{self._next}]: {lacking} after {self.settings.patience:g} s")
        pause, self._look_s = self._look_s, min(self._look_s * 2, _LAST_LOOK_S)
        return pause


class _Seen(NamedTuple):
    """What is shown, by the pixels of the real screen."""

    table: str | None
    picture: Picture

    def pixel(self, target: Target) -> Size | None:
        """Where a target is; None where it is not there, or the point to act on lies beyond the edge."""
        point = target.found(self.table or "")
        try:
            return None if point is None else self.picture.pixel(*point)
        except ActionError:
            return None


def solution(task: Task, screen: Size, play: str = SOLUTION) -> list[Turn]:
    """The turns of a task's solution, or of one of its near misses; the oracle is done after the last one."""
    return [_turn(written, screen, f"task {task.id!r}: {play}[{n}]") for n, written in enumerate(_written(task, play))]


def _turn(written: object, screen: Size, where: str) -> Turn:
    try:
        if isinstance(written, Mapping) and ("wait_for" in written or "wait_until_gone" in written):
            return msgspec.convert(written, Turn)
        turn = Turn(actions=tuple(written) if isinstance(written, list | tuple) else (written,))
        for each in turn.actions:
            _on(each)
            _action(each, screen, None)
    except (ActionError, msgspec.ValidationError) as error:
        raise AgentError(f"{where}: {error}") from None
    return turn


def _on(written: object) -> Target | None:
    """The element that an action is on, where it names one."""
    match written:
        case {"parameters": {"on": on}} | {"on": on}:
            return msgspec.convert(on, Target)
    return None


def _action(written: object, screen: Size, seen: _Seen | None) -> Action:
    """One of computer_13, on its element (unseen: in the corner), or ANSWER, which that notation lacks."""
    match written:
        case {"action_type": "ANSWER", "parameters": {"text": str(text)}}:
            return Answer(text)
    target = _on(written)
    if target is None or not isinstance(written, Mapping):
        return _exact(written, screen)
    x, y = (seen.pixel(target) if seen is not None else None) or (0, 0)
    inner = written.get("parameters")
    given = dict(inner) if isinstance(inner, Mapping) else {k: v for k, v in written.items() if k != "action_type"}
    given.pop("on")
    return _exact({"action_type": written.get("action_type"), "parameters": {**given, "x": x, "y": y}}, screen)


def _exact(written: object, screen: Size) -> Action:
    """The action, just as it is written: who writes a solution is told what a model is let off."""
    with noting() as notes:
        action = decode(written, *screen)
    if notes:
        raise ActionError(notes[0])
    return action


def _written(task: Task, play: str) -> Sequence[object]:
    if play == SOLUTION:
        turns = task.metadata.get(SOLUTION)
    else:
        misses = task.metadata.get(NEAR_MISSES)
        named = misses if isinstance(misses, Mapping) else {}
        name = next(iter(named), play) if play == NEAR_MISS and play not in named else play
        if name not in named:
            known = ", ".join(map(str, named)) or "none"
            which = "near miss" if play == NEAR_MISS else f"near miss {name!r}"
            raise AgentError(f"task {task.id!r} has no {which}; it has: {known}")
        turns = named[name]
    if not isinstance(turns, list | tuple):
        what = "is missing" if turns is None else "is not a list of actions"
        raise AgentError(f"task {task.id!r}: {play} {what}; the oracle plays a list of actions in computer_13 notation")
    return turns
