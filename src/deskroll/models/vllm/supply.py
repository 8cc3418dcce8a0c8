"""Supply: the weights that a pool serves, and where newer ones come from.

Guarantees: weights that no server has come up with yet, and with which servers fail again and again, are taken back and
told once; what a server had come up with before them goes on, and stays on this machine for that.
"""

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
from deskroll.models.weights.refusal import CheckpointRefused, Refusal
from deskroll.models.weights.source import FolderSource, Source, open_source
from deskroll.models.weights.watch import WeightsWatch

_STARTS = 2
"""So many starts with weights that no server has come up with yet: the first may fail for the machine's sake."""


class Supply:
    """Of one pool; `open` it."""

    def __init__(self, base: Checkpoint, source: Source | None, kind: CheckpointKind, tell: Callable[[str], None]):
        self.served = base
        """What servers are to have."""
        self.refused = ""
        """Why weights were refused last."""
        self._kind = kind
        self._tell = tell
        self._good = base
        """What a server has come up with, or what the pool was told to serve."""
        self._failed = 0
        """Starts with what is to be served since then."""
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
        return None if self._watch is None else await self._watch.look(keep=[self._good])

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
        self._failed = 0
        if self._watch is not None:
            self._watch.serve(checkpoint)

    def note_up(self, checkpoint: Checkpoint) -> None:
        """A server is up with these."""
        if checkpoint is self.served:
            self._good = checkpoint

    def note_failed(self, checkpoint: Checkpoint, why: str) -> bool:
        """A server did not come up with these; whether that may be their fault, since none has come up with them."""
        if checkpoint is self._good:
            return False
        if checkpoint is self.served:
            self._failed += 1
            if self._failed >= _STARTS:
                self.take_back(checkpoint, why)
        return True

    def take_back(self, refused: Checkpoint, why: str) -> bool:
        """These cannot be served: what was served goes on. False: a server is up with them, so they can."""
        if refused is self._good:
            return False
        if refused is self.served:
            self.served = good = self._good
            if self._watch is not None:
                self._watch.take_back(refused, good)
            what = f"version {refused.version} in {refused.path}: no server takes it: {why}"
            self._note(CheckpointRefused(Refusal.NOT_LOADED, what, file=str(refused.path)))
        return True

    def _note(self, refused: CheckpointRefused) -> None:
        self.refused = str(refused)
        self._tell(f"refused, and {_shown(self.served)} goes on: {refused}")


def _shown(checkpoint: Checkpoint) -> str:
    return f"version {checkpoint.version}" if checkpoint.version >= 0 else str(checkpoint.path)


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
