"""A run's folder with a journal that a test writes line by line, as a coordinator does."""

from __future__ import annotations

from pathlib import Path

from deskroll.store import info, journal
from deskroll.store.chain import Chain
from deskroll.store.journal import GroupClosed, JournalRecord, Opened, Reopened, Sealed
from deskroll.types import GroupEnd
from tests.store import records


class WrittenJournal:
    """Appends records."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "journal.jsonl"
        self.epoch = 0
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "run.json").write_bytes(info.encode(records.info()))
        self._chain = Chain(b"")
        self.open()

    def write(self, *written: JournalRecord) -> None:
        with self.path.open("ab") as file:
            file.write(b"".join(self._chain.link(journal.encode(each)) for each in written))

    def open(self) -> None:
        self.epoch += 1
        self.write(Opened(epoch=self.epoch, at=0.0))

    def seal(self, task: str, sample: int = 0, attempt: int = 1, round_: int = 0, epoch: int | None = None) -> None:
        episode = records.episode(records.key(task, sample, "service", round_), attempt)
        self.write(Sealed(episode=episode, epoch=self.epoch if epoch is None else epoch))

    def close(self, task: str, end: GroupEnd | None = GroupEnd.COMPLETE, round_: int = 0, why: str = "") -> None:
        self.write(GroupClosed(phase="service", round=round_, task=task, at=1.0, end=end, why=why))

    def reopen(self, task: str, sample: int = 0, round_: int = 0) -> None:
        self.write(Reopened(key=records.key(task, sample, "service", round_), epoch=self.epoch, at=0.0))

    def finish(self, *tasks: str) -> None:
        """Groups of one."""
        for task in tasks:
            self.seal(task)
            self.close(task)
