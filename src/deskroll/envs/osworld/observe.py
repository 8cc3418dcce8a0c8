"""View: what an agent is shown of a desktop, by the run's settings, and what its tool calls mean on that picture."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from deskroll.actions import Action
from deskroll.desktops.base import Observe, StepResult
from deskroll.envs.osworld.elements import Element, elements, marked_table, sound, table
from deskroll.envs.osworld.marks import marked
from deskroll.envs.osworld.scaling import Scale
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.envs.osworld.spaces import SPACES
from deskroll.errors import ActionError, plain
from deskroll.types import Observation, Tool, ToolRequest


class View:
    """One attempt's view of its desktop."""

    def __init__(self, settings: OSWorldSettings, *, raw_tree: bool = False) -> None:
        kind = settings.observation_type
        self._raw_tree = raw_tree
        self._marked = kind == "som"
        self._space = SPACES[settings.action_space]
        self._scale = Scale(
            screen=(settings.screen_width, settings.screen_height),
            shown=(settings.image_width or settings.screen_width, settings.image_height or settings.screen_height),
        )
        self._marks: list[tuple[int, int]] = []
        self.observe = Observe(
            screenshot=self._marked or "screenshot" in kind,
            tree=self._marked or ("a11y_tree" in kind and settings.require_a11y_tree),
            shown_only=not raw_tree,
            terminal=settings.require_terminal,
        )

    @property
    def tool(self) -> Tool:
        """How the agent acts."""
        return self._space.marked_tool if self._marked else self._space.tool

    async def shown(self, seen: StepResult, results: Sequence[str] = ()) -> Observation:
        """The observation that a step's result amounts to."""
        screen, tree, raw = seen.screenshot, None, None
        self._marks = []  # those of the last screen are not those of this one
        if seen.tree is not None:
            found = await asyncio.to_thread(elements, seen.tree)
            if self._marked:
                if screen is not None:
                    screen, found = await asyncio.to_thread(marked, screen, found)
                self._marks = [self._on_picture(each) for each in found]
            tree = marked_table(found) if self._marked else table(map(self._scale.element, found))
            if self._raw_tree and sound(seen.tree):
                raw = await asyncio.to_thread(self._scale.tree, seen.tree)
        if screen is not None:
            screen = await asyncio.to_thread(self._scale.picture, screen)
        return Observation(
            screenshot=screen,
            accessibility_tree=tree,
            raw_tree=raw,
            terminal=seen.terminal,
            results=tuple(results),
        )

    def decode(self, call: ToolRequest) -> Sequence[Action]:
        """The actions of a call, on the real screen."""
        if call.name != self._space.tool.name:
            raise ActionError(f"there is no tool {plain(call.name, 80)!r}; tools: {self._space.tool.name}")
        width, height = self._scale.shown
        marks = self._marks if self._marked else None
        return tuple(self._scale.back(each) for each in self._space.decode(call, width, height, marks))

    def _on_picture(self, element: Element) -> tuple[int, int]:
        """Where the middle of an element is on the picture that the agent sees."""
        places = zip(element.centre, self._scale.screen, self._scale.shown, strict=True)
        x, y = (min(place * shown // real, shown - 1) for place, real, shown in places)
        return x, y
