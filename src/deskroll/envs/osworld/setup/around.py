"""Around: what steps may use besides the desktop, and how strict they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.store.paths import escape


@dataclass(frozen=True)
class Around:
    """The surroundings of one task's steps on one desktop."""

    task_id: str
    settings: OSWorldSettings
    forgiving: bool = False
    """For `postconfig`, where upstream goes on: a command that ends with an error (`diff` does so where files differ)
    or a window that the agent has closed is part of what is judged, not a failure. All else fails here, too."""
    outputs: dict[str, bytes] = field(default_factory=dict)
    """What commands printed, under the names that their `stdout` and `stderr` gave; filled by the steps."""

    @property
    def cache(self) -> Path:
        """The task's folder of fetched files, where OSWorld has it."""
        return Path(self.settings.cache_dir) / escape(self.task_id)
