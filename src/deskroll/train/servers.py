"""Whoever serves the model of a training run, where that is not a pool of its own."""

from __future__ import annotations

from pathlib import Path

from deskroll.models.vllm.service import ask_reload


class PoolElsewhere:
    """A pool that `deskroll models up` serves on this machine: it is told to load the weights of each step."""

    def __init__(self, at: str) -> None:
        self._at = at

    async def reload(self, folder: Path) -> object:
        """See `Servers`."""
        return await ask_reload(self._at, str(folder.absolute()))


class Unrefreshed:
    """Servers whose weights do not change: of a run that takes no steps."""

    async def reload(self, folder: Path) -> object:
        """See `Servers`."""
        raise NotImplementedError(f"nobody takes the weights in {folder}")
