"""Learner: takes the steps of `grpo-local`; the formula is in `deskroll/train/grpo/__init__.py`.

Guarantees: a batch without signal changes no weight; sequences that cannot be this model's are refused before anything
is changed, and so is a batch whose log-probabilities are not those that the server told (`gap.py`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from deskroll.errors import TrainerError
from deskroll.models.weights.checkpoint import CheckpointKind
from deskroll.train.base import StepReport, TrainBatch, TrainerContext, TrainSequence
from deskroll.train.grpo.gap import Gap
from deskroll.train.grpo.loss import Bounds, divergence, entropy, importance_weights, is_outside, policy_loss
from deskroll.train.grpo.policy import Policy, choose_device, load_adapter, load_model, new_adapter, read_folder
from deskroll.train.grpo.rows import Rows, make_rows, micro_batches
from deskroll.train.grpo.saving import FullSaver, save_adapter
from deskroll.train.grpo.settings import GrpoSettings

_STATE = "state.pt"
_BETAS = (0.9, 0.95)


@dataclass
class _Sums:
    """Over the tokens of a step that count."""

    loss: float = 0.0
    weight: float = 0.0
    kl: float = 0.0
    entropy: float = 0.0
    outside: int = 0
    tokens: int = 0
    norms: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class _Part:
    """What one step of the optimiser is taken on: rows, each with the log-probabilities that the step began with."""

    rows: list[Rows]
    old: list[torch.Tensor] | None
    """None: the step begins here."""

    @property
    def weight(self) -> float:
        return sum(float(rows.weight.sum()) for rows in self.rows)


class Learner:
    """One model that is trained."""

    def __init__(self, settings: GrpoSettings, context: TrainerContext, checkpoint: Path, state: Path | None) -> None:
        self._settings = settings
        self._context = context
        self._bounds = Bounds(low=settings.clip_low, high=settings.clip_high, cap=settings.importance_cap)
        if settings.threads:
            torch.set_num_threads(settings.threads)
        torch.manual_seed(context.seed)
        device, compute = choose_device(settings)
        start = Path(context.start) if context.start else checkpoint
        opened = read_folder(checkpoint)
        self._saver: FullSaver | None = None
        if context.lora_rank:
            is_adapter = opened.kind is CheckpointKind.ADAPTER
            folder = start if is_adapter else checkpoint
            base = load_model(folder, compute, device)
            model = load_adapter(base, checkpoint) if is_adapter else new_adapter(base, context.lora_rank, settings)
        else:
            folder, model = checkpoint, load_model(checkpoint, torch.float32, device)
            self._saver = FullSaver(model, opened)
        self._policy = Policy(model, folder, compute)
        self._trained = [each for each in model.parameters() if each.requires_grad]
        self._optimiser = torch.optim.AdamW(self._trained, lr=context.learning_rate, betas=_BETAS, weight_decay=0.0)
        self._start: Policy | None = None
        if self._wants_kl and not context.lora_rank:
            self._start = Policy(load_model(start, compute, device).requires_grad_(False), start, compute)
        if state is not None:
            self._load_state(state)

    @property
    def _wants_kl(self) -> bool:
        return self._context.kl_penalty_coef > 0 or self._settings.measure_kl

    def step(self, batch: TrainBatch) -> StepReport:
        """Take a step."""
        for each in batch.sequences:
            self._policy.check(each)
        gap = Gap(batch.step - 1, self._settings.max_logprob_gap)
        sums = _Sums()
        if batch.has_signal:
            for number, part in enumerate(self._parts(batch, gap)):
                self._learn(part, sums, gap if number == 0 else None)
        tokens = max(sums.tokens, 1)
        return StepReport(
            loss=sums.loss / (sums.weight or 1.0),
            kl=sums.kl / tokens if self._wants_kl else None,
            entropy=sums.entropy / tokens if sums.tokens else None,
            gradient_norm=sum(sums.norms) / max(len(sums.norms), 1),
            clipped_share=sums.outside / tokens,
            logprob_gap=gap.mean,
            tokens=sum(len(each.token_ids) for each in batch.sequences),
            sampled_tokens=sum(each.sampled_tokens for each in batch.sequences),
        )

    def save(self, folder: Path) -> None:
        """Write the weights as a server loads them."""
        if self._saver is None:
            save_adapter(self._policy.model, folder)
        else:
            self._saver.save(folder)

    def save_state(self, folder: Path) -> None:
        """Write the state of the optimiser, and the weights where a checkpoint is coarser than what is held."""
        rounds = self._saver is not None and self._saver.rounds
        weights = [each.detach().cpu() for each in self._trained] if rounds else []
        torch.save({"optimiser": self._optimiser.state_dict(), "weights": weights}, folder / _STATE)

    def _load_state(self, folder: Path) -> None:
        try:
            state = torch.load(folder / _STATE, map_location="cpu", weights_only=True)
            with torch.no_grad():
                for held, kept in zip(self._trained, state["weights"] or self._trained, strict=True):
                    held.copy_(kept)
            self._optimiser.load_state_dict(state["optimiser"])
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            raise TrainerError(f"the state in {folder} is not of this trainer: {error}") from error
        for group in self._optimiser.param_groups:
            group["lr"] = self._context.learning_rate

    def _parts(self, batch: TrainBatch, gap: Gap) -> list[_Part]:
        """The batch, dealt out at random; the same for the same seed and step."""
        counted = [each for each in batch.sequences if each.sampled_tokens]
        random.Random(f"{self._context.seed}/{batch.step}").shuffle(counted)  # noqa: S311  (no secret)
        count = min(self._context.num_substeps, len(counted))
        dealt = [self._rows(counted[number::count]) for number in range(count)]
        if count == 1:
            return [_Part(dealt[0], None)]
        return [_Part(rows, [self._begin(each, gap) for each in rows]) for rows in dealt]

    def _rows(self, sequences: Sequence[TrainSequence]) -> list[Rows]:
        batches = micro_batches(sequences, self._settings.micro_batch_tokens)
        return [make_rows(each, self._policy.device) for each in batches]

    def _begin(self, rows: Rows, gap: Gap) -> torch.Tensor:
        """The log-probabilities that a step of several parts begins with."""
        with torch.no_grad():
            old = _of_tokens(self._policy.distributions(rows), rows)
        gap.add(rows, old)
        return old

    def _learn(self, part: _Part, sums: _Sums, gap: Gap | None) -> None:
        """One step of the optimiser."""
        self._optimiser.zero_grad(set_to_none=True)
        whole = part.weight
        for number, rows in enumerate(part.rows):
            logp = self._policy.distributions(rows)
            new = _of_tokens(logp, rows)
            old = new.detach() if part.old is None else part.old[number]
            if gap is not None and part.old is None:
                gap.add(rows, new)
            loss = self._loss(rows, logp, new, old, sums)
            (loss / whole).backward()
            sums.loss += float(loss.detach())
        sums.weight += whole
        if gap is not None:
            gap.check()
        norm = float(torch.nn.utils.clip_grad_norm_(self._trained, self._settings.max_grad_norm))
        if not math.isfinite(norm):
            raise TrainerError("the gradient is not finite: lower learning_rate, or look at the model")
        sums.norms.append(norm)
        self._optimiser.step()

    def _loss(self, rows: Rows, logp: torch.Tensor, new: torch.Tensor, old: torch.Tensor, sums: _Sums) -> torch.Tensor:
        """The sum over the tokens, each by its weight."""
        settings, context = self._settings, self._context
        each = importance_weights(old, rows.told, self._bounds) * policy_loss(new, old, rows.advantage, self._bounds)
        spread = entropy(logp if settings.entropy_coef else logp.detach())
        each = each - settings.entropy_coef * spread
        if self._wants_kl:
            apart = divergence(logp, self._start_distributions(rows))
            each = each + context.kl_penalty_coef * apart
            sums.kl += float(apart.detach().sum())
        sums.entropy += float(spread.detach().sum())
        sums.outside += int(is_outside(new, old, self._bounds).sum())
        sums.tokens += len(rows.token)
        return (rows.weight * each).sum()

    def _start_distributions(self, rows: Rows) -> torch.Tensor:
        with torch.no_grad():
            if self._start is not None:
                return self._start.distributions(rows)
            with self._policy.without_adapter():
                return self._policy.distributions(rows)


def _of_tokens(logp: torch.Tensor, rows: Rows) -> Any:
    return logp.gather(1, rows.token[:, None])[:, 0]
