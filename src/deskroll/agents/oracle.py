"""OracleAgent: plays what a task's file says, and asks no model: the reference solution, or a near miss by its name.

In a task's file, beside its other keys (a turn is one action in computer_13 notation, or a list of them):

    "solution": [{"action_type": "CLICK", "parameters": {"x": 10, "y": 20}}, "WAIT", ["TYPING", ...], "DONE"]
    "near_misses": {"wrong_cell": [...], "not_saved": [...]}

Guarantees: a solution that is not there, or holds what is no action, fails the attempt before anything is touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from deskroll.actions import Action, Answer, Done, Fail
from deskroll.actions.computer13 import decode
from deskroll.actions.pixels import Size
from deskroll.agents.base import ModelProtocol, Surroundings
from deskroll.config import Settings
from deskroll.errors import ActionError, AgentError
from deskroll.types import Decision, Observation, Task

SOLUTION = "solution"
NEAR_MISSES = "near_misses"


class OracleSettings(Settings):
    """Options of the oracle."""

    play: str = SOLUTION
    """What it plays: `solution`, or the name of one of the task's near misses."""


class OracleAgent:
    """Knows what to do."""

    Settings: ClassVar[type[OracleSettings]] = OracleSettings
    protocol: ClassVar[ModelProtocol] = "none"

    def __init__(self, surroundings: Surroundings, settings: OracleSettings) -> None:
        if surroundings.task is None:
            raise AgentError("the oracle plays a task's solution, and there is no task")
        self._turns = solution(surroundings.task, surroundings.require_screen("oracle"), settings.play)
        self._next = 0

    async def act(self, observation: Observation) -> Decision:
        """The next turn; after the last one, done."""
        if self._next == len(self._turns):
            return Decision(actions=(Done(),))
        self._next += 1
        return Decision(actions=self._turns[self._next - 1])


def solution(task: Task, screen: Size, play: str = SOLUTION) -> list[tuple[Action, ...]]:
    """The turns of a task's solution, or of one of its near misses; the last one ends the episode."""
    turns: list[tuple[Action, ...]] = []
    for n, turn in enumerate(_written(task, play)):
        where = f"task {task.id!r}: {play}[{n}]"
        actions = turn if isinstance(turn, list | tuple) else [turn]
        try:
            turns.append(tuple(_action(each, screen) for each in actions))
        except ActionError as error:
            raise AgentError(f"{where}: {error}") from None
    if not any(map(_ends, turns[-1:])):
        turns.append((Done(),))
    return turns


def _ends(turn: tuple[Action, ...]) -> bool:
    return any(isinstance(each, Done | Fail | Answer) for each in turn)


def _action(written: object, screen: Size) -> Action:
    """One of computer_13, or `{"action_type": "ANSWER", "parameters": {"text": ...}}`, which that notation lacks."""
    match written:
        case {"action_type": "ANSWER", "parameters": {"text": str(text)}}:
            return Answer(text)
    return decode(written, *screen)


def _written(task: Task, play: str) -> Sequence[object]:
    if play == SOLUTION:
        turns = task.metadata.get(SOLUTION)
        if isinstance(turns, str):  # the name of a near miss stands for it
            return _written(task, turns) if turns != SOLUTION else _refuse(task, play, turns)
    else:
        misses = task.metadata.get(NEAR_MISSES)
        named = misses if isinstance(misses, Mapping) else {}
        if play not in named:
            known = ", ".join(map(str, named)) or "none"
            raise AgentError(f"task {task.id!r} has no near miss {play!r}; it has: {known}")
        turns = named[play]
    if not isinstance(turns, list | tuple):
        return _refuse(task, play, turns)
    return turns


def _refuse(task: Task, play: str, turns: object) -> Sequence[object]:
    what = "is missing" if turns is None else "is no list of actions"
    raise AgentError(f"task {task.id!r}: {play} {what}; the oracle plays a list of actions in computer_13 notation")
