"""The loss of GRPO, as functions of tensors; the formula is in `deskroll/train/grpo/__init__.py`.

All tensors have one number for each token that counts, but `logp` and `start`: these have a row for each, with the
log-probability of every token of the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

_LARGEST_LOG = 20.0
"""A ratio beyond this power of e is clipped in any case, and would overflow."""


@dataclass(frozen=True)
class Bounds:
    """What bounds the ratios."""

    low: float = 0.2
    high: float = 0.28
    cap: float = 2.0


def importance_weights(old: torch.Tensor, told: torch.Tensor, bounds: Bounds) -> torch.Tensor:
    """What makes up for whoever sampled."""
    return _ratio(old.detach(), told).clamp(max=bounds.cap)


def policy_loss(new: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, bounds: Bounds) -> torch.Tensor:
    """Of each token, before its importance."""
    ratio = _ratio(new, old.detach())
    clipped = ratio.clamp(1 - bounds.low, 1 + bounds.high)
    return -torch.minimum(ratio * advantages, clipped * advantages)


def is_outside(new: torch.Tensor, old: torch.Tensor, bounds: Bounds) -> torch.Tensor:
    """Whether the ratio of each token lies outside of its bounds."""
    ratio = _ratio(new.detach(), old.detach())
    return (ratio < 1 - bounds.low) | (ratio > 1 + bounds.high)


def entropy(logp: torch.Tensor) -> torch.Tensor:
    """Of each row."""
    return -(logp.exp() * logp).sum(-1)


def divergence(logp: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    """KL of each row from the start."""
    return (logp.exp() * (logp - start)).sum(-1)


def _ratio(over: torch.Tensor, under: torch.Tensor) -> torch.Tensor:
    return (over - under).clamp(-_LARGEST_LOG, _LARGEST_LOG).exp()
