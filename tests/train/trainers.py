"""Trainers in processes of their own, and what they are given, for tests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deskroll.host.family import find_marked
from deskroll.train.base import TrainBatch, TrainerContext, TrainSequence
from deskroll.train.process import TrainerProcess
from tests.models.weights.files import one_file

LEARNS = 1.0
_TEST = "DESKROLL_TEST_OF"


def make_model(folder: Path) -> Path:
    """A model with weights alone, as far as a scripted trainer looks."""
    return one_file(folder, fill=0.25)


def make_trainer(folder: Path, trainer: str = "scripted", rank: int = 0, **options: Any) -> TrainerProcess:
    """A trainer that logs into a folder."""
    context = TrainerContext(lora_rank=rank)
    env = {**os.environ, _TEST: str(folder)}
    return TrainerProcess(trainer, options, context, log=folder / "trainer.log", env=env)


def make_batch(step: int, advantages: Sequence[float] = (LEARNS, -LEARNS)) -> TrainBatch:
    """A sequence of four tokens for each advantage; the last two were sampled."""
    return TrainBatch(
        step=step,
        sequences=tuple(
            TrainSequence(
                name=f"train/0/t/{n}#1", token_ids=[1, 2, 3, n], logprobs=[0, 0, -0.5, -0.25], weights=[0, 0, 0.5, 0.5],
                advantage=each, versions=(step - 1,),
            )
            for n, each in enumerate(advantages)
        ),
    )  # fmt: skip


async def save(trainer: TrainerProcess, folder: Path) -> Path:
    """What it saves, in a new folder."""
    folder.mkdir(parents=True)
    await trainer.save(folder)
    return folder


async def save_state(trainer: TrainerProcess, folder: Path) -> Path:
    folder.mkdir(parents=True)
    await trainer.save_state(folder)
    return folder


def processes_of(folder: Path) -> set[int]:
    """All that run for trainers that log into a folder."""
    return find_marked(f"{_TEST}={folder}")
