"""What every trainer must do. It is run as in a training run: in a process of its own.

`--plugin-checkpoint DIR`: a model that it can train, with ids from 5 to 14 in its vocabulary; without one, a folder
with three small tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deskroll.errors import TrainerError
from deskroll.host.family import find_marked
from deskroll.models.weights.checkpoint import CheckpointKind, check_kind, check_same_tensors, read_checkpoint
from deskroll.models.weights.digest import tensors_digest
from deskroll.testing import Chosen, awaited
from deskroll.train.base import StepReport, TrainBatch, TrainerContext, TrainSequence
from deskroll.train.environment import MARK
from deskroll.train.process import TrainerProcess
from deskroll.train.scripted import write_model

RANKS = pytest.mark.parametrize("rank", [0, 4], ids=["full", "adapter"])


@pytest.fixture
def model(chosen: Chosen, tmp_path: Path) -> Path:
    """What it starts from."""
    if chosen.checkpoint is not None:
        return chosen.checkpoint
    write_model(tmp_path / "model")
    return tmp_path / "model"


class Trained:
    """A trainer, and folders for what it saves."""

    def __init__(self, chosen: Chosen, model: Path, folder: Path, rank: int) -> None:
        context = TrainerContext(seed=1, learning_rate=1e-2, lora_rank=rank, start=str(model))
        self.process = TrainerProcess(chosen.name, chosen.options, context, log=folder / "trainer.log")
        self.model = model
        self._folder = folder
        self._rank = rank

    async def open(self) -> None:
        """On the start; a trainer may refuse what it is not made for."""
        try:
            await self.process.open(self.model, None)
        except TrainerError as error:
            pytest.skip(f"it does not train with lora_rank {self._rank}: {error}")

    async def save(self, name: str) -> Path:
        """What it saves."""
        (self._folder / name).mkdir()
        await self.process.save(self._folder / name)
        return self._folder / name

    async def save_state(self, name: str) -> Path:
        """What it goes on from."""
        (self._folder / name).mkdir()
        await self.process.save_state(self._folder / name)
        return self._folder / name


def batch(step: int, *, signal: bool = True) -> TrainBatch:
    """Four sequences, of which two are better."""
    return TrainBatch(
        step=step,
        sequences=tuple(
            TrainSequence(
                name=f"train/0/t/{n}#1, step 0", token_ids=[5, 6, 7, 8 + n, 9 + n, 10],
                logprobs=[0.0, 0.0, 0.0, -2.0, -3.0, -1.5], weights=[0.0, 0.0, 0.0, 0.25, 0.25, 0.5],
                advantage=(1.0, -1.0)[n % 2] if signal else 0.0, versions=(),
            )
            for n in range(4)
        ),
    )  # fmt: skip


def digest(folder: Path) -> str:
    """Of what was saved."""
    return tensors_digest(read_checkpoint(folder))


def marked() -> Iterator[int]:
    """The processes of trainers that this one has started and that run."""
    for path in Path("/proc/self/task").glob("*/children"):
        for pid in path.read_text().split():
            if f"{MARK}=".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                yield int(pid)


@RANKS
@awaited
async def test_what_it_saves_a_server_takes_in_place_of_what_it_began_with(
    chosen: Chosen, model: Path, tmp_path: Path, rank: int
) -> None:
    """The same tensors with other numbers, or an adapter."""
    trained = Trained(chosen, model, tmp_path, rank)
    async with trained.process as trainer:
        await trained.open()
        seen = []
        for step in (1, 2):
            report = await trainer.step(batch(step))
            assert isinstance(report, StepReport)
            saved = read_checkpoint(await trained.save(f"step_{step}"))
            check_kind(saved, CheckpointKind.ADAPTER if rank else CheckpointKind.FULL)
            if not rank:
                check_same_tensors(saved, read_checkpoint(model))
            seen.append(tensors_digest(saved))
    assert len(set(seen)) == 2, "a step with signal changed no weight"


@RANKS
@awaited
async def test_a_batch_without_signal_changes_no_weight(chosen: Chosen, model: Path, tmp_path: Path, rank: int) -> None:
    """At the start, and after a step, when an optimiser has momentum."""
    trained = Trained(chosen, model, tmp_path, rank)
    async with trained.process as trainer:
        await trained.open()
        for step in (1, 2):
            before = digest(await trained.save(f"before_{step}"))
            await trainer.step(batch(2 * step - 1, signal=False))
            assert digest(await trained.save(f"after_{step}")) == before
            await trainer.step(batch(2 * step))


@RANKS
@awaited
async def test_it_goes_on_from_what_it_saved_as_if_it_had_not_stopped(
    chosen: Chosen, model: Path, tmp_path: Path, rank: int
) -> None:
    """In another process, with the same state."""
    trained = Trained(chosen, model, tmp_path, rank)
    async with trained.process as trainer:
        await trained.open()
        await trainer.step(batch(1))
        saved, state = await trained.save("step_1"), await trained.save_state("state_1")
        await trainer.step(batch(2))
        without_end = digest(await trained.save("step_2"))
        await trainer.open(saved, state)
        assert digest(await trained.save("step_1_again")) == digest(saved)
        await trainer.step(batch(2))
        assert digest(await trained.save("step_2_again")) == without_end


@awaited
async def test_what_it_cannot_train_it_refuses(chosen: Chosen, model: Path, tmp_path: Path) -> None:
    """A folder that is empty."""
    trained = Trained(chosen, model, tmp_path, 0)
    (tmp_path / "empty").mkdir()
    async with trained.process as trainer:
        with pytest.raises(TrainerError):
            await trainer.open(tmp_path / "empty", None)


@awaited
async def test_nothing_of_it_is_left(chosen: Chosen, model: Path, tmp_path: Path) -> None:
    """Once it is closed."""
    trained = Trained(chosen, model, tmp_path, 0)
    async with trained.process:
        await trained.open()
        marks = [
            part.decode()
            for pid in marked()
            for part in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if part.startswith(MARK.encode())
        ]
        assert marks
    assert not any(find_marked(mark) for mark in marks)
