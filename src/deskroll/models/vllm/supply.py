"""Supply: the weights that a pool serves, and where newer ones come from."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from deskroll.errors import ConfigError
from deskroll.models.vllm.config import ModelPoolConfig
from deskroll.models.weights.checkpoint import (
    Checkpoint,
    CheckpointKind,
    check_kind,
    check_same_tensors,
    read_checkpoint,
)
from deskroll.models.weights.refusal import CheckpointRefused
from deskroll.models.weights.source import FolderSource, Source, open_source
from deskroll.models.weights.watch import WeightsWatch


class Supply:
    """Of one pool; `open` it."""

    def __init__(self, base: Checkpoint, source: Source | None, kind: CheckpointKind, tell: Callable[[str], None]):
        self.served = base
        """What servers are to have."""
        self.refused = ""
        """Why weights were refused last."""
        self._kind = kind
        self._tell = tell
        self._watch = WeightsWatch(source, base, self._note, kind) if source is not None else None

    @classmethod
    async def open(cls, config: ModelPoolConfig, tell: Callable[[str], None]) -> Supply:
        """With what lies there by now: servers are started on the newest. Raises `ConfigError`, `InputError`."""
        if not config.ckpt_path:
            raise ConfigError("ckpt_path is empty; name the folder of the model to serve (--ckpt-path DIR)")
        kind = CheckpointKind.ADAPTER if config.enable_lora else CheckpointKind.FULL
        source = await asyncio.to_thread(_open_source, config)
        try:
            base = await asyncio.to_thread(_read_base, Path(config.ckpt_path), source, kind)
        except CheckpointRefused as refused:
            raise ConfigError(f"ckpt_path cannot be served: {refused}") from refused
        supply = cls(base, source, kind, tell)
        if (found := await supply.newest()) is not None:
            supply.serve(found)
        return supply

    @property
    def is_watched(self) -> bool:
        """Whether there is a source of newer weights."""
        return self._watch is not None

    async def newest(self) -> Checkpoint | None:
        """What can be served in place of what is; None: nothing newer."""
        return None if self._watch is None else await self._watch.look()

    async def read(self, folder: Path) -> Checkpoint:
        """The weights in a folder, checked; raises `CheckpointRefused`."""
        found = await asyncio.to_thread(read_checkpoint, folder.absolute())
        check_kind(found, self._kind)
        if self.served.kind is self._kind:
            check_same_tensors(found, self.served)
        return found

    def serve(self, checkpoint: Checkpoint) -> None:
        """These are wanted from now on."""
        self.served = checkpoint
        if self._watch is not None:
            self._watch.serve(checkpoint)

    def take_back(self, refused: Checkpoint, before: Checkpoint) -> None:
        """No server took these: what was served goes on."""
        self.served = before
        self.refused = f"version {refused.version} in {refused.path}: no server takes it"
        if self._watch is not None:
            self._watch.served = before
            self._watch.refuse(refused)

    def _note(self, refused: CheckpointRefused) -> None:
        self.refused = str(refused)
        self._tell(f"refused, and the old weights go on: {refused}")


def _open_source(config: ModelPoolConfig) -> Source | None:
    if not config.weights.source:
        return None
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return open_source(config.weights.source, Path(config.weights.cache or Path(base, "deskroll", "weights")))


def _read_base(path: Path, source: Source | None, kind: CheckpointKind) -> Checkpoint:
    """Its version counts where it is one of the source's: the 4 of a model's own name is none."""
    path = path.absolute()
    inside = source is None or (isinstance(source, FolderSource) and source.path.absolute() == path.parent)
    counts = inside and kind is CheckpointKind.FULL
    return read_checkpoint(path, None if counts else -1)
