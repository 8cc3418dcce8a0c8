"""ScriptedTrainer: takes so long, fails when it is told to, and writes weights of which all numbers are the same.

For tests and benchmarks of all that is around a trainer. What it writes has the names, shapes and kinds of what it was
opened on, so that a pool takes it, and a number for each version, so that scripted servers answer otherwise by it.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from deskroll import config
from deskroll.errors import TrainerError
from deskroll.models.weights.checkpoint import ADAPTER, INDEX, WEIGHTS, Checkpoint, CheckpointKind, read_checkpoint
from deskroll.models.weights.refusal import CheckpointRefused
from deskroll.train.base import StepReport, TrainBatch, Trainer
from deskroll.train.companions import read_companions

_STATE = "scripted.json"
Shape = tuple[str, tuple[int, ...], int]
"""Of a tensor: its kind, its sizes, and how many bytes that is."""


class ScriptedSettings(config.Settings):
    """Options of the scripted trainer."""

    seconds: Annotated[float, Field(ge=0)] = 0.0
    """How long a step takes, in seconds."""
    fail_at: tuple[int, ...] = ()
    """Steps that fail."""
    die_at: tuple[int, ...] = ()
    """Steps at which its process is killed."""
    memory: str = ""
    """A folder in which it notes failures, so that each happens once; empty: at every try."""


class ScriptedTrainer(Trainer):
    """Learns nothing."""

    Settings: ClassVar[type[config.Settings]] = ScriptedSettings
    own_python: ClassVar[bool] = False
    settings: ScriptedSettings
    _opened: Checkpoint
    _files: Mapping[str, bytes]
    """What it was opened on, all of it: it is small."""
    _number = 0
    """Of the last step that had a signal; 0: none since the start."""

    def open(self, checkpoint: Path, state: Path | None) -> None:
        """See `Trainer`."""
        try:
            self._opened = read_checkpoint(checkpoint)
        except CheckpointRefused as error:
            raise TrainerError(str(error)) from None
        names = [*self._opened.files, *([INDEX] if (checkpoint / INDEX).exists() else [])]
        self._files = read_companions(checkpoint) | {name: (checkpoint / name).read_bytes() for name in names}
        if state is not None:
            self._number = json.loads((state / _STATE).read_text())["number"]

    def step(self, batch: TrainBatch) -> StepReport:
        """See `Trainer`."""
        time.sleep(self.settings.seconds)  # that is what it is for
        if batch.step in self.settings.die_at and self._is_first(f"died-at-{batch.step}"):
            os.kill(os.getpid(), signal.SIGKILL)
        if batch.step in self.settings.fail_at and self._is_first(f"failed-at-{batch.step}"):
            raise TrainerError(f"step {batch.step} fails, as it was told to (fail_at)")
        if batch.has_signal:
            self._number = batch.step
        return StepReport(
            loss=0.0,
            tokens=sum(len(each.token_ids) for each in batch.sequences),
            sampled_tokens=sum(each.sampled_tokens for each in batch.sequences),
        )

    def save(self, folder: Path) -> None:
        """See `Trainer`."""
        is_adapter = self.context.lora_rank > 0 or self._opened.kind is CheckpointKind.ADAPTER
        for name, data in (self._adapter() if is_adapter else self._full()).items():
            (folder / name).write_bytes(data)

    def save_state(self, folder: Path) -> None:
        """See `Trainer`."""
        (folder / _STATE).write_text(json.dumps({"number": self._number}))

    def _full(self) -> dict[str, bytes]:
        made = dict(self._files)
        for name in self._opened.files if self._number else ():
            tensors = {key: each for key, each in self._opened.tensors.items() if each.file == name}
            shapes = {key: (each.dtype, each.shape, each.end - each.begin) for key, each in tensors.items()}
            made[name] = _safetensors(shapes, self._number)
        return made

    def _adapter(self) -> dict[str, bytes]:
        rank = max(self.context.lora_rank, 1)
        size = 4 * rank * 8
        shapes: dict[str, Shape] = {
            "base_model.model.layer.lora_A.weight": ("F32", (rank, 8), size),
            "base_model.model.layer.lora_B.weight": ("F32", (8, rank), size),
        }
        about = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": ["layer"], "bias": "none"}
        return {ADAPTER: _safetensors(shapes, self._number), "adapter_config.json": json.dumps(about).encode()}

    def _is_first(self, what: str) -> bool:
        if not self.settings.memory:
            return True
        note = Path(self.settings.memory, what)
        if note.exists():
            return False
        note.parent.mkdir(parents=True, exist_ok=True)
        note.touch()
        return True


def write_model(folder: Path) -> None:
    """A model of three small tensors, for those who only look at its form."""
    folder.mkdir(parents=True)
    shapes: dict[str, Shape] = {
        "embed": ("F32", (4, 8), 128), "layer.weight": ("F32", (8, 8), 256), "norm": ("F32", (8,), 32),
    }  # fmt: skip
    (folder / "config.json").write_text("{}")
    (folder / WEIGHTS).write_bytes(_safetensors(shapes, 1))


def _safetensors(shapes: Mapping[str, Shape], number: int) -> bytes:
    """A file of tensors, all of which is one number of 32 bits."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape, size) in shapes.items():
        begin, end = end, end + size
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    data = struct.pack("<f", number / 1000) * (end // 4 + 1)
    return struct.pack("<Q", len(text)) + text + data[:end]
