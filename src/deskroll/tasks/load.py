"""Tasks, in whatever form they are kept, read into `Task` records.

JSON (a list, `{"items": [...]}` or one object), JSONL, and OSWorld's forms: a suite file, a folder, one task file; and
`suite:NAME` for a suite that is part of a package.

Guarantees: ids are unique, and whatever is wrong is one `InputError` that names the file, the line (of JSONL) or the
place in the list, the field and what to do. Keys that deskroll does not know are kept as the task's metadata.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from deskroll.errors import InputError
from deskroll.tasks.osworld import Found, domain_of, is_suite, read_folder, read_suite, refuse_root
from deskroll.tasks.reading import decode, is_folder, kind_of, read_text
from deskroll.tasks.select import Selection, select
from deskroll.tasks.suites import is_bundled, suite_folder
from deskroll.types import Task

LONGEST_ID = 200
"""Characters of a task's id: it names a lease, and a row of every table."""
_INSTRUCTION = ("instruction", "question")
"""OSWorld's name for it, and that of question-and-answer files."""
_SETUP = ("config", "setup")
_SHARED = ("action_space", "observation_type")
_ALL = Selection()
_TASK = "a file for each task, a JSON object with id and question"
_HOW = {
    ".jsonl": "one JSON object a line, with id and question",
    ".json": 'a list of objects with id and question: [{"id": "a", "question": "6*7?", "answer": "42"}]',
}
"""How tasks are written, by the suffix of their file; else in a folder."""


def load_tasks(
    path: str | Path, *, limit: int | None = None, root: Path | None = None, only: Selection = _ALL
) -> list[Task]:
    """Read all tasks, or those that are selected, or the first `limit` of them; `root` holds the tasks of a suite."""
    path = Path(path)
    return _collect(_objects(path, root), str(path), limit, only)


def parse_tasks(text: str, path: Path, *, root: Path | None = None) -> list[Task]:
    """The tasks that the text of a file holds, as `load_tasks` reads them; `path` is the file's."""
    return _collect(_objects_in(text, path, root), str(path))


def parse_list(items: Sequence[object], where: str) -> list[Task]:
    """The tasks of a list; `where` it comes from, for error messages."""
    return _collect((Found(f"{where}[{n}]", item) for n, item in enumerate(items)), where)


def _collect(objects: Iterable[Found], path: str, limit: int | None = None, only: Selection = _ALL) -> list[Task]:
    """Each object as a task; some, and each id once."""
    tasks: dict[str, tuple[Task, str]] = {}
    for where, raw, domain in objects:
        task = parse_task(raw, where, domain)
        if task.id in tasks:
            raise InputError(f"{where}: id {task.id!r} is there already, at {tasks[task.id][1]}; ids must be unique")
        tasks[task.id] = (task, where)
        if limit is not None and len(tasks) >= limit and not only:
            break
    if not tasks:
        raise InputError(f"{path}: there is no task in it; write {_HOW.get(Path(path).suffix.lower(), _TASK)}")
    found = [task for task, _ in tasks.values()]
    return select(found, only, path)[:limit] if only else found


def parse_task(raw: object, where: str, domain: str = "") -> Task:
    """Read one task; `where` says where it stands, for error messages, `domain` is its domain if it names none."""
    if not isinstance(raw, dict):
        raise InputError(f"{where}: a task is an object with id and question; this is a {kind_of(raw)}")
    rest: dict[str, Any] = dict(raw)
    task_id = _text(rest.pop("id", None), "id", where)
    if len(task_id) > LONGEST_ID:
        raise InputError(f"{where}: id has {len(task_id)} characters; allowed: at most {LONGEST_ID}")
    where = f"{where}: task {task_id!r}"
    _refuse_shared(rest, where)
    name = next((each for each in _INSTRUCTION if each in rest), "question")
    answer = rest.pop("answer", None)
    task = Task(
        id=task_id,
        instruction=_text(rest.pop(name, None), name, where),
        domain=_text(rest.pop("domain", ""), "domain", where, empty=True) or domain,
        env=_text(rest.pop("env", ""), "env", where, empty=True),
        answer=None if answer is None else _answer(answer, where),
        setup=_steps(rest, where),
        evaluator=_mapping(rest.pop("evaluator", {}), "evaluator", where),
        metadata=rest,
    )
    try:
        msgspec.json.encode(task)
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise InputError(f"{where}: it holds half of a character ({half!a}); write the whole character") from None
    return task


def task_digest(task: Task) -> str:
    """A short hash of all that a task says: two tasks of equal digest are the same task."""
    # Sorted, for the order of keys in a file means nothing.
    return hashlib.blake2b(msgspec.json.encode(task, order="deterministic"), digest_size=12).hexdigest()


def _objects(given: Path, root: Path | None) -> Iterator[Found]:
    path = suite_folder(given) if is_bundled(given) else given
    if is_folder(path):
        yield from read_folder(path, root)
    else:
        yield from _objects_in(read_text(path), path, root)


def _objects_in(text: str, path: Path, root: Path | None) -> Iterator[Found]:
    suffix = path.suffix.lower()
    if suffix not in (".json", ".jsonl"):
        raise InputError(f"{path}: the suffix is {path.suffix!r}; allowed: .json, .jsonl")
    data = decode(text, str(path)) if suffix == ".json" else None
    if isinstance(data, dict) and is_suite(data) and "items" not in data:
        yield from read_suite(path, data, root)
        return
    refuse_root(root, path)
    if suffix == ".json":
        yield from _listed(data, path)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield Found(f"{path}:{number}", decode(line, str(path), number))


def _listed(data: object, path: Path) -> Iterator[Found]:
    """The tasks of a JSON document."""
    if isinstance(data, dict) and "items" in data and "id" not in data:
        data = data["items"]
        if not isinstance(data, list):
            raise InputError(f"{path}: items is a {kind_of(data)}; it must be a list of tasks")
    elif isinstance(data, dict):
        yield Found(f"{path}[0]", data, domain_of(path, data))
        return
    if not isinstance(data, list):
        raise InputError(
            f"{path}: it holds a {kind_of(data)}; allowed: a list of tasks, one task, {{'items': [...]}}, or a suite "
            f"(domain: ids)"
        )
    for n, item in enumerate(data):
        yield Found(f"{path}[{n}]", item)


def _text(value: object, name: str, where: str, *, empty: bool = False) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if value is None:
        raise InputError(f"{where}: {name} is missing; every task has an id and a question (or instruction)")
    if not isinstance(value, str) or (not value.strip() and not empty):
        shown = "empty" if isinstance(value, str) else f"a {kind_of(value)}"
        raise InputError(f"{where}: {name} is {shown}; it must be a text")
    return value


def _refuse_shared(rest: dict[str, Any], where: str) -> None:
    """What all tasks of a run share cannot be set by one of them."""
    env_config = rest.get("env_config")
    for place, values in (("", rest), ("env_config.", env_config if isinstance(env_config, dict) else {})):
        for name in _SHARED:
            if name in values:
                raise InputError(
                    f"{where}: {place}{name} is a start-up setting, which all tasks of a run share; take it out of the "
                    f"task and set it for the run (env_options.{name})"
                )


def _answer(value: object, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(f"{where}: answer must be one text or one number; this is a {kind_of(value)}")
    return str(value)


def _mapping(value: object, name: str, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where}: {name} is a {kind_of(value)}; it must be an object")
    return value


def _steps(rest: dict[str, Any], where: str) -> tuple[dict[str, Any], ...]:
    name = next((each for each in _SETUP if each in rest), "config")
    steps = rest.pop(name, [])
    if not isinstance(steps, list) or not all(isinstance(each, dict) for each in steps):
        raise InputError(f"{where}: {name} must be a list of set-up steps, each an object with type and parameters")
    return tuple(steps)
