"""Trainer: takes steps on what was sampled, and writes the weights of each; one kind of plug-in.

It lives in a process of its own (`process.py`), in an environment that has its libraries: what it is handed and what it
answers are the records below, and files by their names. Its methods may block: nobody else runs there. The run itself
loads the class as well, to read its settings: so libraries that only that environment has are imported in `open`, not
at the top of its file. After anything that it raises it is not asked again: whoever goes on begins another one with
`open`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from deskroll.errors import Untrainable
from deskroll.plugins import Plugin
from deskroll.store.training import StepReport
from deskroll.types import Record

__all__ = ["StepReport", "TrainBatch", "TrainSequence", "Trainer", "TrainerContext", "check_batch"]


class TrainSequence(Record, frozen=True):
    """One sample (`rollout/samples.py`), as a trainer gets it. All lists but `images` are of one length."""

    name: str
    """Whose it is: phase/round/task/sample#attempt, and its steps; for messages."""
    token_ids: list[int]
    logprobs: list[float]
    """As the server told them, at the temperature that was sampled with; 0 for what the model did not sample."""
    weights: list[float]
    """Of each token in the loss; 0 for what the model did not sample."""
    advantage: float
    temperature: float = 1.0
    versions: tuple[int, ...] = ()
    """Of the weights that sampled it: the versions that are steps."""
    images: tuple[str, ...] = ()
    """Files of the pictures, in the order of their runs of placeholders."""

    @property
    def sampled_tokens(self) -> int:
        """How many of its tokens count in the loss."""
        return sum(weight > 0 for weight in self.weights)


class TrainBatch(Record, frozen=True):
    """What one step is taken on."""

    step: int
    """The version of the weights that come of it; those that it is taken on are of version `step` - 1."""
    sequences: tuple[TrainSequence, ...]

    @property
    def has_signal(self) -> bool:
        """Whether anything is to be learned from it."""
        return any(each.advantage and any(each.weights) for each in self.sequences)


class TrainerContext(Record, frozen=True):
    """What a trainer is told once."""

    seed: int = 0
    learning_rate: float = 1e-5
    kl_penalty_coef: float = 0.0
    num_substeps: int = 1
    lora_rank: int = 32
    """0: all weights are trained."""
    start: str = ""
    """The folder of the model that the run began with: adapters lie beside its weights, and the KL penalty is against
    them; empty: what is opened is that."""


class Trainer(Plugin):
    """One trainer; what is not abstract may be left as it is."""

    own_python: ClassVar[bool] = True
    """Whether it runs in the environment of `trainer_python`; else in that of the run, unless that is named."""

    def __init__(self, settings: Any, context: TrainerContext) -> None:
        self.settings = settings
        self.context = context

    @abstractmethod
    def open(self, checkpoint: Path, state: Path | None) -> None:
        """Load the model in `checkpoint`; `state`: and go on where `save_state` wrote it.

        Raises `TrainerError` where that cannot be trained.
        """

    @abstractmethod
    def step(self, batch: TrainBatch) -> StepReport:
        """Take one step; a batch without signal changes no weight. What it is given has passed `check_batch`.

        Raises `Untrainable` where it would take that batch at no other time, either: the run stops then. After any
        other error the step is tried again.
        """

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the weights as a server loads them, into a folder that is there and empty; whoever asks for it adds the
        marker."""

    def save_state(self, folder: Path) -> None:
        """Write what it needs to go on: the state of its optimiser, of its dice."""

    def close(self) -> None:
        """Let go of what it holds."""


def check_batch(batch: TrainBatch) -> None:
    """Raise `Untrainable` where a batch is none: numbers that cannot be, lists of different lengths."""
    for each in batch.sequences:
        if wrong := _wrong(each):
            raise Untrainable(f"step {batch.step}, {each.name}: {wrong}")


def _wrong(sequence: TrainSequence) -> str:
    size = len(sequence.token_ids)
    if len(sequence.logprobs) != size or len(sequence.weights) != size:
        return f"it has {size} tokens, {len(sequence.logprobs)} log-probabilities and {len(sequence.weights)} weights"
    if not all(map(math.isfinite, (*sequence.logprobs, *sequence.weights, sequence.advantage))):
        return "its log-probabilities, weights and advantage must be finite numbers"
    if sequence.weights and sequence.weights[0]:
        return "its first token has a weight, and nothing stands before it to sample it from"
    if min(sequence.weights, default=0.0) < 0:
        return "a weight is negative"
    if min(sequence.token_ids, default=0) < 0:
        return f"token id {min(sequence.token_ids)} is negative"
    if not (math.isfinite(sequence.temperature) and sequence.temperature > 0):
        return f"it was sampled at temperature {sequence.temperature:g}; to train, sample at one above 0"
    return ""
