"""Look: what lies in a source of weights at one moment, and which versions of it are whole. Pure.

A version is whole when it has a marker, `READY` or `STABLE`. Where a source has never written one, all files must be
there that it takes, and none may have changed since the look before. Whether they are right is the checkpoint's matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from deskroll.models.weights.checkpoint import ADAPTER, INDEX, TEMPORARY, WEIGHTS, version_of
from deskroll.types import Record

MARKERS = ("READY", "STABLE")
_WEIGHTS = (INDEX, WEIGHTS, ADAPTER)


class File(Record, frozen=True):
    """A file as a listing shows it."""

    size: int
    stamp: str = ""
    """What changes with the file, though its size does not: the time of its last change, or a store's tag."""


class Folder(Record, frozen=True):
    """One folder of a source."""

    name: str
    files: Mapping[str, File]
    shards: tuple[str, ...] = ()
    """The files that its index names, where it has one that can be read."""
    unreadable: str = ""
    """Why it cannot be looked into; empty: it can."""

    @property
    def version(self) -> int | None:
        """The number that its name ends in."""
        return version_of(self.name)

    @property
    def is_marked(self) -> bool:
        """Whether whoever wrote it says that it is whole."""
        return any(marker in self.files for marker in MARKERS)

    @property
    def unmarked(self) -> Folder:
        """All of it but markers: what they say of it changes nothing in it."""
        return msgspec.structs.replace(self, files={n: file for n, file in self.files.items() if n not in MARKERS})

    @property
    def has_weights(self) -> bool:
        """Whether anything in it looks like weights."""
        return any(name in self.files for name in _WEIGHTS)

    @property
    def has_all_files(self) -> bool:
        """Whether all is there that must be, whatever is in it."""
        if INDEX in self.files:
            return bool(self.shards) and all(name in self.files for name in self.shards)
        return self.has_weights


class Look(Record, frozen=True):
    """All folders of a source at one moment."""

    folders: tuple[Folder, ...] = ()
    marks: bool = False
    """Whether this source has ever been seen to write markers."""


def next_look(folders: Iterable[Folder], before: Look | None) -> Look:
    """A look, with what is known from those before it."""
    found = tuple(sorted(folders, key=lambda folder: folder.name))
    marks = any(folder.is_marked for folder in found) or (before is not None and before.marks)
    return Look(folders=found, marks=marks)


def whole_folders(now: Look, before: Look | None) -> list[Folder]:
    """Folders that are complete, or cannot be looked into; the highest version first, those without one last."""
    same = {folder.name: folder for folder in before.folders} if before is not None else {}
    found = [folder for folder in now.folders if _is_whole(folder, now.marks, same.get(folder.name))]
    return sorted(
        found, key=lambda folder: (-1 if folder.version is None else folder.version, folder.name), reverse=True
    )


def _is_whole(folder: Folder, marks: bool, before: Folder | None) -> bool:
    if folder.name.startswith(TEMPORARY) or (folder.version is None and not folder.has_weights):
        return False
    if folder.is_marked or folder.unreadable:
        return True
    return not marks and folder.has_all_files and before == folder
