"""TaskSourceConfig: where tasks come from, and which of them; one object, or a list of them, as people write it.

    {"source_type": "demo_eval", "limit": 20}
    [{"source_type": "file", "file_path": "mine.jsonl", "split_type": "train"}, {"source_type": "demo_training"}]

Each source is read, then filtered (`category`, `difficulty`), then split, then cut to `limit`; what is drawn is drawn
by `seed`, and stays in the order that it is kept in.

Guarantees: the same settings give the same tasks. What is unknown, or leaves nothing, is one `InputError` that says
what there is; no task comes twice.
"""

from __future__ import annotations

import enum
import hashlib
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from deskroll.config import Settings
from deskroll.errors import InputError, plain
from deskroll.host.home import expand_home
from deskroll.tasks.load import load_tasks, parse_task
from deskroll.tasks.reading import decode, is_file, kind_of, read_text
from deskroll.tasks.select import find_task, refuse_unknown
from deskroll.tasks.suites import PREFIX, is_bundled, suite_folder, tasks_folder
from deskroll.types import Record, Task

DEMO = f"{PREFIX}desk"
"""The suite that the demo tasks are of."""
SPLIT_FILE = "split.json"
"""Beside a suite's tasks: {"train": [ids], "eval": [ids]}."""
JUDGED_BY_MODEL = "llm_judgement"
"""The evaluator of tasks that a model judges."""


class SourceType(enum.StrEnum):
    """Where tasks come from."""

    DEMO_TRAINING = "demo_training"
    """The tasks of suite:desk that are for training."""
    DEMO_EVAL = "demo_eval"
    """Those that are for evaluation, all on small programs."""
    DEMO_ALL = "demo_all"
    """All of suite:desk."""
    IDS = "ids"
    """Single tasks, by `task_ids`: of suite:desk or, where one is named, of `suite` or `file_path`."""
    FILE = "file"
    """`file_path`."""
    SUITE = "suite"
    """`suite`."""
    CUSTOM = "custom"
    """`custom_tasks`."""


class SplitType(enum.StrEnum):
    """Which side of a split."""

    TRAIN = "train"
    EVAL = "eval"


_PLACES: dict[SourceType, tuple[str, ...]] = {
    SourceType.IDS: ("task_ids", "file_path", "suite"),
    SourceType.FILE: ("file_path",),
    SourceType.SUITE: ("suite",),
    SourceType.CUSTOM: ("custom_tasks",),
}
"""The fields that a type has for itself; the first of them must be set."""


class CustomTask(Settings):
    """A task that is only an instruction, for a desktop; a model judges what is on its screen in the end."""

    text_is = "instruction"
    instruction: str = Field(min_length=1)
    """What the agent is told."""
    id: str = ""
    """Its name; empty: made from the instruction."""
    expected: str = ""
    """What must be so in the end, for the judge; empty: that the instruction is carried out."""
    config: tuple[dict[str, Any], ...] = ()
    """Steps that prepare its desktop, as in task files."""


class TaskSourceConfig(Settings):
    """Where tasks come from, and which of them."""

    source_type: SourceType
    """demo_training, demo_eval, demo_all, ids, file, suite or custom."""
    task_ids: tuple[str, ...] = ()
    """With `ids`: which; the first characters of an id are enough."""
    file_path: str = ""
    """With `file` or `ids`: a file or a folder of tasks, whatever `deskroll run` takes."""
    suite: str = ""
    """With `suite` or `ids`: the name of a suite that is part of a package, e.g. desk."""
    custom_tasks: tuple[CustomTask, ...] = ()
    """With `custom`: instructions, or objects with instruction, id, expected and config; `llm_judgement` judges."""
    category: str = ""
    """Only tasks of this category (where a task names none, of this domain); empty: all."""
    difficulty: str = ""
    """Only tasks that say this of themselves, e.g. easy, medium, hard; empty: all."""
    limit: int | None = Field(default=None, ge=1)
    """At most so many, drawn by `seed`; none: all."""
    seed: int = 42
    """By which tasks are drawn and split."""
    split_type: SplitType | None = None
    """train or eval: only that side of a split by `seed`; none: all."""
    train_ratio: float = Field(default=0.8, gt=0, lt=1)
    """With `split_type`: the share of tasks on the train side."""

    _ours: ClassVar = ("task_ids", "file_path", "suite", "custom_tasks")

    @field_validator("file_path")
    @classmethod
    def _place(cls, value: str) -> str:
        """A path that holds from everywhere."""
        return value if not value or is_bundled(value) else str(Path(expand_home(value)).absolute())

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        has = _PLACES.get(self.source_type, ())
        given = [name for name in self._ours if getattr(self, name)]
        if has and has[0] not in given:
            raise ValueError(f"source_type {self.source_type} needs {has[0]}, which is missing or empty")
        for name in given:
            if name not in has:
                owner = next(kind for kind, names in _PLACES.items() if name in names[:1])
                raise ValueError(f"{name} is of no use with source_type {self.source_type}; it belongs to {owner}")
        if self.file_path and self.suite:
            raise ValueError("file_path and suite are both set: tasks are of one of them")
        return self

    @property
    def place(self) -> str:
        """What `load_tasks` reads; empty: the tasks stand here."""
        if self.source_type is SourceType.CUSTOM:
            return ""
        return self.file_path or (f"{PREFIX}{self.suite.removeprefix(PREFIX)}" if self.suite else DEMO)

    @property
    def name(self) -> str:
        """What it is called in messages."""
        which = self.file_path or self.suite
        return f"{self.source_type} {which}" if which else str(self.source_type)


class SourceTasks(Record, frozen=True):
    """The tasks of one source."""

    name: str
    folder: Path | None
    """Where the files are that they name; None: nowhere, for they stand in the settings."""
    tasks: tuple[Task, ...]


def read_sources(given: object, name: str) -> object:
    """What a text stands for: JSON, a type of demo tasks, or a file of tasks; what is none stays as it is.

    `name` names the place in messages. What it says is checked by the settings that it is for.
    """
    if not isinstance(given, str):
        return given
    text = given.strip()
    if text.startswith(("{", "[")):
        return decode(text, name)
    if text in set(SourceType) - set(_PLACES):
        return {"source_type": text}
    return {"source_type": SourceType.FILE, "file_path": text}


def load_sources(sources: Sequence[TaskSourceConfig]) -> list[SourceTasks]:
    """The tasks of each; `InputError` where one comes from two of them."""
    found = [load_source(each) for each in sources]
    of: dict[str, str] = {}
    for source in found:
        for task in source.tasks:
            if task.id in of:
                raise InputError(
                    f"task {plain(task.id)!r} comes twice, from {of[task.id]} and from {source.name}; "
                    "take it out of one of them"
                )
            of[task.id] = source.name
    return found


def load_source(source: TaskSourceConfig) -> SourceTasks:
    """The tasks of one source, in the order that they are kept in."""
    tasks = _custom(source) if not source.place else _read(source)
    tasks = _limited(source, _side(source, _fitting(source, tasks)))
    folder = tasks_folder(source.place).absolute() if source.place else None
    return SourceTasks(name=source.name, folder=folder, tasks=tuple(tasks))


def category_of(task: Task) -> str:
    """The category that a task names; its domain, where it names none."""
    said = task.metadata.get("category")
    return said if isinstance(said, str) and said else task.domain


def difficulty_of(task: Task) -> str:
    """How hard it says it is; empty: it does not."""
    said = task.metadata.get("difficulty")
    return said if isinstance(said, str) else ""


def _read(source: TaskSourceConfig) -> list[Task]:
    tasks = load_tasks(source.place)
    if source.source_type is SourceType.IDS:
        found = [find_task(tasks, each, source.place) for each in source.task_ids]
        if twice := [name for name, number in Counter(task.id for task in found).items() if number > 1]:
            raise InputError(f"task_ids names {plain(twice[0])!r} twice")
        return found
    sides = {SourceType.DEMO_TRAINING: SplitType.TRAIN, SourceType.DEMO_EVAL: SplitType.EVAL}
    if (side := sides.get(source.source_type)) is None:
        return tasks
    ids = read_split(suite_folder(DEMO))[side]
    return [task for task in tasks if task.id in ids]


def read_split(folder: Path) -> dict[SplitType, frozenset[str]]:
    """How a suite is divided into tasks for training and for evaluation."""
    path = folder / SPLIT_FILE
    if not is_file(path):
        raise InputError(f"{folder}: there is no {SPLIT_FILE} in it, which says what is for training")
    data = decode(read_text(path), str(path))
    if not isinstance(data, dict) or set(data) != set(SplitType):
        raise InputError(f"{path}: it holds a {kind_of(data)}; it must be {{'train': [ids], 'eval': [ids]}}")
    return {side: frozenset(data[side]) for side in SplitType}


def _custom(source: TaskSourceConfig) -> list[Task]:
    tasks: dict[str, Task] = {}
    for n, each in enumerate(source.custom_tasks):
        digest = hashlib.blake2b(each.instruction.encode(), digest_size=4).hexdigest()
        options = {"options": {"expected": each.expected}} if each.expected else {}
        raw = {
            "id": each.id or f"custom-{digest}",
            "instruction": each.instruction,
            "config": list(each.config),
            "evaluator": {"func": JUDGED_BY_MODEL, **options},
        }
        task = parse_task(raw, f"custom_tasks[{n}]", "custom")
        if task.id in tasks:
            raise InputError(f"custom_tasks[{n}]: id {plain(task.id)!r} is there already; ids must be unique")
        tasks[task.id] = task
    return list(tasks.values())


def _fitting(source: TaskSourceConfig, tasks: list[Task]) -> list[Task]:
    where, wanted = source.name, {"category": source.category, "difficulty": source.difficulty}
    for what, of in (("category", category_of), ("difficulty", difficulty_of)):
        refuse_unknown(what, [wanted[what]] if wanted[what] else [], Counter(filter(None, map(of, tasks))), where)
    found = [
        task
        for task in tasks
        if source.category in ("", category_of(task)) and source.difficulty in ("", difficulty_of(task))
    ]
    if not found:
        hard = Counter(difficulty_of(task) for task in tasks if category_of(task) == source.category)
        there = ", ".join(f"{plain(name) or 'none'} ({count})" for name, count in sorted(hard.items()))
        raise InputError(
            f"{where}: no task is of category {plain(source.category)!r} and of difficulty "
            f"{plain(source.difficulty)!r}; that category has: {there}"
        )
    return found


def _side(source: TaskSourceConfig, tasks: list[Task]) -> list[Task]:
    if source.split_type is None:
        return tasks
    count = round(len(tasks) * source.train_ratio)
    if not 0 < count < len(tasks):
        side = SplitType.EVAL if count else SplitType.TRAIN
        raise InputError(
            f"{source.name}: train_ratio {source.train_ratio:g} of {len(tasks)} tasks leaves none for {side}; "
            "choose another ratio, or take more tasks"
        )
    train = {task.id for task in _drawn(tasks, count, source.seed)}
    return [task for task in tasks if (task.id in train) is (source.split_type is SplitType.TRAIN)]


def _limited(source: TaskSourceConfig, tasks: list[Task]) -> list[Task]:
    return tasks if source.limit is None or source.limit >= len(tasks) else _drawn(tasks, source.limit, source.seed)


def _drawn(tasks: list[Task], count: int, seed: int) -> list[Task]:
    """So many of them, in their order."""
    chosen = random.Random(seed).sample(range(len(tasks)), count)  # noqa: S311  (nothing is secret about it)
    return [tasks[n] for n in sorted(chosen)]
