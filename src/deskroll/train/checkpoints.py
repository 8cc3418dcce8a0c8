"""Checkpoints: the weights of each step in a run's folder, and the state of the trainer beside them.

    <run>/weights/step_0          the start: a link to where it lies
    <run>/weights/step_12         as servers load it, with the marker READY, written last
    <run>/trainer/step_12         what the trainer goes on from

Guarantees: a folder is there under its name only when all of it is; of the old ones, every `save_every`th and the last
two stay, and what is served.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from deskroll.errors import InputError

MARKER = "READY"
Write = Callable[[Path], Awaitable[None]]
"""Writes something into an empty folder."""


class Checkpoints:
    """Of one run."""

    def __init__(self, root: Path, save_every: int) -> None:
        self.weights = root / "weights"
        self._states = root / "trainer"
        self._save_every = save_every

    def begin(self, start: Path) -> None:
        """Make the folders, with the start in its place."""
        self.weights.mkdir(parents=True, exist_ok=True)
        self._states.mkdir(exist_ok=True)
        first = self.folder(0)
        if first.is_symlink() and first.resolve() != start.resolve():
            raise InputError(
                f"{first} is {first.resolve()}, and training is to start from {start}: give the run a folder of its "
                "own (log_path)"
            )
        if not first.is_symlink():
            first.symlink_to(start.resolve(), target_is_directory=True)

    def folder(self, step: int) -> Path:
        """Where the weights of a step lie."""
        return self.weights / f"step_{step}"

    def state(self, step: int) -> Path | None:
        """Where the state of the trainer after a step lies; None: there is none."""
        folder = self._states / f"step_{step}"
        return folder if step and folder.is_dir() else None

    def is_whole(self, step: int) -> bool:
        """Whether the weights of a step can be used."""
        return step == 0 or ((self.folder(step) / MARKER).exists() and self.state(step) is not None)

    async def save(self, step: int, weights: Write, state: Write) -> Path:
        """Write both; the weights appear last, whole."""
        for folder in (self.folder(step), self._states / f"step_{step}"):
            shutil.rmtree(folder, ignore_errors=True)  # of a start that died before it noted the step
        await _write(self._states / f"step_{step}", state)
        await _write(self.folder(step), weights, marker=True)
        return self.folder(step)

    def prune(self, step: int, *served: int) -> None:
        """Remove what is not needed any more once this step is the last, and these versions are served."""
        kept = {0, step, step - 1, *served}
        for parent in (self.weights, self._states):
            for folder in parent.glob("step_*"):
                number = int(folder.name.removeprefix("step_"))
                if number not in kept and (not self._save_every or number % self._save_every):
                    shutil.rmtree(folder, ignore_errors=True)


async def _write(folder: Path, write: Write, *, marker: bool = False) -> None:
    temporary = folder.with_name(f".{folder.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    await write(temporary)
    if marker:
        (temporary / MARKER).touch()
    temporary.rename(folder)
