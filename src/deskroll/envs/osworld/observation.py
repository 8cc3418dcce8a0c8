"""ObservationType: what an agent is shown of a desktop after each step. The base of every such kind.

It is a setting of the run (`env_options.observation_type`). A kind says what a desktop is asked for and what is made of
that; scaling the picture, and what marks on it mean in a call, is the same for all (`observe.py`).
"""

from __future__ import annotations

from typing import Any, ClassVar

from deskroll.desktops.base import StepResult
from deskroll.envs.osworld.elements import elements, table
from deskroll.envs.osworld.scaling import Scale
from deskroll.plugins import Plugin, load_plugin
from deskroll.types import Record


class Shown(Record, frozen=True):
    """What an agent is shown."""

    screenshot: bytes | None = None
    """In the screen's own size."""
    text: str | None = None
    """What stands beside it: a table of what is on the screen, by default."""
    marks: tuple[tuple[int, int], ...] | None = None
    """The places on the screen that calls may name by their number, from 1 on; None: there are none."""


class ObservationType(Plugin):
    """One way to see a desktop."""

    screenshot: ClassVar[bool] = True
    """Whether the desktop is asked for its screen."""
    tree: ClassVar[bool] = False
    """Whether it is asked for its accessibility tree."""
    marked: ClassVar[bool] = False
    """Whether elements are marked, so that calls may name them."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    @classmethod
    def is_blind_without_tree(cls) -> bool:
        """Whether nothing useful is seen where desktops are not asked for their tree."""
        return cls.tree and (cls.marked or not cls.screenshot)

    def show(self, seen: StepResult, scale: Scale) -> Shown:
        """What to show of what was seen; called in a thread of its own. `scale` leads to the picture's size."""
        text = None if seen.tree is None else table(map(scale.element, elements(seen.tree)))
        return Shown(screenshot=seen.screenshot, text=text)


def observation_type(name: str) -> type[ObservationType]:
    """The kind of observation of that name."""
    return load_plugin("observation", name, ObservationType)
