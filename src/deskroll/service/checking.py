"""Whether a batch can be run at all, before it is taken; can go on as it was begun; and whether all of it was run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from deskroll.errors import InputError, plain
from deskroll.rollout.changes import ChangedSince
from deskroll.rollout.loading import check_run
from deskroll.rollout.preparing import prepare_envs
from deskroll.service.config import PHASE, ServiceConfig
from deskroll.store import Index
from deskroll.store.journal import GroupClosed
from deskroll.tasks.batches import TaskBatch
from deskroll.types import EpisodeKey, GroupEnd, Task


async def find_fault(config: ServiceConfig, batch: TaskBatch, folder: str) -> str:
    """What is wrong with the tasks of a batch, beside these settings; empty: nothing is.

    Where the settings themselves do not hold any more, that is raised: it is no batch's fault.
    """
    try:
        await asyncio.to_thread(_check, config, batch, Path(folder))
    except InputError as error:
        await asyncio.to_thread(check_run, config, [], PHASE)
        return str(error)
    return ""


def _check(config: ServiceConfig, batch: TaskBatch, folder: Path) -> None:
    tasks = list(batch.tasks)
    check_run(config.model_copy(update={"tasks": f"batch {batch.id}"}), tasks, PHASE)
    prepare_envs(config, tasks, folder)


def refuse_other_size(index: Index, round_: int, name: str, group_size: int) -> None:
    """A batch that was planned with groups of another size stays as it is."""
    sizes = sorted({each.samples for each in index.plan(PHASE, round_).values()} - {0, group_size})
    if sizes:
        was = " and ".join(map(str, sizes))
        raise ChangedSince(
            f"batch {plain(name)}, round {round_}, cannot go on as it was begun:\n"
            f"  group_size was {was} and is {group_size}\n"
            "set it back, or go on all the same with run(force=True)"
        )


def is_closed(index: Index, round_: int, tasks: Sequence[Task]) -> bool:
    """Whether every group of a batch is closed for good, and every outcome there."""
    plan = index.plan(PHASE, round_)
    return all(task.id in plan and _is_group_closed(index, round_, task, plan[task.id].samples) for task in tasks)


def _is_group_closed(index: Index, round_: int, task: Task, samples: int) -> bool:
    last = index.groups.get((PHASE, round_, task.id))
    if not isinstance(last, GroupClosed) or last.end in (None, GroupEnd.STOPPED):
        return False
    keys = (EpisodeKey(phase=PHASE, round=round_, task=task.id, sample=sample) for sample in range(samples))
    return all(index.outcome(key) is not None for key in keys)
