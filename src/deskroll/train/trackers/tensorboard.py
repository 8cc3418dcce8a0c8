"""TensorBoard: numbers as event files in a folder, which `tensorboard --logdir` shows."""

from __future__ import annotations

from collections.abc import Mapping

from deskroll.errors import MissingDependency
from deskroll.train.trackers.base import Tracked

try:
    from tensorboardX import SummaryWriter
except ImportError:
    raise MissingDependency("tensorboard needs tensorboardX; run:  pip install 'deskroll[tensorboard]'") from None

_FLUSH_S = 5


class TensorBoard:
    """A `Tracker`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._writer: SummaryWriter | None = None

    def open(self, run: Tracked) -> None:
        """See `Tracker`."""
        self._writer = SummaryWriter(self._folder, purge_step=run.step + 1 if run.step else None, flush_secs=_FLUSH_S)
        self._writer.add_text("settings", "\n".join(f"    {name}: {value}" for name, value in run.settings.items()), 0)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """See `Tracker`."""
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """See `Tracker`."""
        if self._writer is not None:
            self._writer.close()
