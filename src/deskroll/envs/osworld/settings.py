"""Options of desktop tasks: the documented names, with their documented defaults."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, JsonValue, ValidationInfo, field_validator, model_validator

from deskroll.desktops.base import HEIGHTS, WIDTHS
from deskroll.envs.answers import AnswerSettings
from deskroll.envs.osworld.action_space import action_space
from deskroll.envs.osworld.observation import observation_type
from deskroll.errors import InputError
from deskroll.host.home import expand_home

_SYSTEMS = ("Ubuntu",)


class OSWorldSettings(AnswerSettings):
    """What all tasks of a run share; a task cannot change these. Answers are compared where a task has no evaluator."""

    action_space: str = "computer_13"
    """How the agent writes its actions: `computer_13`, `pyautogui`, `claude_computer_use`, or a plug-in."""
    action_space_options: dict[str, JsonValue] = Field(default_factory=dict)
    """Options of the action space, where it has such."""
    observation_type: str = "screenshot_a11y_tree"
    """What it is shown after each step: `screenshot`, `a11y_tree`, `screenshot_a11y_tree`, `som`, or a plug-in."""
    observation_options: dict[str, JsonValue] = Field(default_factory=dict)
    """Options of the observation, where it has such."""
    screen_width: int = Field(default=1920, ge=WIDTHS[0], le=WIDTHS[1])
    """In pixels."""
    screen_height: int = Field(default=1080, ge=HEIGHTS[0], le=HEIGHTS[1])
    """In pixels."""
    image_width: int | None = Field(default=None, ge=16, le=WIDTHS[1])
    """The width of the picture that the agent is shown; none: the screen's. Its coordinates are mapped back."""
    image_height: int | None = Field(default=None, ge=16, le=HEIGHTS[1])
    """The height of that picture."""
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
    recording_fps: int = Field(default=5, ge=1, le=30)
    """How often a second the video looks at the screen; what has not changed costs nothing in it."""
    evaluators: Literal["auto", "native", "upstream"] = "auto"
    """Whose code judges, where both have it: OSWorld's own (`deskroll osworld install`) for tasks of OSWorld's and
    deskroll's for all others; or one of them for all."""
    network: bool = False
    """Whether programs in the desktop reach the network."""
    enable_proxy: bool = False
    """Whether tasks that say `proxy: true` get a desktop behind the provider's proxy; refused where it has none."""
    enable_fixed_ip: bool = False
    """The same for `fixed_ip: true`."""
    cache_dir: str = "cache"
    """Where files that tasks download are kept, as OSWorld does: `<cache_dir>/<task id>/<uuid5>_<name>`."""
    offline: bool = False
    """Whether this machine fetches nothing: what tasks download must be in `cache_dir`."""
    mirrors: dict[str, str] = Field(default_factory=dict)
    """Where to fetch instead, by the beginning of an address: `{https://a/: https://b/}`, or `file:///folder/`."""
    allow_private_downloads: bool = False
    """Whether tasks may have files fetched from this machine and its private networks; mirrors may be there anyway."""
    download_timeout: float = Field(default=300.0, gt=0.0, le=86_400.0)
    """The longest that one file may take, in seconds."""
    download_max_mb: int = Field(default=1024, ge=1, le=1024)
    """The largest file, in MiB."""
    failing_commands: Literal["fail", "warn"] = "fail"
    """What comes of a command of the set-up that ends with an error: the set-up fails, or it is told as a warning and
    the set-up goes on, as OSWorld's runner does."""
    browser_profile: str = "~/.config/google-chrome"
    """The folder of the browser's profiles in the desktop."""
    google_account: str = ""
    """A JSON file with email and password, for tasks that log in at Google."""
    google_drive: str = ""
    """A JSON file with client_id, client_secret and refresh_token, for tasks that prepare a Google drive."""
    google_api: str = "https://www.googleapis.com"
    """Where Google Drive's API is."""
    google_drive_page: str = "https://drive.google.com/drive/my-drive"
    """The page that a login leads to."""

    @field_validator("cache_dir", "google_account", "google_drive")
    @classmethod
    def _expand_home(cls, value: str) -> str:
        return expand_home(value)

    @field_validator("mirrors")
    @classmethod
    def _mirrors(cls, value: dict[str, str]) -> dict[str, str]:
        for prefix, instead in value.items():
            if not prefix or urlsplit(instead).scheme not in ("http", "https", "file"):
                raise ValueError(f"{prefix!r}: {instead!r} must be an address with http, https or file")
        return value

    @field_validator("os_type")
    @classmethod
    def _check_system(cls, value: str) -> str:
        if value not in _SYSTEMS:
            raise ValueError(f"this version has no {value!r}; allowed: {', '.join(_SYSTEMS)}")
        return value

    @field_validator("action_space", "observation_type")
    @classmethod
    def _check_name(cls, value: str, info: ValidationInfo) -> str:
        try:
            action_space(value) if info.field_name == "action_space" else observation_type(value)
        except InputError as error:
            raise ValueError(str(error)) from None
        return value

    @model_validator(mode="after")
    def _check_options(self) -> OSWorldSettings:
        seen = observation_type(self.observation_type)
        try:
            action_space(self.action_space).read_options(self.action_space_options, "action_space_options")
            seen.read_options(self.observation_options, "observation_options")
        except InputError as error:
            raise ValueError(str(error)) from None
        if seen.is_blind_without_tree() and not self.require_a11y_tree:
            raise ValueError(
                f"observation_type is {self.observation_type!r} and require_a11y_tree is false: nothing would be seen"
            )
        return self
