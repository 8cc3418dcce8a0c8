"""Suites that are part of deskroll: folders of tasks in OSWorld's format, with all that they need.

desk/suite.json                    {domain: [ids]}
desk/examples/<domain>/<id>.json   one task each, with its reference solution and its near misses
desk/inputs/                       the files that their set-up puts into the desktop
"""

from collections.abc import Iterable
from pathlib import Path

from deskroll.types import Task

DESK = Path(__file__).parent / "desk"
"""Tasks on Debian's own programs; each can be solved by mouse and keyboard, offline."""
_LARGE = ("libreoffice", "chrom")
"""How the names of programs begin that take more than a few megabytes."""


def small_tasks(tasks: Iterable[Task]) -> list[Task]:
    """Those of `suite:desk` that need only small programs: the demo's."""
    return [task for task in tasks if not any(app.startswith(_LARGE) for app in task.metadata["related_apps"])]
