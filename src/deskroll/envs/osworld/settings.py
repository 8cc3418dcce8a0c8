"""Options of desktop tasks: the documented names, with their documented defaults."""

from __future__ import annotations

from pydantic import Field, ValidationInfo, field_validator, model_validator

from deskroll.desktops.base import HEIGHTS, WIDTHS
from deskroll.envs.answers import AnswerSettings

_OFFERED = {
    "action_space": ("computer_13",),
    "observation_type": ("screenshot", "a11y_tree", "screenshot_a11y_tree"),
    "os_type": ("Ubuntu",),
}


class OSWorldSettings(AnswerSettings):
    """What all tasks of a run share; a task cannot change these. Answers are compared where a task has no evaluator."""

    action_space: str = "computer_13"
    """How the agent writes its actions."""
    observation_type: str = "screenshot_a11y_tree"
    """What it is shown after each step."""
    screen_width: int = Field(default=1920, ge=WIDTHS[0], le=WIDTHS[1])
    """In pixels."""
    screen_height: int = Field(default=1080, ge=HEIGHTS[0], le=HEIGHTS[1])
    """In pixels."""
    require_a11y_tree: bool = True
    """Whether desktops are asked for their accessibility tree at all; if not, no observation holds one."""
    require_terminal: bool = False
    """Whether it is shown the text of the foremost terminal, too."""
    sleep_after_execution: float = Field(default=2.0, ge=0.0, le=60.0)
    """The longest wait for the screen to come to rest after actions, in seconds."""
    client_password: str = "password"  # noqa: S105  (OSWorld's own, for sudo inside the desktop)
    """The password of the desktop's user."""
    snapshot_name: str = ""
    """The state that desktops start from, for providers that have several."""
    os_type: str = "Ubuntu"
    """What the desktops run."""
    enable_recording: bool = False
    """Whether each attempt leaves a video of its desktop (`recording.mp4`)."""
    network: bool = False
    """Whether programs in the desktop reach the network."""

    @field_validator(*_OFFERED)
    @classmethod
    def _offered(cls, value: str, info: ValidationInfo) -> str:
        allowed = _OFFERED[info.field_name or ""]
        if value not in allowed:
            raise ValueError(f"this version has no {value!r}; allowed: {', '.join(allowed)}")
        return value

    @model_validator(mode="after")
    def _something_is_seen(self) -> OSWorldSettings:
        if self.observation_type == "a11y_tree" and not self.require_a11y_tree:
            raise ValueError("observation_type is 'a11y_tree' and require_a11y_tree is false: nothing would be seen")
        return self
