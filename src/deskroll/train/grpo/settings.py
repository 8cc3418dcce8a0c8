"""Options of `grpo-local`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from deskroll import config

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class GrpoSettings(config.Settings):
    """What can be set beside learning rate, KL penalty, substeps and rank, which every trainer is told."""

    clip_low: Annotated[float, Field(gt=0, le=1)] = 0.2
    """How far below 1 the ratio of a token may fall before it is clipped."""
    clip_high: Positive = 0.28
    """How far above 1 it may rise."""
    importance_cap: Positive = 2.0
    """The most that a token's importance weight may be."""
    entropy_coef: NotNegative = 0.0
    """How much entropy counts in the loss."""
    measure_kl: bool = False
    """Tell the KL from the weights of the start also where there is no penalty on it: one more forward pass."""
    max_grad_norm: Positive = 1.0
    """Gradients are clipped to this norm."""
    micro_batch_tokens: Annotated[int, Field(ge=1)] = 8192
    """Tokens that are computed at a time, padding included; a longer sequence is computed by itself."""
    max_logprob_gap: Positive = 0.05
    """The step fails where log-probabilities differ by more than this from what the server told, in the mean."""
    lora_alpha: Positive = 32.0
    """An adapter counts by this over its rank."""
    lora_targets: str = ""
    """A regular expression for the modules with an adapter; empty: all linear ones of the language model."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: a GPU where there is one."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """What it computes in. auto: bfloat16 on a GPU, float32 on CPUs. Weights that are trained stay float32."""
    threads: Annotated[int, Field(ge=0)] = 0
    """Threads on CPUs; 0: as torch chooses."""
