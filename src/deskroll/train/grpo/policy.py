"""Policy: a model, and the distributions that it gives for sampled tokens, at the temperature that was sampled with."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peft
import torch
import transformers

from deskroll.errors import TrainerError, Untrainable
from deskroll.models.weights.checkpoint import Checkpoint, CheckpointKind, read_checkpoint
from deskroll.models.weights.refusal import CheckpointRefused
from deskroll.train.base import TrainSequence
from deskroll.train.grpo.pictures import Pictures
from deskroll.train.grpo.rows import Rows
from deskroll.train.grpo.settings import GrpoSettings

_LANGUAGE = "language_model"
"""What the part of a model with eyes is called that reads and writes."""


class Policy:
    """A model with or without an adapter."""

    def __init__(self, model: Any, folder: Path, compute: torch.dtype) -> None:
        """`folder`: of the model, without the adapter."""
        self.model = model
        base = model.get_base_model() if isinstance(model, peft.PeftModel) else model
        self.vocabulary: int = base.get_input_embeddings().num_embeddings
        self.longest: int = getattr(base.config.get_text_config(), "max_position_embeddings", 1 << 40)
        self.device: torch.device = base.device
        self._compute = compute
        self._pictures = Pictures(folder, base)
        self._keeps = "logits_to_keep" in inspect.signature(base.forward).parameters

    def check(self, sequence: TrainSequence) -> None:
        """Raise `Untrainable` where a sequence cannot be this model's."""
        largest = max(sequence.token_ids, default=0)
        if largest >= self.vocabulary:
            where = sequence.token_ids.index(largest)
            raise Untrainable(
                f"{sequence.name}: token {where} has id {largest}, and the model knows {self.vocabulary}: it was "
                "sampled from another model"
            )
        if len(sequence.token_ids) > self.longest:
            raise Untrainable(
                f"{sequence.name}: it has {len(sequence.token_ids)} tokens, and {self.longest} is the most"
            )
        self._pictures.check(sequence)

    def distributions(self, rows: Rows) -> torch.Tensor:
        """For each token that counts a row: the log-probability of every token of the vocabulary in its place."""
        kept, where = torch.unique(rows.place - 1, return_inverse=True)
        given = self._pictures.inputs(rows.sequences[0], self.device)
        more = {"logits_to_keep": kept} if self._keeps else {}
        is_narrow = self._compute is not torch.float32
        with torch.autocast(self.device.type, dtype=self._compute, enabled=is_narrow):
            logits = self.model(input_ids=rows.ids, attention_mask=rows.mask, use_cache=False, **given, **more).logits
        chosen = logits[rows.row, where if self._keeps else rows.place - 1].float()
        return (chosen / rows.temperature[:, None]).log_softmax(-1)

    @contextlib.contextmanager
    def without_adapter(self) -> Iterator[None]:
        """The weights of the model alone."""
        with self.model.disable_adapter():
            yield


def choose_device(settings: GrpoSettings) -> tuple[torch.device, torch.dtype]:
    """Where it is computed, and in what."""
    has_gpu = torch.cuda.is_available()
    if settings.device == "cuda" and not has_gpu:
        raise TrainerError("device is cuda, and torch sees no GPU here")
    device = torch.device("cuda" if has_gpu and settings.device != "cpu" else "cpu")
    narrow = settings.dtype == "bfloat16" or (settings.dtype == "auto" and device.type == "cuda")
    return device, torch.bfloat16 if narrow else torch.float32


def read_folder(folder: Path) -> Checkpoint:
    """What weights a folder holds; `TrainerError` where that is none."""
    try:
        return read_checkpoint(folder)
    except CheckpointRefused as error:
        raise TrainerError(str(error)) from None


def load_model(folder: Path, dtype: torch.dtype, device: torch.device) -> Any:
    """The model in a folder, whole, without anything that is random in its passes."""
    if read_folder(folder).kind is not CheckpointKind.FULL:
        raise TrainerError(f"{folder} holds an adapter, and a whole model is needed (context: start, lora_rank)")
    try:
        config = transformers.AutoConfig.from_pretrained(folder)
        kind = getattr(transformers, (config.architectures or ["none"])[0], None)
        if kind is None:
            raise TrainerError(f"{folder}: transformers knows no model {config.architectures}; see config.json")
        model, info = kind.from_pretrained(folder, dtype=dtype, output_loading_info=True)
    except (OSError, ValueError, KeyError) as error:
        raise TrainerError(f"{folder} cannot be loaded: {error}") from error
    if missing := sorted(info["missing_keys"]):
        raise TrainerError(f"{folder} lacks {len(missing)} tensors of its model, among them {missing[0]}")
    return model.to(device).eval()


def new_adapter(model: Any, rank: int, settings: GrpoSettings) -> Any:
    """The model with an adapter that changes nothing yet."""
    config = peft.LoraConfig(
        r=rank, lora_alpha=settings.lora_alpha, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",
        target_modules=settings.lora_targets or _linear_modules(model),
    )  # fmt: skip
    return peft.get_peft_model(model, config).eval()


def load_adapter(model: Any, folder: Path) -> Any:
    """The model with an adapter that was saved, to be trained further."""
    try:
        return peft.PeftModel.from_pretrained(model, folder, is_trainable=True).eval()
    except (OSError, ValueError, RuntimeError) as error:
        raise TrainerError(f"the adapter in {folder} does not fit its model: {error}") from error


def _linear_modules(model: Any) -> str:
    """An expression for all linear modules but the last one; of a model with eyes, of the part that writes."""
    names = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    sees = any(f".{_LANGUAGE}." in f".{name}" for name in names)
    chosen = {name.rpartition(".")[2] for name in names if not sees or f".{_LANGUAGE}." in f".{name}"}
    last = model.get_output_embeddings()
    chosen -= {name.rpartition(".")[2] for name, module in model.named_modules() if module is last}
    within = rf"(.*\.)?{_LANGUAGE}\..*\." if sees else r"(.*\.)?"
    return f"{within}({'|'.join(sorted(map(re.escape, chosen)))})"
