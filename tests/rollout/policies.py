"""Three jobs side by side, each with a policy of its own; it goes on where the last start was killed."""

import asyncio
import sys

from deskroll.rollout.config import Resources
from deskroll.rollout.group_policy import FillUp, GroupPolicy
from deskroll.rollout.job import Job
from deskroll.rollout.runtime import Runtime
from deskroll.rollout.spec import EpisodeSpec
from deskroll.types import Task


def tasks(folder: str, phase: str) -> list[Task]:
    """Eight groups of four, of which the policy closes each in its own way."""
    plays = {
        "no_signal": ["42", "42", "hang", "hang"],
        "straggler": ["42", "7", "42", "hang"],
        "fill_up": ["42", "model {}/{}-1", "7", "model {}/{}-3"],
    }[phase]
    return [
        Task(
            id=f"t{number}",
            instruction="What is 6*7?",
            answer="42",
            metadata={"plays": [each.format(folder, f"{phase}{number}") for each in plays]},
        )
        for number in range(8)
    ]


async def follow(runtime: Runtime, phase: str, policy: GroupPolicy, folder: str) -> None:
    """Print each group when it has finished."""
    spec = EpisodeSpec.model_validate(
        {
            "env": "math", "agent": "tests.rollout.parts:MemberAgent", "policy": policy,
            "retries": {"backoff": 0.01, "model": 0},
        }
    )  # fmt: skip
    async for group in runtime.run(Job(phase, tasks(folder, phase), spec, group_size=4)):
        print("old" if group.resumed else "new", group.phase, group.task.id, group.end, flush=True)


async def main(store: str, folder: str) -> None:
    """Run them all, from the beginning or from where the last start was killed."""
    policies = {
        "no_signal": GroupPolicy(no_signal_after=2),
        "straggler": GroupPolicy(straggler_factor=20),
        "fill_up": FillUp(fill_up=8),
    }
    async with Runtime.open(Resources(num_rollouts=8, workers=2), store=store) as runtime:
        await asyncio.gather(*(follow(runtime, phase, policy, folder) for phase, policy in policies.items()))


asyncio.run(main(*sys.argv[1:]))
