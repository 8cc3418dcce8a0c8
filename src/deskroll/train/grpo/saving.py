"""Weights as a server loads them: with the names, shapes, kinds and files of the checkpoint that was opened."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers.core_model_loading import revert_weight_conversion

from deskroll.errors import TrainerError
from deskroll.models.weights.checkpoint import INDEX, Checkpoint
from deskroll.train.companions import read_companions

_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}


class FullSaver:
    """Writes all weights of a model that was opened on a checkpoint; needs nothing of that folder later."""

    def __init__(self, model: Any, opened: Checkpoint) -> None:
        self._model = model
        self._opened = opened
        self._files = read_companions(opened.path)
        if (opened.path / INDEX).exists():
            self._files[INDEX] = (opened.path / INDEX).read_bytes()
        held = self._held()
        self._others = _read_others(opened, held)
        _check_names(held, opened)

    @property
    def rounds(self) -> bool:
        """Whether what is written is coarser than what is held."""
        return any(tensor.dtype != "F32" for tensor in self._opened.tensors.values())

    def save(self, folder: Path) -> None:
        """Into a folder that is empty."""
        held = self._held()
        for file in self._opened.files:
            tensors = {
                name: held[name].detach().to("cpu", _DTYPES.get(tensor.dtype)).contiguous().clone()
                if name in held
                else self._others[name]
                for name, tensor in self._opened.tensors.items()
                if tensor.file == file
            }
            save_file(tensors, folder / file, metadata={"format": "pt"})
        for name, data in self._files.items():
            (folder / name).write_bytes(data)

    def _held(self) -> dict[str, torch.Tensor]:
        """What the model holds, by the names of its checkpoint."""
        found: dict[str, torch.Tensor] = revert_weight_conversion(self._model, self._model.state_dict())
        return found


def save_adapter(model: Any, folder: Path) -> None:
    """The adapter alone, as vLLM loads it."""
    model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)


def _read_others(opened: Checkpoint, held: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What is in the checkpoint, and transformers has no use for: it is written as it was."""
    found = {}
    for name, tensor in opened.tensors.items():
        if name not in held:
            with safe_open(opened.path / tensor.file, "pt") as file:
                found[name] = file.get_tensor(name)
    return found


def _check_names(held: Mapping[str, torch.Tensor], opened: Checkpoint) -> None:
    """What the model holds must be in the checkpoint, itself or as that which it is tied to, and of its shape."""
    written = {held[name].data_ptr() for name in opened.tensors if name in held}
    for name, tensor in held.items():
        if name not in opened.tensors and tensor.data_ptr() not in written:
            raise TrainerError(f"the model in {opened.path} holds {name}, for which its files have no place")
        if name in opened.tensors and tuple(tensor.shape) != opened.tensors[name].shape:
            shape = list(opened.tensors[name].shape)
            raise TrainerError(f"{name} is {list(tensor.shape)} in the model, and {shape} in {opened.path}")
