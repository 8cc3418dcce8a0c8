"""Options of desktop tasks: the documented names, with their documented defaults."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from deskroll.config import Settings
from deskroll.desktops.base import HEIGHTS, WIDTHS


class OSWorldSettings(Settings):
    """What all tasks of a run share; a task cannot change these."""

    action_space: Literal["computer_13"] = "computer_13"
    """How the agent writes its actions."""
    observation_type: Literal["screenshot", "a11y_tree", "screenshot_a11y_tree"] = "screenshot_a11y_tree"
    """What it is shown after each step."""
    screen_width: int = Field(default=1920, ge=WIDTHS[0], le=WIDTHS[1])
    """In pixels."""
    screen_height: int = Field(default=1080, ge=HEIGHTS[0], le=HEIGHTS[1])
    """In pixels."""
    require_terminal: bool = False
    """Whether it is shown the text of the foremost terminal, too."""
    sleep_after_execution: float = Field(default=2.0, ge=0.0, le=60.0)
    """The longest wait for the screen to come to rest after actions, in seconds."""
    client_password: str = "password"  # noqa: S105  (OSWorld's own, for sudo inside the desktop)
    """The password of the desktop's user."""
    snapshot_name: str = ""
    """The state that desktops start from, for providers that have several."""
    network: bool = False
    """Whether programs in the desktop reach the network."""
