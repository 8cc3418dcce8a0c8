"""Weights & Biases: numbers to a project there, or with WANDB_MODE=offline into the run's folder, for `wandb sync`.

Key, address and mode are what its own variables and `wandb login` say; nothing is ever asked for on the terminal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deskroll.errors import MissingDependency
from deskroll.train.trackers.base import Tracked

try:
    import wandb
except ImportError:
    raise MissingDependency("wandb_project needs wandb; run:  pip install 'deskroll[wandb]'") from None

_STEP = "step"
_QUIET = {
    "silent": True,
    "console": "off",
    "disable_git": True,
    "disable_code": True,
    "x_disable_meta": True,
    "init_timeout": 15,
}
"""Numbers and settings are sent, and neither what is printed nor the command line, files or code."""


class WeightsAndBiases:
    """A `Tracker`."""

    def __init__(self, project: str, name: str = "") -> None:
        self._project = project
        self._name = name
        self._run: Any = None

    def open(self, run: Tracked) -> None:
        """See `Tracker`."""
        wandb.setup(settings=wandb.Settings(silent=True))  # before anything could be printed or asked for
        self._run = wandb.init(
            project=self._project, name=self._name or run.name, id=run.id, resume="allow", dir=run.folder,
            config=run.settings, settings=wandb.Settings(**_QUIET),
        )  # fmt: skip
        # Its own count of steps cannot go back, as that of a run does which was killed and goes on.
        self._run.define_metric("*", step_metric=_STEP)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """See `Tracker`."""
        self._run.log({_STEP: step, **values})

    def close(self) -> None:
        """See `Tracker`."""
        if self._run is not None:
            self._run.finish()
