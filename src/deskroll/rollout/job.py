"""Job: what is run on a runtime: a name, where its tasks come from, what its episodes are made of, and a priority."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterable, Mapping, Sequence
from typing import Any, Final, cast

from deskroll.config import check
from deskroll.errors import ConfigError, InputError, plain
from deskroll.rollout.spec import EpisodeSpec
from deskroll.tasks import parse_task
from deskroll.types import Record, Sampling, Task

_LONGEST_NAME = 100


class Batch(Record, frozen=True):
    """Tasks that come together: each becomes a group of episodes."""

    tasks: tuple[Task, ...]
    round: int = 0
    """Of which round they are; a task is in a round once, and may come again in another one."""
    whole: bool = False
    """Whether the round has these tasks and no others."""


Source = Sequence[Task] | AsyncIterable[Batch]
"""Where tasks come from: a list, or batches as they come (a polled folder, what a trainer feeds).

What is wrong with the tasks of a batch (`InputError`) is raised in a generator where it yielded that batch."""


def read_tasks(given: Sequence[object]) -> list[Task]:
    """Tasks that are given in Python: as they are, or as objects as they stand in a file; some, and each id once."""
    if not given:
        raise InputError("no tasks are given: the list of them is empty")
    tasks = [
        each if isinstance(each, Task) else parse_task(dict(each) if isinstance(each, Mapping) else each, f"task {n}")
        for n, each in enumerate(given)
    ]
    if twice := [name for name, number in Counter(task.id for task in tasks).items() if number > 1]:
        raise InputError(f"task {plain(twice[0])!r} is given twice; ids must be unique, and group_size runs each often")
    return tasks


class Job:
    """What is run; `async for group in runtime.run(job)` yields its groups as they finish."""

    def __init__(
        self,
        name: str,
        source: Source | Sequence[Task | Mapping[str, Any]],
        spec: EpisodeSpec | Mapping[str, Any],
        group_size: int = 1,
        round: int = 0,
        priority: int = 0,
        folder: str = "",
        *,
        sampling: Sampling | None = None,
    ) -> None:
        """Tasks and the spec may be plain objects, as they stand in a file."""
        job, given = f"job {plain(name)!r}", cast(object, source)
        if not 1 <= len(name) <= _LONGEST_NAME:
            raise ConfigError(f"a job is called {plain(name)!r}; a name has 1 to {_LONGEST_NAME} characters")
        if isinstance(given, str) or not isinstance(given, Sequence | AsyncIterable):
            raise ConfigError(
                f"{job}: source is a {type(source).__name__}; give a list of tasks "
                "(deskroll.load_tasks reads a file), or an async iterable of Batch"
            )
        if group_size < 1 or round < 0:
            raise ConfigError(
                f"{job}: group_size is {group_size} and round is {round}; allowed: 1 and more, and 0 and more"
            )
        self.spec: Final = spec if isinstance(spec, EpisodeSpec) else check(EpisodeSpec, spec, f"{job}: spec")
        """What its episodes are made of."""
        if misfit := self.spec.policy.misfit(group_size, self.spec.evaluate):
            raise ConfigError(f"{job}: {misfit}")
        self.name: Final = name
        """The phase of its episodes' keys, e.g. eval, train, baseline. One job of a name runs at a time."""
        self.source: Final[Source] = read_tasks(source) if isinstance(source, Sequence) else source
        """A list of tasks, or batches of them as they come."""
        self.group_size: Final = group_size
        """Episodes of each task."""
        self.round: Final = round
        """The round of a list's tasks; batches say their own."""
        self.priority: Final = priority
        """Whose episodes get permits and desktops first: the higher one's."""
        self.folder: Final = folder
        """Where the files are that tasks name; empty: the working folder."""
        self.sampling: Final = sampling
        """How its model is sampled, over what the spec says: the fields that are set count."""
