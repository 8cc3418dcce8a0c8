"""OSWorld's ways to keep tasks: a suite file that names them, a folder that holds them, one file for each.

    test_all.json                     a suite: {domain: [ids]}
    examples/<domain>/<id>.json       its tasks, beside it or under `tasks_root`

Guarantees: whatever a suite names is there, under the id that it names, or it is one `InputError` with the suite, the
place in it and the file that was looked for. Nothing outside the root is read for a suite's sake.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from deskroll.errors import InputError, plain
from deskroll.tasks.reading import decode, is_file, is_folder, kind_of, read_text

EXAMPLES = "examples"
"""OSWorld's name for the folder of a suite's tasks."""
SUITE_FILE = "suite.json"
"""A folder that has one is read through it: other files in it are not taken for tasks."""
MOST_FILES = 100_000


class Found(NamedTuple):
    """A task as it was read, not looked at yet."""

    where: str
    raw: object
    domain: str = ""
    """Where the task itself names none."""


def is_suite(data: object) -> bool:
    """Whether this is `{domain: [ids]}`."""
    return (
        isinstance(data, Mapping)
        and "id" not in data
        and bool(data)
        and all(isinstance(v, list) for v in data.values())
    )


def read_suite(path: Path, data: Mapping[str, list[object]], root: Path | None) -> Iterator[Found]:
    """The tasks that a suite names, in its order."""
    folder = _tasks_folder(path, root)
    for domain, ids in data.items():
        for n, name in enumerate(ids):
            where = f"{path}: {plain(domain)}[{n}]"
            if not isinstance(name, str) or not name:
                raise InputError(f"{where} is a {kind_of(name)}; it must be the id of a task, as a text")
            if not all(_is_name(each) for each in (domain, name)):
                raise InputError(
                    f"{where} is {plain(name)!r}; a domain and an id name a file, so they have no '/' in them"
                )
            file = folder / domain / f"{name}.json"
            if not is_file(file):
                raise InputError(
                    f"{where}: there is no file {file}; put it there, take the id out of the suite, or name the folder "
                    f"of its tasks (tasks_root)"
                )
            raw = decode(read_text(file), str(file))
            if isinstance(raw, dict) and raw.get("id") != name:
                raise InputError(f"{file}: id is {plain(str(raw.get('id')))!r}, and the suite {path} calls it {name!r}")
            yield Found(str(file), raw, domain)


def read_folder(folder: Path, root: Path | None) -> Iterator[Found]:
    """The task files in a folder and below it, by their paths; a task's domain is its folder's name."""
    suite = folder / SUITE_FILE
    if is_file(suite):
        data = decode(read_text(suite), str(suite))
        if not isinstance(data, dict) or not is_suite(data):
            raise InputError(f"{suite}: it is not a suite; it must be {{domain: [ids]}}")
        yield from read_suite(suite, data, root)
        return
    refuse_root(root, folder)
    files = _files(folder)
    if not files:
        raise InputError(
            f"{folder}: this is a folder without any task file (<domain>/<id>.json); give a .json or .jsonl file of "
            f"tasks, a suite file, or a folder of task files"
        )
    for file in files:
        raw = decode(read_text(file), str(file))
        if is_suite(raw):
            raise InputError(
                f"{file}: this is a suite file, in a folder that is read as tasks; give the suite file itself"
            )
        if not isinstance(raw, dict):
            raise InputError(f"{file}: it holds a {kind_of(raw)}; in a folder of tasks each file is one task")
        yield Found(str(file), raw, file.absolute().parent.name)


def refuse_root(root: Path | None, path: Path) -> None:
    """Only a suite has its tasks elsewhere."""
    if root is not None:
        raise InputError(
            f"tasks_root is {root}, and {path} is not a suite file: it holds its tasks; leave tasks_root out"
        )


def domain_of(path: Path, raw: Mapping[str, object]) -> str:
    """The domain of a single task file: OSWorld's are named after their id, in a folder named after the domain."""
    return path.absolute().parent.name if raw.get("id") == path.stem else ""


def _tasks_folder(suite: Path, root: Path | None) -> Path:
    if root is None:
        folder = suite.parent / EXAMPLES
        if is_folder(folder):
            return folder
        raise InputError(
            f"{suite}: this is a suite file (domain: ids), and there is no folder {EXAMPLES} beside it that holds its "
            f"tasks; name that folder (tasks_root), or give a file of tasks"
        )
    if not is_folder(root):
        raise InputError(f"tasks_root: {root} is not a folder; name the one that holds <domain>/<id>.json")
    return root / EXAMPLES if is_folder(root / EXAMPLES) else root


def _is_name(text: str) -> bool:
    return text not in ("", ".", "..") and not any(each in text for each in "/\\\0")


def _files(folder: Path) -> list[Path]:
    def refuse(error: OSError) -> None:
        raise InputError(f"{error.filename}: it cannot be read: {error.strerror}")

    found: list[Path] = []
    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        found += [Path(parent, each) for each in sorted(names) if each.endswith(".json") and not each.startswith(".")]
        if len(found) > MOST_FILES:
            raise InputError(f"{folder}: there are more than {MOST_FILES:,} .json files in it; give a folder of tasks")
    return found
