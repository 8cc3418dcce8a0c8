"""TaskOrder: which task the n-th group of a training run is of: passes over the tasks, each shuffled anew. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence

from deskroll.types import Task


class TaskOrder:
    """The same for the same tasks and seed, whenever it is asked."""

    def __init__(self, tasks: Sequence[Task], seed: int) -> None:
        self._tasks = list(tasks)
        self._seed = seed
        self._pass = -1
        self._shuffled: list[Task] = []

    def at(self, number: int) -> tuple[int, Task]:
        """The pass, which is the round of its episodes, and the task of a group."""
        round_, place = divmod(number, len(self._tasks))
        if round_ != self._pass:
            self._shuffled = list(self._tasks)
            random.Random(f"{self._seed}-{round_}").shuffle(self._shuffled)  # noqa: S311  (it is no secret)
            self._pass = round_
        return round_, self._shuffled[place]
