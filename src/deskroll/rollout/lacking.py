"""Programs that tasks need and this machine lacks, told before a run starts.

Only embedded desktops are made of this machine; what others have is up to their image. Nothing is started or fetched.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from functools import cache

from deskroll.desktops.providers.choice import EMBEDDED
from deskroll.desktops.providers.local.packages import install_line
from deskroll.report.words import counted
from deskroll.rollout.config import RunConfig
from deskroll.rollout.preparing import desktops_wanted
from deskroll.tasks.apps import App
from deskroll.tasks.needs import needs_of
from deskroll.tasks.verdict import absent_apps
from deskroll.types import Task


def lacking_programs(config: RunConfig, tasks: Sequence[Task]) -> str:
    """Which programs the desktops of a run will not have, in one line with what installs them; empty: none."""
    if config.pool or config.provider != EMBEDDED:
        return ""
    absent = [absent_apps(needs_of(task), is_on_path) for task, _ in desktops_wanted(config, tasks)]
    apps = list(dict.fromkeys(app for of_task in absent for app in of_task))
    if not apps:
        return ""
    number = sum(map(bool, absent))
    names = ", ".join(app.name for app in apps)
    return (
        f"{number:,} of {counted(len(tasks), 'task')} {'needs' if number == 1 else 'need'} programs that are not on "
        f"this machine, and will fail: {names}; {_remedy(apps)}"
    )


def packages_line(packages: Iterable[str]) -> str:
    """The line that installs these, to be run as root; empty where there are none."""
    names = list(dict.fromkeys(packages))
    return install_line(names) if names else ""


@cache
def is_on_path(program: str) -> bool:
    """Whether this machine has a program."""
    return shutil.which(program) is not None


def _remedy(apps: Sequence[App]) -> str:
    line = packages_line(package for app in apps for package in app.packages)
    others = [f"{app.name}: {app.install}" for app in apps if not app.packages]
    return "; ".join([*([f"as root: {line}"] if line else []), *others])
