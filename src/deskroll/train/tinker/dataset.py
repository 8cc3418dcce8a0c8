"""Tasks as tinker's `RLDataset`: batches of groups, in passes over the tasks, each shuffled anew by the seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import chz
from tinker_cookbook.rl.types import EnvGroupBuilder, RLDataset, RLDatasetBuilder

from deskroll.errors import ConfigError
from deskroll.rollout.config import RunConfig
from deskroll.rollout.loading import load_run
from deskroll.tasks import tasks_folder
from deskroll.train.driven import EVAL, TRAIN, drive
from deskroll.train.order import TaskOrder
from deskroll.train.tinker.env import DeskrollGroupBuilder
from deskroll.train.tinker.messages import Tokens
from deskroll.types import Task


class DeskrollDataset(RLDataset):
    """So many batches of `batch_size` groups; the last may have fewer."""

    def __init__(
        self, group: DeskrollGroupBuilder, tasks: Sequence[Task], batch_size: int, *, passes: int = 1, seed: int = 0
    ) -> None:
        """`group`: what all groups have in common."""
        self._group = group
        self._order = TaskOrder(tasks, seed)
        self._batch_size = batch_size
        self._groups = len(tasks) * passes

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        """The groups of one batch: the same tasks whenever it is asked for, each time as new groups."""
        first = index * self._batch_size
        numbers = range(first, min(first + self._batch_size, self._groups))
        return [replace(self._group, task=self._order.at(number)[1], _made=[]) for number in numbers]

    def __len__(self) -> int:
        return math.ceil(self._groups / self._batch_size)


@chz.chz
class DeskrollDatasetBuilder(RLDatasetBuilder):
    """What tinker's training is configured with."""

    config: str
    """A file of settings as `deskroll run --config` takes them: tasks, env, agent, provider, num_vms, limits, ..."""
    model_name_for_tokenizer: str
    renderer_name: str
    batch_size: int
    """Groups in a batch."""
    group_size: int = 4
    passes: int = 1
    """How often each task comes."""
    seed: int = 0
    images: bool = False
    """Whether the model is shown pictures."""
    max_prompt_tokens: int | None = None
    eval_tasks: str | None = None
    """Tasks of the test set; none: there is none. One episode of each."""

    async def __call__(self) -> tuple[DeskrollDataset, DeskrollDataset | None]:
        """Read and check tasks and settings, and open the runtime: what is wrong is told before anything is sampled."""
        if min(self.batch_size, self.group_size, self.passes) < 1:
            raise ConfigError("batch_size, group_size and passes are 1 and more")
        config, tasks = load_run(Path(self.config), [])
        train = DeskrollDataset(
            self._group(config, tasks, config.tasks, TRAIN, self.group_size), tasks, self.batch_size,
            passes=self.passes, seed=self.seed,
        )  # fmt: skip
        test = None
        if self.eval_tasks is not None:
            asked, held_out = load_run(Path(self.config), [("tasks", self.eval_tasks)])
            test = DeskrollDataset(
                self._group(config, held_out, asked.tasks, EVAL, 1), held_out, self.batch_size, seed=self.seed
            )
        await drive(config)
        return train, test

    def _group(
        self, config: RunConfig, tasks: Sequence[Task], file: str, phase: str, size: int
    ) -> DeskrollGroupBuilder:
        tokens = Tokens(self.model_name_for_tokenizer, self.renderer_name, self.images)
        return DeskrollGroupBuilder(
            config, tasks[0], tokens, size, phase, str(tasks_folder(file)), self.max_prompt_tokens
        )
