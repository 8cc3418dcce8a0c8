"""Trainers that do odd things, for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

from deskroll.config import Settings
from deskroll.errors import MissingDependency, Untrainable
from deskroll.train.base import StepReport, TrainBatch, Trainer

BIGGEST = "x" * 3_000_000


class Odd(Trainer):
    """Does what its options say."""

    class OddSettings(Settings):
        """What."""

        does: str = ""

    Settings: ClassVar[type[Settings]] = OddSettings
    own_python: ClassVar[bool] = False
    settings: OddSettings

    def open(self, checkpoint: Path, state: Path | None) -> None:
        match self.settings.does:
            case "lacks":
                raise MissingDependency("it needs a boat: pip install boat")
            case "family":
                for apart in (False, True):
                    subprocess.Popen(["sleep", "600"], start_new_session=apart)
            case "exit":
                sys.exit("it does not want to")

    def step(self, batch: TrainBatch) -> StepReport:
        match self.settings.does:
            case "bug":
                return StepReport(loss=1 / int(batch.step - 1))
            case "environment":
                raise ValueError(" ".join(f"{name}={value}" for name, value in sorted(os.environ.items())))
            case "refuse":
                raise Untrainable("the worst is token 3 of train/0/t/0#1")
            case "hang":
                print("it hangs", flush=True)
                while True:
                    os.read(os.pipe()[0], 1)
            case "talk":
                print(BIGGEST)
                raise ValueError(BIGGEST)
        return StepReport(loss=0.0)

    def save(self, folder: Path) -> None:
        (folder / "no-weights").touch()
