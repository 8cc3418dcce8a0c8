"""Steps of grpo-local beside the plain reference; run with the Python of .venv-vllm, which has torch.

cases.py DIR     (the models of small.py) prints, for each case, by how much each figure is apart, and what happened
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from deskroll.train.base import StepReport, TrainBatch, TrainerContext, TrainSequence
from deskroll.train.grpo.settings import GrpoSettings
from deskroll.train.grpo.trainer import GrpoTrainer
from tests.train.vllm.reference import Model, Result, take_step

ROOT = Path(sys.argv[1])


@dataclass
class Case:
    """A step of some sequences."""

    name: str
    sequences: list[TrainSequence]
    model: str = "text"
    start: str = ""
    rate: float = 1e-3
    kl: float = 0.0
    entropy: float = 0.0
    substeps: int = 1
    norm: float = 1e9
    rank: int = 0
    options: dict[str, Any] = field(default_factory=dict)


def sequence(
    name: str, seed: int, *, prompt: int = 4, turns: int = 1, reply: int = 3,
    told: Callable[[random.Random], float] | None = None, **fields: Any,
) -> TrainSequence:  # fmt: skip
    """Random tokens; in each turn so many that were sampled, after so many that were not."""
    dice = random.Random(seed)
    ids, weights, logprobs = [], [], []
    for _ in range(turns):
        ids += [dice.randrange(5, 32) for _ in range(prompt + reply)]
        weights += [0.0] * prompt + [1 / (turns * reply)] * reply
        logprobs += [0.0] * prompt + [told(dice) if told else -dice.uniform(2.5, 4.5) for _ in range(reply)]
    given = {"token_ids": ids, "weights": weights, "logprobs": logprobs, "advantage": dice.choice((-1.0, 0.5))}
    return TrainSequence(name=name, **{**given, **fields})


def several(count: int = 4, **fields: Any) -> list[TrainSequence]:
    return [
        sequence(f"s{n}", n, **{"prompt": 2 + n, "advantage": (1.0, -0.7, 0.3, -1.2)[n % 4], **fields})
        for n in range(count)
    ]


def with_pictures() -> list[TrainSequence]:
    """Of one picture, of two, and of none."""
    first, second = (str(ROOT / f"{n}.png") for n in range(2))
    sizes = {first: 4, second: 6}
    found = []
    for n, images in enumerate(([first], [second, first], [])):
        ids = [5]
        for each in images:
            ids += [3, *[1] * sizes[each], 4]
        plain = sequence("", n, prompt=2)
        found.append(
            TrainSequence(
                name=f"p{n}", token_ids=ids + plain.token_ids, logprobs=[0.0] * len(ids) + plain.logprobs,
                weights=[0.0] * len(ids) + plain.weights, advantage=(1.0, -1.0, 0.5)[n], images=tuple(images),
            )
        )  # fmt: skip
    return found


CASES = [
    Case("one token", [sequence("s", 1, reply=1, advantage=1.0)]),
    Case("several sequences", several()),
    Case("several turns and masks", several(turns=3)),
    Case("weights of tokens", [
        sequence("a", 1, advantage=1.0, weights=[0, 0, 0, 0, 1.0, 0, 2.0]),
        sequence("b", 2, advantage=-1.0, weights=[0, 0, 0, 0, 0.25, 0.5, 0]),
        sequence("none", 3, advantage=1.0, weights=[0.0] * 7),
    ]),
    Case("temperature", [
        sequence("a", 1, temperature=0.6, advantage=1.0), sequence("b", 2, temperature=1.7, advantage=-1.0),
    ]),
    Case("truncated weights", several(told=lambda dice: -dice.choice((0.1, 1.0, 4.0, 9.0)))),
    Case("penalty on KL", several(turns=2), start="other", kl=0.5),
    Case("entropy", several(turns=2), entropy=0.3),
    Case("substeps", several(8), substeps=2, rate=0.05),
    Case("clipped both ways", several(12, turns=2), substeps=4, rate=0.1, kl=0.1, entropy=0.1, start="other"),
    Case("clipped gradient", several(), norm=0.01, options={"max_grad_norm": 0.01}),
    Case("micro-batches", several(7), options={"micro_batch_tokens": 12}),
    Case("one at a time", several(5), options={"micro_batch_tokens": 1}),
    Case("pictures", with_pictures(), model="vision"),
    Case("pictures, with all", with_pictures(), model="vision", substeps=2, rate=0.05, kl=0.2, entropy=0.1),
    Case("adapter", several(), rank=4),
    Case("adapter, with all", several(8), rank=4, substeps=2, rate=0.05, kl=0.5, entropy=0.1),
    Case("adapter of one with eyes", with_pictures(), model="vision", rank=4),
    Case("embeddings shared, coarse", several(), model="tied"),
]  # fmt: skip


def run(case: Case, scratch: Path) -> dict[str, Any]:
    model = ROOT / case.model
    start = ROOT / case.start if case.start else model
    batch = TrainBatch(step=3, sequences=tuple(case.sequences))
    options = {"max_grad_norm": 1e9, "entropy_coef": case.entropy, "measure_kl": True, **case.options}
    context = TrainerContext(
        seed=7, learning_rate=case.rate, kl_penalty_coef=case.kl, num_substeps=case.substeps, lora_rank=case.rank,
        start=str(start),
    )  # fmt: skip
    trainer = GrpoTrainer(GrpoSettings(**options), context)
    trainer.open(model, None)
    for name in ("before", "after", "state"):
        (scratch / name).mkdir()
    trainer.save(scratch / "before")
    report = trainer.step(batch)
    trainer.save(scratch / "after")
    trainer.save_state(scratch / "state")
    held = Model(model, scratch / "before" if case.rank else None)
    right = take_step(
        held, Model(start), batch, seed=7, rate=case.rate, kl=case.kl, entropy=case.entropy, substeps=case.substeps,
        norm=case.norm,
    )  # fmt: skip
    return {**figures(report, right), **tensors(scratch, right, case), "kinds": sorted(right.kinds)}


def figures(report: StepReport, right: Result) -> dict[str, float]:
    tokens = len(right.kl)
    pairs = {
        "loss": (report.loss, right.loss / right.weight),
        "kl": (report.kl, sum(right.kl) / tokens),
        "entropy": (report.entropy, sum(right.entropy) / tokens),
        "norm": (report.gradient_norm, sum(right.norms) / len(right.norms)),
        "clipped": (report.clipped_share, right.outside / tokens),
    }
    return {name: abs((is_ or 0.0) - right) / max(abs(right), 1e-2) for name, (is_, right) in pairs.items()}


def tensors(scratch: Path, right: Result, case: Case) -> dict[str, float]:
    """How far gradients are apart, by Adam's moments, and weights: of the largest number of all, the worst."""
    state = torch.load(scratch / "state" / "state.pt", weights_only=True)
    held = [each["exp_avg"] for _, each in sorted(state["optimiser"]["state"].items())]
    largest = max(float(each.abs().max()) for each in right.mean.values())
    gradients = max(float((one - other).abs().max()) for one, other in zip(held, right.mean.values(), strict=True))
    if state["weights"]:  # the checkpoint is coarser
        saved = dict(zip(right.after, state["weights"], strict=True))
    elif case.rank:
        saved = load_file(scratch / "after" / "adapter_model.safetensors")
    else:
        saved = Model(scratch / "after").trained
    # Adam makes as much of a gradient that is nothing but rounding as of any other.
    counts = {name: right.mean[name].abs() > largest / 1000 for name in right.after}
    weights = max(float(((saved[name] - each) * counts[name]).abs().max()) for name, each in right.after.items())
    return {"gradients": gradients / largest, "weights": weights / case.rate}


def main() -> None:
    torch.set_num_threads(1)
    found = {}
    for case in CASES:
        with tempfile.TemporaryDirectory() as scratch:
            found[case.name] = run(case, Path(scratch))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
