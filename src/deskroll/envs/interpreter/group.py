"""The control group of one interpreter: the desktops' own kind, told apart by name.

Groups of workers that were killed stay behind; `sweep_groups` removes them.
"""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.providers.local.limits import ControlGroup
from deskroll.envs.interpreter.sandbox import Limits
from deskroll.host.owner import is_left, owner_mark

_PREFIX = "py-"
_OURS = 8
"""Processes of bubblewrap and its start, which count too."""


class Group(ControlGroup):
    """The group of one interpreter."""

    @classmethod
    def parents(cls) -> list[Path]:
        """Where groups are."""
        return [folder.parent for folder in cls.existing(f"{_PREFIX}0").folders]

    @property
    def entrances(self) -> list[str]:
        """The files that put a process into it."""
        return [str(folder / "cgroup.procs") for folder in self.folders]


def make_group(limits: Limits) -> Group | None:
    """A new group; None where this process may make none."""
    name = f"{_PREFIX}{owner_mark()}-{secrets.token_hex(4)}"
    spec = DesktopSpec(memory_mb=limits.memory_mb, processes=limits.processes + _OURS)
    group = Group.create(name, spec)
    return group if isinstance(group, Group) else None


def sweep_groups() -> None:
    """Remove the groups of workers that are gone, with whatever is still ending there."""
    names = {folder.name for parent in Group.parents() for folder in parent.glob(f"{_PREFIX}*")}
    for name in names:
        if is_left(name.removeprefix(_PREFIX).rpartition("-")[0]):
            with contextlib.suppress(OSError):  # somebody else's
                Group.existing(name).remove()
