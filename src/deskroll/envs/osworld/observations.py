"""The observations that deskroll brings along."""

from __future__ import annotations

from typing import ClassVar

from deskroll.desktops.base import StepResult
from deskroll.envs.osworld.elements import elements, marked_table
from deskroll.envs.osworld.marks import mark
from deskroll.envs.osworld.observation import ObservationType, Shown
from deskroll.envs.osworld.scaling import Scale


class Screenshot(ObservationType):
    """The screen."""


class A11yTree(ObservationType):
    """A table of what is on the screen."""

    screenshot: ClassVar[bool] = False
    tree: ClassVar[bool] = True


class ScreenshotA11yTree(ObservationType):
    """Both."""

    tree: ClassVar[bool] = True


class SetOfMarks(ObservationType):
    """The screen with numbered boxes around its elements, and a table of them."""

    tree: ClassVar[bool] = True
    marked: ClassVar[bool] = True

    def show(self, seen: StepResult, scale: Scale) -> Shown:
        """Boxes are drawn on the screen in its own size."""
        screen, found = seen.screenshot, elements(seen.tree or "")
        if seen.tree is None:
            return Shown(screenshot=screen, marks=())
        if screen is not None:
            screen, found = mark(screen, found)
        return Shown(screenshot=screen, text=marked_table(found), marks=tuple(each.centre for each in found))
