"""Watch: looks again and again for newer weights in a source.

Guarantees: what it hands out is whole, checked against what is served (`checkpoint.py`), and of a version above that.
What is refused is told once, and again only after its files have changed; it stops nothing. Versions that lie there at
the first look are history; one that appears later and is not above what is served is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from deskroll.errors import plain
from deskroll.models.weights.checkpoint import (
    Checkpoint,
    check_same_tensors,
    check_version,
    read_checkpoint,
)
from deskroll.models.weights.look import Folder, Look, next_look, whole_folders
from deskroll.models.weights.refusal import CheckpointRefused, Refusal
from deskroll.models.weights.source import Source


class WeightsWatch:
    """One source and what is served from it. `look` at will, or `wait`."""

    def __init__(self, source: Source, served: Checkpoint, on_refused: Callable[[CheckpointRefused], None]) -> None:
        self.served = served
        """What newer versions are compared with; `serve` moves it on."""
        self._source = source
        self._on_refused = on_refused
        self._before: Look | None = None
        self._refused: dict[str, Folder] = {}
        """What was refused, as it was then."""
        self._known: set[str] = set()
        """Folders that are history: of versions that were not above what was served when they were seen."""

    def serve(self, checkpoint: Checkpoint) -> None:
        """These weights are served from now on; what lies there of older versions has been passed over."""
        self.served = checkpoint
        self._pass_over(self._before or Look())

    async def look(self) -> Checkpoint | None:
        """The newest version that can be served in place of what is; None: there is none yet."""
        return await asyncio.to_thread(self._look)

    async def wait(self, every: float) -> Checkpoint:
        """The same, once there is one; `every` so many seconds it is looked for: a folder tells nobody that it grew."""
        while True:
            if (found := await self.look()) is not None:
                return found
            await asyncio.sleep(every)

    def _look(self) -> Checkpoint | None:
        before = self._before
        now = self._before = next_look(self._source.folders(), before)
        if before is None:
            self._pass_over(now)
        self._refuse_unversioned(now)
        whole = whole_folders(now, before)
        for folder in whole:
            if self._is_refused(folder) or folder.name in self._known:
                continue
            try:
                self._refuse_double(folder, whole)
                check_version(folder.version or 0, self.served.version)
                return self._checked(folder)
            except CheckpointRefused as refused:
                self._refuse(folder, refused)
        return None

    def _pass_over(self, look: Look) -> None:
        versions = {folder.name: folder.version for folder in look.folders}
        self._known |= {
            name for name, version in versions.items() if version is not None and version <= self.served.version
        }

    def _checked(self, folder: Folder) -> Checkpoint:
        path = self._source.fetch(folder, keep={self.served.path.name})
        found = read_checkpoint(path, folder.version)
        check_same_tensors(found, self.served)
        self._refused.pop(folder.name, None)
        return found

    def _is_refused(self, folder: Folder) -> bool:
        return self._refused.get(folder.name) == folder

    def _refuse(self, folder: Folder, refused: CheckpointRefused) -> None:
        self._refused[folder.name] = folder
        self._on_refused(refused)

    def _refuse_unversioned(self, now: Look) -> None:
        """A folder that was renamed holds weights, and no version; it would be waited for in vain."""
        for folder in now.folders:
            hidden = folder.name.startswith((".", "tmp-", "tmp_"))
            if folder.version is None and folder.has_weights and not hidden and not self._is_refused(folder):
                path = Path(self._source.shown, folder.name)
                what = f"{plain(str(path))} holds weights, and its name does not end in a version, as step_12 does"
                self._refuse(folder, CheckpointRefused(Refusal.NO_VERSION, what, file=str(path)))

    def _refuse_double(self, folder: Folder, whole: list[Folder]) -> None:
        others = [each.name for each in whole if each.version == folder.version and each.name != folder.name]
        if others:
            what = (
                f"{plain(folder.name)} and {plain(others[0])} in {self._source.shown} are both version {folder.version}"
            )
            raise CheckpointRefused(Refusal.NO_VERSION, what, file=str(Path(self._source.shown, folder.name)))
