"""View: what an agent is shown of a desktop, by the run's settings, and what its tool calls mean on that picture."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from deskroll.actions import Action
from deskroll.desktops.base import Observe, StepResult
from deskroll.envs.osworld.action_space import action_space
from deskroll.envs.osworld.elements import sound
from deskroll.envs.osworld.observation import observation_type
from deskroll.envs.osworld.scaling import Scale
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.errors import ActionError, plain
from deskroll.types import Observation, Tool, ToolRequest


class View:
    """One attempt's view of its desktop."""

    def __init__(self, settings: OSWorldSettings, *, raw_tree: bool = False) -> None:
        space, kind = action_space(settings.action_space), observation_type(settings.observation_type)
        self._space = space(space.read_options(settings.action_space_options, "action_space_options"))
        self._kind = kind(kind.read_options(settings.observation_options, "observation_options"))
        self._raw_tree = raw_tree
        self._scale = Scale(
            screen=(settings.screen_width, settings.screen_height),
            shown=(settings.image_width or settings.screen_width, settings.image_height or settings.screen_height),
        )
        self._marks: list[tuple[int, int]] = []
        self.observe = Observe(
            screenshot=kind.screenshot,
            tree=kind.tree and settings.require_a11y_tree,
            shown_only=not raw_tree,
            terminal=settings.require_terminal,
        )

    @property
    def tool(self) -> Tool:
        """How the agent acts."""
        return self._space.offered(marked=self._kind.marked)

    async def show(self, seen: StepResult, results: Sequence[str] = ()) -> Observation:
        """The observation that a step's result amounts to."""
        self._marks = []  # those of the last screen are not those of this one
        observation, self._marks = await asyncio.to_thread(self._make, seen, tuple(results))
        return observation

    def _make(self, seen: StepResult, results: tuple[str, ...]) -> tuple[Observation, list[tuple[int, int]]]:
        shown = self._kind.show(seen, self._scale)
        raw = None
        if self._raw_tree and seen.tree is not None and sound(seen.tree):
            raw = self._scale.tree(seen.tree)
        observation = Observation(
            screenshot=None if shown.screenshot is None else self._scale.picture(shown.screenshot),
            accessibility_tree=shown.text,
            raw_tree=raw,
            terminal=seen.terminal,
            results=results,
        )
        return observation, [self._on_picture(*each) for each in shown.marks or ()]

    def decode(self, call: ToolRequest) -> Sequence[Action]:
        """The actions of a call, on the real screen."""
        if call.name != self.tool.name:
            raise ActionError(f"there is no tool {plain(call.name, 80)!r}; tools: {self.tool.name}")
        width, height = self._scale.shown
        marks = self._marks if self._kind.marked else None
        return tuple(self._scale.back(each) for each in self._space.decode(call, width, height, marks))

    def _on_picture(self, x: int, y: int) -> tuple[int, int]:
        """Where a point of the screen is on the picture that the agent sees."""
        places = zip((x, y), self._scale.screen, self._scale.shown, strict=True)
        left, top = (min(place * shown // real, shown - 1) for place, real, shown in places)
        return left, top
