"""Where else the numbers of a training run go: each tracker in a file of its own, which alone imports its SDK."""

from __future__ import annotations

import hashlib

from deskroll.rollout.redaction import redacted
from deskroll.store import RunInfo
from deskroll.train.config import CLIConfig
from deskroll.train.trackers.base import Tracked, Tracker

__all__ = ["Tracked", "Tracker", "tracked_run", "trackers_of"]


def trackers_of(config: CLIConfig) -> dict[str, Tracker]:
    """Those that are asked for, by name; `MissingDependency` where one's library is not installed."""
    found: dict[str, Tracker] = {}
    if config.tensorboard:
        from deskroll.train.trackers.tensorboard import TensorBoard  # noqa: PLC0415  (its SDK is an extra)

        found["TensorBoard"] = TensorBoard(config.tensorboard)
    if config.wandb_project:
        from deskroll.train.trackers.wandb import WeightsAndBiases  # noqa: PLC0415  (its SDK is an extra)

        found["Weights & Biases"] = WeightsAndBiases(config.wandb_project, config.wandb_name)
    return found


def tracked_run(info: RunInfo, folder: str, config: CLIConfig, step: int) -> Tracked:
    """A run, as trackers know it."""
    digest = hashlib.blake2b(f"{info.run_id} {info.created_at}".encode(), digest_size=8).hexdigest()
    settings = redacted(config.model_dump(mode="json"))
    return Tracked(name=info.run_id, id=digest, folder=folder, step=step, settings=settings)
