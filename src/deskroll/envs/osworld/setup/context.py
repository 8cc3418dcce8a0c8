"""SetupContext: what steps may use besides the desktop, and how strict they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.store.paths import escape
from deskroll.types import Record


class Took(Record, frozen=True):
    """A step that was performed."""

    type: str
    seconds: float
    returncode: int | None = None
    """Of a command that ended with an error."""
    stderr: str = ""
    """What it said, or why the desktop refused the step."""


@dataclass(frozen=True)
class SetupContext:
    """The context of one task's steps on one desktop."""

    task_id: str
    settings: OSWorldSettings
    folder: Path | None = None
    """Where the task's own files are: an address without a scheme is a path in it."""
    forgiving: bool = False
    """For `postconfig`, where upstream goes on: a command that ends with an error (`diff` does so where files differ)
    or a window that the agent has closed is part of what is judged, not a failure. All else fails here, too."""
    outputs: dict[str, bytes] = field(default_factory=dict)
    """What commands printed, under the names that their `stdout` and `stderr` gave; filled by the steps."""
    took: list[Took] = field(default_factory=list)
    """How long each step took, and what of it failed; filled as they are performed, emptied by who keeps it."""

    @property
    def cache(self) -> Path:
        """The task's folder of fetched files, where OSWorld has it."""
        return Path(self.settings.cache_dir) / escape(self.task_id)
