"""Job: what is run on a runtime: a name, where its tasks come from, what its episodes are made of, and a priority."""

from __future__ import annotations

from collections.abc import AsyncIterable, Sequence
from dataclasses import dataclass

from deskroll.errors import ConfigError, plain
from deskroll.rollout.spec import EpisodeSpec
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
"""Where tasks come from: a list, or batches as they come (a polled folder, what a trainer feeds)."""


@dataclass(frozen=True)
class Job:
    """What is run; `async for group in runtime.run(job)` yields its groups as they finish."""

    name: str
    """The phase of its episodes' keys, e.g. eval, train, baseline. One job of a name runs at a time."""
    source: Source
    """A list of tasks, or batches of them as they come."""
    spec: EpisodeSpec
    """What its episodes are made of."""
    group_size: int = 1
    """Episodes of each task."""
    round: int = 0
    """The round of a list's tasks; batches say their own."""
    priority: int = 0
    """Whose episodes get permits and desktops first: the higher one's."""
    sampling: Sampling | None = None
    """How its model is sampled, over what the spec says: the fields that are set count."""
    folder: str = ""
    """Where the files are that tasks name; empty: the working folder."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= _LONGEST_NAME:
            raise ConfigError(f"a job is called {plain(self.name)!r}; a name has 1 to {_LONGEST_NAME} characters")
        if isinstance(self.source, str) or not isinstance(self.source, Sequence | AsyncIterable):
            raise ConfigError(
                f"job {plain(self.name)!r}: source is a {type(self.source).__name__}; give a list of tasks "
                "(deskroll.load_tasks reads a file), or an async iterable of Batch"
            )
        if self.group_size < 1 or self.round < 0:
            raise ConfigError(
                f"job {plain(self.name)!r}: group_size is {self.group_size} and round is {self.round}; "
                "allowed: 1 and more, and 0 and more"
            )
