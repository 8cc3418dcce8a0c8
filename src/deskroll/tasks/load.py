"""Task files: JSON (a list, `{"items": [...]}` or one object) and JSONL, read into `Task` records.

Guarantees: ids are unique, and whatever is wrong is one `InputError` that names the file, the line (of JSONL) or the
place in the list, the field and what to do. Keys that deskroll does not know are kept as the task's metadata.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from deskroll.errors import InputError
from deskroll.types import Task

LARGEST_FILE = 2 * 1024**3
_LONGEST_ID = 500
_INSTRUCTION = ("instruction", "question")
"""OSWorld's name for it, and that of question-and-answer files."""
_SETUP = ("config", "setup")
_SHARED = ("action_space", "observation_type")


def load_tasks(path: Path, *, limit: int | None = None) -> list[Task]:
    """Read all tasks of a file, or the first `limit` of them."""
    tasks: dict[str, tuple[Task, str]] = {}
    for where, raw in _objects(path):
        task = parse_task(raw, where)
        if task.id in tasks:
            raise InputError(f"{where}: id {task.id!r} is there already, at {tasks[task.id][1]}; ids must be unique")
        tasks[task.id] = (task, where)
        if limit is not None and len(tasks) >= limit:
            break
    if not tasks:
        raise InputError(f"{path}: there is no task in it; write one JSON object a line, with id and question")
    return [task for task, _ in tasks.values()]


def parse_task(raw: object, where: str) -> Task:
    """Read one task; `where` says where it stands, for error messages."""
    if not isinstance(raw, dict):
        raise InputError(f"{where}: a task is an object with id and question; this is a {_kind(raw)}")
    rest: dict[str, Any] = dict(raw)
    task_id = _text(rest.pop("id", None), "id", where)
    if len(task_id) > _LONGEST_ID:
        raise InputError(f"{where}: id has {len(task_id)} characters; allowed: at most {_LONGEST_ID}")
    where = f"{where}: task {task_id!r}"
    _refuse_shared(rest, where)
    name = next((each for each in _INSTRUCTION if each in rest), "question")
    answer = rest.pop("answer", None)
    task = Task(
        id=task_id,
        instruction=_text(rest.pop(name, None), name, where),
        domain=_text(rest.pop("domain", ""), "domain", where, empty=True),
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


def _objects(path: Path) -> Iterator[tuple[str, object]]:
    text = _read(path)
    if path.suffix.lower() == ".jsonl":
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield f"{path}:{number}", _decode(line, str(path), number)
        return
    if path.suffix.lower() != ".json":
        raise InputError(f"{path}: the suffix is {path.suffix!r}; allowed: .json, .jsonl")
    data = _decode(text, str(path), 1)
    if isinstance(data, dict) and "items" in data and "id" not in data:
        data = data["items"]
        if not isinstance(data, list):
            raise InputError(f"{path}: items is a {_kind(data)}; it must be a list of tasks")
    elif isinstance(data, dict):
        if "id" not in data and data and all(isinstance(each, list) for each in data.values()):
            raise InputError(
                f"{path}: this is a suite file (domain: ids), which names tasks and does not hold them; "
                f"give a file of tasks"
            )
        data = [data]
    if not isinstance(data, list):
        raise InputError(f"{path}: it holds a {_kind(data)}; allowed: a list of tasks, one task, or {{'items': [...]}}")
    for n, item in enumerate(data):
        yield f"{path}[{n}]", item


def _read(path: Path) -> str:
    try:
        if path.is_dir():
            raise InputError(f"{path}: this is a folder; give a .json or .jsonl file of tasks")
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{path}: it is larger than {LARGEST_FILE // 1024**3} GiB; split it")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; name a .json or .jsonl file of tasks") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is no UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: it cannot be read: {error.strerror}") from None


def _decode(text: str, name: str, first_line: int) -> object:
    try:
        return json.loads(text, object_pairs_hook=_without_doubles, parse_int=_whole, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{name}:{first_line + error.lineno - 1}: it is no valid JSON, at column {error.colno}: {error.msg}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}:{first_line}: it is no valid JSON: {error}") from None


def _without_doubles(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    data = dict(pairs)
    if len(data) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(each for each in names if names.count(each) > 1)!r} is there twice")
    return data


def _whole(digits: str) -> int:
    if len(digits) > 18 and not -(2**63) <= int(digits[:30]) < 2**63:
        raise ValueError(f"{digits[:20]}... is larger than 64 bits hold; write it as a text, in quotes")
    return int(digits)


def _constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON; write null, or a text in quotes")


def _text(value: object, name: str, where: str, *, empty: bool = False) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if value is None:
        raise InputError(f"{where}: {name} is missing; every task has an id and a question (or instruction)")
    if not isinstance(value, str) or (not value.strip() and not empty):
        shown = "empty" if isinstance(value, str) else f"a {_kind(value)}"
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
        raise InputError(f"{where}: answer must be one text or one number; this is a {_kind(value)}")
    return str(value)


def _mapping(value: object, name: str, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where}: {name} is a {_kind(value)}; it must be an object")
    return value


def _steps(rest: dict[str, Any], where: str) -> tuple[dict[str, Any], ...]:
    name = next((each for each in _SETUP if each in rest), "config")
    steps = rest.pop(name, [])
    if not isinstance(steps, list) or not all(isinstance(each, dict) for each in steps):
        raise InputError(f"{where}: {name} must be a list of set-up steps, each an object with type and parameters")
    return tuple(steps)


def _kind(value: object) -> str:
    names = {dict: "object", list: "list", str: "text", bool: "boolean", type(None): "null value"}
    return names.get(type(value), "number")
