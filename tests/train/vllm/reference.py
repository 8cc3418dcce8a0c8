"""What a step of GRPO comes to, written plainly: a sequence at a time, a token at a time, Adam by hand.

Follows docs/rl.md, and uses nothing of what it judges but the records of a batch.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors.torch import load_file
from torch.func import functional_call
from transformers import AutoProcessor, Qwen2ForCausalLM, Qwen2VLForConditionalGeneration

from deskroll.train.base import TrainBatch, TrainSequence

Parameters = dict[str, torch.Tensor]


@dataclass
class Result:
    """After a step."""

    loss: float = 0.0
    weight: float = 0.0
    kl: list[float] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    """What happened to tokens: which ratio was clipped, which was not and why, which weight was cut."""
    outside: int = 0
    mean: Parameters = field(default_factory=dict)
    """Adam's first moment of each trained tensor, in the order of the model."""
    after: Parameters = field(default_factory=dict)


class Model:
    """A model, perhaps with an adapter; its passes are functions of what is trained."""

    def __init__(self, folder: Path, adapter: Path | None = None) -> None:
        sees = (folder / "processor_config.json").exists()
        kind = Qwen2VLForConditionalGeneration if sees else Qwen2ForCausalLM
        self.model = kind.from_pretrained(folder, dtype=torch.float32).eval()
        self.processor = AutoProcessor.from_pretrained(folder) if sees else None
        self.scale = 0.0
        if adapter is None:
            self.trained = {name: each.detach().clone() for name, each in self.model.named_parameters()}
        else:
            found = load_file(adapter / "adapter_model.safetensors")
            self.scale = 32.0 / next(each.shape[0] for name, each in found.items() if "lora_A" in name)
            names = [name for name, _ in self.model.named_modules()]
            keys = [f"base_model.model.{name}.lora_{part}.weight" for name in names for part in "AB"]
            self.trained = {key: found[key] for key in keys if key in found}
            assert len(self.trained) == len(found)

    def logits(self, trained: Parameters, sequence: TrainSequence) -> torch.Tensor:
        ids = torch.tensor([sequence.token_ids])
        given: dict[str, Any] = {}
        if sequence.images:
            pictures = [Image.open(each).convert("RGB") for each in sequence.images]
            given = dict(self.processor.image_processor(pictures, return_tensors="pt"))
            given["mm_token_type_ids"] = (ids == 1).int()
        return functional_call(self.model, self._whole(trained), (ids,), given).logits[0]

    def _whole(self, trained: Parameters) -> Parameters:
        if not self.scale:
            return trained
        whole = dict(self.model.named_parameters())
        for name, low in trained.items():
            if "lora_A" in name:
                place = name.removeprefix("base_model.model.").replace(".lora_A", "")
                whole[place] = whole[place] + self.scale * trained[name.replace("lora_A", "lora_B")] @ low
        return whole


def take_step(
    model: Model, start: Model, batch: TrainBatch, *, seed: int = 0, rate: float = 1e-5, kl: float = 0.0,
    entropy: float = 0.0, substeps: int = 1, norm: float = 1e9, low: float = 0.2, high: float = 0.28, cap: float = 2.0,
) -> Result:  # fmt: skip
    result = Result()
    trained = {name: each.clone().requires_grad_() for name, each in model.trained.items()}
    began = {name: each.clone() for name, each in model.trained.items()}
    first = {name: torch.zeros_like(each) for name, each in trained.items()}
    second = {name: torch.zeros_like(each) for name, each in trained.items()}
    order = [each for each in batch.sequences if any(each.weights)]
    random.Random(f"{seed}/{batch.step}").shuffle(order)
    for number in range(substeps):
        part = order[number::substeps]
        whole = sum(sum(each.weights) for each in part)
        loss = torch.zeros(())
        for sequence in part:
            new = model.logits(trained, sequence) / sequence.temperature
            with torch.no_grad():
                old = model.logits(began, sequence) / sequence.temperature
                first_of_all = start.logits(start.trained, sequence) / sequence.temperature
            for at in range(1, len(sequence.token_ids)):
                if sequence.weights[at]:
                    token = sequence.token_ids[at]
                    p, p_old, p_start = (each[at - 1].softmax(-1) for each in (new, old, first_of_all))
                    importance = (p_old[token] / math.exp(sequence.logprobs[at])).item()
                    if importance > cap:
                        result.kinds.add("cut weight")
                        importance = cap
                    ratio = p[token] / p_old[token]
                    gain = gained(ratio, sequence.advantage, low, high, result)
                    apart = sum(p[v] * (p[v].log() - p_start[v].log()) for v in range(len(p)))
                    spread = -sum(p[v] * p[v].log() for v in range(len(p)))
                    loss = loss + sequence.weights[at] * (-importance * gain + kl * apart - entropy * spread)
                    result.kl.append(float(apart.detach()))
                    result.entropy.append(float(spread.detach()))
        gradients = dict(zip(trained, torch.autograd.grad(loss / whole, list(trained.values())), strict=True))
        result.loss, result.weight = result.loss + float(loss.detach()), result.weight + whole
        length = math.sqrt(sum(float((each**2).sum()) for each in gradients.values()))
        result.norms.append(length)
        with torch.no_grad():
            for name, gradient in gradients.items():
                clipped = gradient * min(1.0, norm / length)
                first[name] = 0.9 * first[name] + 0.1 * clipped
                second[name] = 0.95 * second[name] + 0.05 * clipped**2
                mean, square = first[name] / (1 - 0.9 ** (number + 1)), second[name] / (1 - 0.95 ** (number + 1))
                trained[name] -= rate * mean / (square.sqrt() + 1e-8)
    result.mean, result.after = first, {name: each.detach() for name, each in trained.items()}
    return result


def gained(ratio: torch.Tensor, advantage: float, low: float, high: float, result: Result) -> torch.Tensor:
    """What a token gains; where more of it would leave the bounds, it gains no more by that."""
    where = "above" if ratio > 1 + high else "below" if ratio < 1 - low else "inside"
    sign = "good" if advantage > 0 else "bad"
    result.outside += where != "inside"
    result.kinds.add(f"{where} {sign}")
    if where == "above" and advantage > 0:
        return torch.tensor((1 + high) * advantage)
    if where == "below" and advantage < 0:
        return torch.tensor((1 - low) * advantage)
    return ratio * advantage
