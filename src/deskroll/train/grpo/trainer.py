"""GrpoTrainer: the plug-in `grpo-local`. Imports nothing heavy before it is opened."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from deskroll import config
from deskroll.errors import MissingDependency, TrainerError
from deskroll.train.base import StepReport, TrainBatch, Trainer
from deskroll.train.environment import find_trainer_python
from deskroll.train.grpo.settings import GrpoSettings

if TYPE_CHECKING:
    from deskroll.train.grpo.learner import Learner

_LIBRARIES = ("torch", "transformers", "peft", "safetensors")


class GrpoTrainer(Trainer):
    """GRPO on this machine: CPU or one GPU, all weights or an adapter, models of text and of pictures."""

    Settings: ClassVar[type[config.Settings]] = GrpoSettings
    settings: GrpoSettings
    _learner: Learner | None = None

    @classmethod
    def check_installed(cls) -> None:
        """See `Plugin`."""
        if _missing():
            find_trainer_python("", os.environ)

    def open(self, checkpoint: Path, state: Path | None) -> None:
        """See `Trainer`."""
        if missing := _missing():
            raise MissingDependency(
                f"trainer grpo-local needs {', '.join(missing)}, which this Python does not have: run `make vllm` in a "
                "checkout of deskroll, or name another Python with trainer_python"
            )
        from deskroll.train.grpo.learner import Learner  # noqa: PLC0415

        self._learner = Learner(self.settings, self.context, checkpoint, state)

    def step(self, batch: TrainBatch) -> StepReport:
        """See `Trainer`."""
        return self._opened.step(batch)

    def save(self, folder: Path) -> None:
        """See `Trainer`."""
        self._opened.save(folder)

    def save_state(self, folder: Path) -> None:
        """See `Trainer`."""
        self._opened.save_state(folder)

    @property
    def _opened(self) -> Learner:
        if self._learner is None:
            raise TrainerError("trainer grpo-local has not been opened")
        return self._learner


def _missing() -> list[str]:
    return [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
