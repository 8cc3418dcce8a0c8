"""Two jobs at once on one runtime, with agents and sampling of their own, five rounds each: as a trainer does it."""

import asyncio
import sys
from collections.abc import AsyncIterator

from deskroll.rollout.config import Resources
from deskroll.rollout.job import Batch, Job
from deskroll.rollout.runtime import Runtime
from deskroll.rollout.spec import EpisodeSpec
from deskroll.types import Task

TASKS = tuple(Task(id=f"t{number}", instruction=f"What is 6*7? ({number})", answer="42") for number in range(3))


async def rounds() -> AsyncIterator[Batch]:
    """The same tasks five times; a trainer would choose them by what it has learned."""
    for number in range(5):
        yield Batch(tasks=TASKS, round=number, whole=True)


async def follow(runtime: Runtime, job: Job) -> None:
    """Print each group when it has finished."""
    async for group in runtime.run(job):
        scores = [episode.score.value for episode in group.episodes]
        print(group.phase, group.round, group.task.id, scores, flush=True)


async def main(url: str, folder: str) -> None:
    """Run both, from the beginning or from where the last start was killed."""
    model = {"name": "scripted", "base_url": url}
    warm = EpisodeSpec.model_validate({"env": "math", "model": {**model, "temperature": 1.0, "seed": 0}})
    cold = EpisodeSpec.model_validate({"env": "math", "agent": "noop", "model": {**model, "temperature": 0.0}})
    train, evaluate = Job("train", rounds(), warm, group_size=4), Job("eval", rounds(), cold, priority=1)
    async with Runtime.open(Resources(num_rollouts=8, workers=2), store=folder) as runtime:
        await asyncio.gather(follow(runtime, train), follow(runtime, evaluate))


asyncio.run(main(*sys.argv[1:]))
