"""TrainLog: `train.jsonl` in a run's folder: one durable line for each step and each evaluation.

Guarantees: a line is whole and on the disk when `append` returns; one that was being written when its process died is
cut off by the next start. What is in a line is `store/training.py`'s.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from deskroll.store.paths import TRAIN_LOG
from deskroll.store.training import EvalRecord, StepRecord, TrainRecord, read_lines


class TrainLog:
    """Of one run; alone it writes the file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / TRAIN_LOG
        self.records: list[TrainRecord] = []
        """What was written before, when it was opened, and since."""

    def open(self) -> None:
        """Read what is there, and cut off what is torn."""
        data = self._path.read_bytes() if self._path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data:
            with self._path.open("r+b") as file:
                file.truncate(len(whole))
                os.fsync(file.fileno())
        self.records = read_lines(whole, str(self._path))

    def append(self, record: TrainRecord) -> None:
        """Write a line."""
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.records.append(record)

    def passed(self) -> set[tuple[int, str]]:
        """Rounds and tasks of all groups that steps have used, or passed over."""
        found: set[tuple[int, str]] = set()
        for each in self.steps:
            found.update((group.round, group.task) for group in each.groups)
            found.update((*each.withheld, *each.no_signal, *each.failed))
        return found

    @property
    def evaluated(self) -> set[tuple[str, int]]:
        """Phases and steps of the evaluations that were made."""
        return {(each.phase, each.step) for each in self.records if isinstance(each, EvalRecord)}

    @property
    def steps(self) -> list[StepRecord]:
        """The steps that were taken."""
        return [each for each in self.records if isinstance(each, StepRecord)]

    def forget_after(self, step: int) -> None:
        """Take back steps beyond this one, whose weights are gone."""
        kept = [each for each in self.records if each.step <= step]
        if len(kept) < len(self.records):
            temporary = self._path.with_name(f".{TRAIN_LOG}")
            with temporary.open("wb") as file:
                file.writelines(msgspec.json.encode(each) + b"\n" for each in kept)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
            self.records = kept
