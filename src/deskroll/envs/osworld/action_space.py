"""ActionSpace: what a model is told of the computer, and how its calls become actions. The base of every such kind.

A space is a setting of the run (`env_options.action_space`), the same for all of its tasks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from deskroll.actions import Action
from deskroll.envs.osworld.tags import Marks
from deskroll.errors import ActionError
from deskroll.plugins import Plugin, load_plugin
from deskroll.types import Tool, ToolRequest


class ActionSpace(Plugin):
    """One way to act on a desktop."""

    tool: ClassVar[Tool]
    """What the model is told."""
    marked_tool: ClassVar[Tool | None] = None
    """What it is told where elements are marked on the screen; None: the same."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    @abstractmethod
    def actions(self, arguments: Mapping[str, Any], width: int, height: int, marks: Marks | None) -> Sequence[Action]:
        """The actions of a call with these arguments, on a picture of that size; `ActionError` says what is wrong.

        `marks` are the places of the marked elements on it, the first of them number 1; None: nothing is marked.
        """

    def offered(self, *, marked: bool) -> Tool:
        """What the model is told."""
        return (self.marked_tool or self.tool) if marked else self.tool

    def decode(self, call: ToolRequest, width: int, height: int, marks: Marks | None = None) -> Sequence[Action]:
        """The actions of a call as a model made it; `ActionError` says what is wrong with it, for the model to read."""
        try:
            arguments: Any = msgspec.json.decode(call.arguments)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ActionError(f"{call.name}: the arguments are not valid JSON: {error}") from None
        if not isinstance(arguments, dict):
            raise ActionError(f"{call.name}: the arguments are not an object; see the tool's parameters")
        return self.actions(arguments, width, height, marks)


def action_space(name: str) -> type[ActionSpace]:
    """The action space of that name."""
    return load_plugin("action_space", name, ActionSpace)
