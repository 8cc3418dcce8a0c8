"""What every action space must do. A call that it must understand with `--plugin-example`, e.g. '{"code": "..."}'."""

from __future__ import annotations

import msgspec
import pytest

from deskroll.actions import Action
from deskroll.envs.osworld.action_space import ActionSpace
from deskroll.errors import ActionError
from deskroll.testing import Chosen
from deskroll.types import Tool, ToolRequest

_MARKS = [(10, 20), (30, 40)]
_VALUES: tuple[object, ...] = ("", "x", -1, 10**12, 1.5, None, True, [], [1, 2], {}, {"x": 1}, "\x00", "9" * 400)


def make(chosen: Chosen) -> ActionSpace:
    """The action space."""
    space: ActionSpace = chosen.load()(chosen.settings())
    return space


def call(space: ActionSpace, arguments: object) -> ToolRequest:
    """A call of its tool."""
    written = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return ToolRequest(id="c", name=space.tool.name, arguments=written)


def test_a_model_is_told_how_to_act(chosen: Chosen) -> None:
    """One tool with a schema; with marks it has the same name."""
    space = make(chosen)
    for tool in (space.offered(marked=False), space.offered(marked=True)):
        assert isinstance(tool, Tool)
        assert tool.name == space.tool.name
        assert tool.description
        assert tool.parameters["type"] == "object"


def test_the_example_is_understood(chosen: Chosen) -> None:
    """It becomes actions that can be stored and performed."""
    if chosen.example is None:
        pytest.skip("no --plugin-example was given")
    space = make(chosen)
    actions = list(space.decode(call(space, chosen.example), 640, 480))
    assert actions
    for action in actions:
        assert msgspec.json.decode(msgspec.json.encode(action), type=Action) == action


@pytest.mark.parametrize("written", ["", "{", "null", "[]", '"x"', "[" * 5000], ids=range(6))
def test_arguments_that_are_no_object_are_told_to_the_model(chosen: Chosen, written: str) -> None:
    """By an `ActionError`."""
    space = make(chosen)
    with pytest.raises(ActionError):
        space.decode(call(space, written), 640, 480)


def test_whatever_stands_in_the_arguments_is_actions_or_an_error(chosen: Chosen) -> None:
    """For each of its parameters, and for marks: never a plain exception, and no point off the screen."""
    space = make(chosen)
    names = [*space.offered(marked=True).parameters.get("properties", {}), "no_such_parameter"]
    for marks in (None, [], _MARKS):
        for name in names:
            for value in _VALUES:
                try:
                    actions = list(space.decode(call(space, {name: value}), 640, 480, marks))
                except ActionError as error:
                    assert str(error)
                else:
                    assert all(isinstance(each, Action) for each in actions)
