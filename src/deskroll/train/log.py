"""TrainLog: `train.jsonl` in a run's folder: one durable line for each step and each evaluation.

Guarantees: a line is whole and on the disk when `append` returns; one that was being written when its process died is
cut off by the next start.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from deskroll.errors import StoreError
from deskroll.train.base import StepReport
from deskroll.types import Record

NAME = "train.jsonl"


class UsedGroup(Record, frozen=True):
    """A group that a step was taken on."""

    round: int
    task: str
    attempts: tuple[int, ...]
    """Of each sample, the attempt that counts."""
    score: float
    """The mean of its members."""
    lag: int


class StepRecord(Record, frozen=True, tag_field="type", tag="step", omit_defaults=False):
    """One step."""

    step: int
    """Also the version of the weights that came of it."""
    at: float
    groups: tuple[UsedGroup, ...]
    withheld: tuple[tuple[int, str], ...]
    """Rounds and tasks of groups since the last step that were too old."""
    no_signal: tuple[tuple[int, str], ...]
    """Those whose members all scored the same."""
    failed: tuple[tuple[int, str], ...]
    """Those with too few scored members."""
    reward: float
    """The mean over all members that were trained on."""
    lag_p50: float
    lag_p95: float
    lag_max: int
    sequences: int
    report: StepReport
    seconds: dict[str, float]
    """refresh (of the step before), generate (until there were groups enough), hold (for an evaluation to end), train,
    save."""
    served: int
    """The version that was served meanwhile: older than `step` - 1 where servers did not take that one."""


class EvalRecord(Record, frozen=True, tag_field="type", tag="evaluation", omit_defaults=False):
    """One evaluation, the baseline included."""

    phase: str
    step: int
    at: float
    episodes: int
    scored: int
    successes: int
    mean_score: float | None
    versions: tuple[str, ...]
    """Of the weights that answered."""
    seconds: float


TrainRecord = StepRecord | EvalRecord
_decoder = msgspec.json.Decoder(TrainRecord)


class TrainLog:
    """Of one run; alone it writes the file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
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
            temporary = self._path.with_name(f".{NAME}")
            with temporary.open("wb") as file:
                file.writelines(msgspec.json.encode(each) + b"\n" for each in kept)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
            self.records = kept


def read_lines(data: bytes, name: str) -> list[TrainRecord]:
    """The records of whole lines; StoreError with the number of a line that cannot be read."""
    records = []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            records.append(_decoder.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StoreError(f"{name}, line {number}: cannot be read ({error}); restore the file") from None
    return records
