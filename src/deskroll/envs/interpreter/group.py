"""The control group of one interpreter: the desktops' own kind, told apart by name.

Groups of workers that were killed are empty and stay behind; `sweep` removes them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.providers.local.limits import ControlGroup
from deskroll.envs.interpreter.sandbox import Limits

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
    name = f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    spec = DesktopSpec(memory_mb=limits.memory_mb, processes=limits.processes + _OURS)
    group = Group.create(name, spec)
    return group if isinstance(group, Group) else None


def sweep() -> None:
    """Remove the empty groups of workers that are gone."""
    for parent in Group.parents():
        for folder in parent.glob(f"{_PREFIX}*-*"):
            owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
            if not Path("/proc", owner).exists():
                with contextlib.suppress(OSError):  # somebody else's, or still in use: not ours to end
                    folder.rmdir()
