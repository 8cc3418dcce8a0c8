"""Watch: looks again and again for newer weights in a source.

Guarantees: what it hands out is whole, checked against what is served (`checkpoint.py`), and of a version above that.
What is refused is told once, and again only after its files have changed; it stops nothing. Versions that lie there at
the first look are history; one that appears later and is not above what is served is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

from deskroll.errors import plain
from deskroll.models.weights.checkpoint import (
    Checkpoint,
    CheckpointKind,
    check_kind,
    check_same_tensors,
    check_version,
    read_checkpoint,
)
from deskroll.models.weights.look import Folder, Look, next_look, whole_folders
from deskroll.models.weights.refusal import CheckpointRefused, Refusal
from deskroll.models.weights.source import Source


class WeightsWatch:
    """One source and what is served from it. `look` at will, or `wait`."""

    def __init__(
        self,
        source: Source,
        served: Checkpoint,
        on_refused: Callable[[CheckpointRefused], None],
        kind: CheckpointKind = CheckpointKind.FULL,
    ) -> None:
        """`kind`: what is looked for; a first adapter has nothing to be compared with."""
        self._kind = kind
        self.served = served
        """What newer versions are compared with; `serve` moves it on."""
        self._source = source
        self._on_refused = on_refused
        self._before: Look | None = None
        self._refused: dict[str, Folder] = {}
        """What was refused, as it was then."""
        self._history: dict[str, Folder] = {}
        """Folders that are passed over, as they were when that was decided."""

    def serve(self, checkpoint: Checkpoint) -> None:
        """These weights are served from now on; what lies there of older versions is passed over.

        Where somebody has gone back, all that lies there is, until it is written anew.
        """
        newest = max(checkpoint.version, self.served.version)
        self.served = checkpoint
        self._pass_over(self._before or Look(), newest)

    def take_back(self, refused: Checkpoint, served: Checkpoint) -> None:
        """Weights that were handed out cannot be served, and others are; they are passed over until they change."""
        self.served = served
        for folder in (self._before or Look()).folders:
            if folder.name == refused.path.name:
                self._refused[folder.name] = folder

    async def look(self, keep: Collection[Checkpoint] = ()) -> Checkpoint | None:
        """The newest version that can be served in place of what is; None: there is none yet.

        What is served stays where it is meanwhile, and so does what is in `keep`.
        """
        return await asyncio.to_thread(self._look, {each.path.name for each in (self.served, *keep)})

    async def wait(self, every: float) -> Checkpoint:
        """The same, once there is one; `every` so many seconds it is looked for: a folder tells nobody that it grew."""
        while True:
            if (found := await self.look()) is not None:
                return found
            await asyncio.sleep(every)

    def _look(self, keep: Collection[str]) -> Checkpoint | None:
        before = self._before
        now = self._before = next_look(self._source.folders(), before)
        if before is None:
            self._pass_over(now, self.served.version)
        whole = whole_folders(now, before)
        for folder in whole:
            if self._refused.get(folder.name) == folder or self._is_history(folder):
                continue
            try:
                return self._checked(folder, whole, keep)
            except CheckpointRefused as refused:
                self._refused[folder.name] = folder
                self._on_refused(refused)
        return None

    def _pass_over(self, look: Look, newest: int) -> None:
        for folder in look.folders:
            if folder.version is not None and folder.version <= newest:
                self._history[folder.name] = folder.unmarked

    def _is_history(self, folder: Folder) -> bool:
        """An old version that changes is being removed, or was finished late; a newer one was written anew, unless
        its marker alone is new."""
        was = self._history.get(folder.name)
        return was is not None and (was == folder.unmarked or (folder.version or 0) <= self.served.version)

    def _checked(self, folder: Folder, whole: list[Folder], keep: Collection[str]) -> Checkpoint:
        version = self._version(folder, whole)
        check_version(version, self.served.version)
        path = self._source.fetch(folder, keep)
        found = read_checkpoint(path, version)
        check_kind(found, self._kind)
        if self.served.kind is self._kind:
            check_same_tensors(found, self.served)
        self._refused.pop(folder.name, None)
        return found

    def _version(self, folder: Folder, whole: list[Folder]) -> int:
        """The version of a folder, which must have one, and alone."""
        path = Path(self._source.shown, folder.name)
        if folder.version is None:
            what = f"{plain(str(path))} holds weights, and its name does not end in a version, as step_12 does"
            raise CheckpointRefused(Refusal.NO_VERSION, what, file=str(path))
        others = [each.name for each in whole if each.version == folder.version and each.name != folder.name]
        if others:
            what = f"{plain(str(path))} and {plain(others[0])} beside it are both version {folder.version}"
            raise CheckpointRefused(Refusal.NO_VERSION, what, file=str(path))
        return folder.version
