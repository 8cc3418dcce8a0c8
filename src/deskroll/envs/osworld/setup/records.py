"""What each step is told: the parameters of upstream's `SetupController`, by their names there.

Guarantees: what is no such parameter, or of a wrong kind, is refused with the field's name.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from deskroll.types import Record

Flag = bool | Literal["true", "false", "True", "False"]
"""OSWorld's files hold some booleans as texts."""
Name = Annotated[str, msgspec.Meta(min_length=1)]
FileName = Annotated[str, msgspec.Meta(pattern=r"^$|^(?!\.{1,2}$)[^/\x00]{1,200}$")]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=3600)]


def is_true(flag: Flag) -> bool:
    """What a flag says."""
    return flag if isinstance(flag, bool) else flag.lower() == "true"


class Until(Record, frozen=True, forbid_unknown_fields=True):
    """A command is repeated until one of these is so."""

    returncode: int | None = None
    stdout: str | None = None
    """Text that the output holds."""
    stderr: str | None = None


class Execute(Record, frozen=True, forbid_unknown_fields=True):
    """execute, command."""

    command: list[str] | str
    shell: Flag | None = None
    """Without it, a string goes through the shell and a list does not."""
    stdout: FileName = ""
    """The name under which the output is kept for the evaluator."""
    stderr: FileName = ""
    until: Until | None = None


class Launch(Record, frozen=True, forbid_unknown_fields=True):
    """launch."""

    command: list[str] | str
    shell: Flag | None = None


class Sleep(Record, frozen=True, forbid_unknown_fields=True):
    """sleep."""

    seconds: Seconds


class WindowName(Record, frozen=True, forbid_unknown_fields=True):
    """activate_window, close_window."""

    window_name: Name
    strict: Flag = False
    by_class: Flag = False


class Open(Record, frozen=True, forbid_unknown_fields=True):
    """open."""

    path: Name


class File(Record, frozen=True, forbid_unknown_fields=True):
    """A file to fetch, and where it goes in the desktop."""

    url: Name
    path: Name


class Download(Record, frozen=True, forbid_unknown_fields=True):
    """download."""

    files: list[File]


class OpenTabs(Record, frozen=True, forbid_unknown_fields=True):
    """chrome_open_tabs."""

    urls_to_open: list[Name]


class CloseTabs(Record, frozen=True, forbid_unknown_fields=True):
    """chrome_close_tabs."""

    urls_to_close: list[Name]


class Visit(Record, frozen=True, forbid_unknown_fields=True):
    """A page that was visited so many seconds ago."""

    url: Name
    title: str
    visit_time_from_now_in_seconds: float


class History(Record, frozen=True, forbid_unknown_fields=True):
    """update_browse_history."""

    history: list[Visit]


class Login(Record, frozen=True, forbid_unknown_fields=True):
    """login. Which account it is, is the run's affair: the file that a task names is never read."""

    platform: Literal["googledrive"]
    settings_file: str = ""


class DriveArguments(Record, frozen=True, forbid_unknown_fields=True):
    """What one operation on the drive is told; which of these, depends on the operation."""

    query: str = ""
    trash: bool = False
    path: list[Name] | Name = msgspec.field(default_factory=list)
    url: str = ""

    @property
    def parts(self) -> list[str]:
        """The path, folder by folder."""
        return [self.path] if isinstance(self.path, str) else self.path


class Drive(Record, frozen=True, forbid_unknown_fields=True):
    """googledrive: operations, each with the arguments at the same place."""

    operation: list[Literal["delete", "mkdirs", "upload"]]
    args: list[DriveArguments]
    settings_file: str = ""

    def __post_init__(self) -> None:
        if len(self.operation) != len(self.args):
            raise ValueError(f"{len(self.operation)} operations have {len(self.args)} args; each needs its own")
        for each, told in zip(self.operation, self.args, strict=True):
            if each == "delete" and not told.query.strip():
                raise ValueError("delete needs a query: without one, it would empty the whole drive")
            if each != "delete" and not told.parts:
                raise ValueError(f"{each} needs a path")
            if each == "upload" and not told.url:
                raise ValueError("upload needs a url")
