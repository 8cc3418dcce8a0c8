"""Suites that are part of a package: `suite:NAME` stands for a folder of tasks.

A suite is registered as the other parts are (kind `suite`, entry points `deskroll.suite`): its target is an attribute
that holds the folder's path.
"""

from __future__ import annotations

from pathlib import Path

from deskroll.errors import InputError
from deskroll.registry import TABLE, Registry
from deskroll.tasks.reading import is_folder

PREFIX = "suite:"


def is_bundled(given: str | Path) -> bool:
    """Whether this names a suite, and no file."""
    return str(given).startswith(PREFIX)


def suite_folder(given: str | Path) -> Path:
    """The folder of a suite that is named `suite:NAME`."""
    name = str(given).removeprefix(PREFIX)
    registry = Registry({"suite": TABLE["suite"]})
    if ":" not in name:
        known = [entry.name for entry in registry.entries("suite")]
        if name not in known:
            there = f"there are: {', '.join(known)}" if known else "none is part of this version"
            raise InputError(f"{given}: there is no suite {name!r}; {there}; a suite file or a folder works too")
    folder = registry.load("suite", name)
    if not isinstance(folder, str | Path) or not is_folder(Path(folder)):
        raise InputError(f"{given}: {folder!r} is not a folder; a suite is registered as the path of one")
    return Path(folder)


def tasks_folder(given: str | Path) -> Path:
    """Where paths in tasks start: the folder of their file, the folder of tasks, or that of the suite."""
    if is_bundled(given):
        return suite_folder(given)
    path = Path(given)
    return path if is_folder(path) else path.parent
