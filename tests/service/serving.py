"""`deskroll serve` in a process of its own, with a scripted model: started, fed, killed, started again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deskroll.store import Run
from deskroll.store.journal import Sealed
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


def task(name: str) -> dict[str, str]:
    """A task that the scripted model solves."""
    return {"id": name, "question": f"What is 6*7? ({name})", "answer": "42"}


class Served:
    """A service in a folder of the test's own."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.inbox = folder / "inbox"
        self.inbox.mkdir()
        self.root = folder / "results" / "service"
        self.settings = {
            "source": {"at": "inbox", "rest_ms": 0}, "env": "math", "model": "scripted:answers.yaml", "num_rollouts": 6,
            "workers": 1, "backoff_ms": 50, **settings,
        }  # fmt: skip
        (folder / "answers.yaml").write_text("latency: [0, 0.02]\nreplies:\n  - turns: [{text: '42'}]\n")
        (folder / "service.yaml").write_text(json.dumps(self.settings))
        self.process: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def ended(self) -> Iterator[None]:
        """Whatever the test finds, its service does not go on after it."""
        try:
            yield
        finally:
            if self.process is not None:
                self.process.kill()
                self.process.wait()

    def start(self) -> None:
        """For the first time, or again."""
        command = [sys.executable, "-m", "deskroll", "serve", "service.yaml"]
        with (self.folder / "log.txt").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, env=dict(os.environ))

    def kill(self) -> None:
        """At once."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        """As an operator does; its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def drop(self, name: str, data: str | list[dict[str, str]]) -> None:
        """Put a batch into the folder, as one piece."""
        text = data if isinstance(data, str) else "".join(json.dumps(each) + "\n" for each in data)
        part = self.folder / f".{name}"
        part.write_text(text)
        part.rename(self.inbox / name)

    def log(self) -> str:
        """The end of what it said."""
        return (self.folder / "log.txt").read_text()[-4000:]

    def ledger(self) -> list[dict[str, Any]]:
        """The whole lines of its ledger."""
        path = self.root / "batches.jsonl"
        data = path.read_bytes() if path.exists() else b""
        return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]

    def count(self, kind: str) -> int:
        """Of the lines of its ledger."""
        return sum(each["type"] == kind for each in self.ledger())

    def sealed(self) -> int:
        """Outcomes that its journal has."""
        path = self.root / "journal.jsonl"
        return path.read_bytes().count(b'{"type":"sealed"') if path.exists() else 0

    def wait_for(self, kind: str, count: int) -> None:
        """Until its ledger has so many lines of a kind."""
        wait_until(lambda: self._alive() and self.count(kind) >= count, f"{count} batches are {kind}")

    def wait_for_sealed(self, count: int) -> None:
        """Until its journal has so many outcomes."""
        wait_until(lambda: self._alive() and self.sealed() >= count, f"{count} outcomes are there")

    def outcomes(self) -> Counter[tuple[int, str]]:
        """How many sealed records there are for each round and task."""
        return Counter((each.episode.key.round, each.episode.key.task) for each in Run.open(self.root).records(Sealed))

    def _alive(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        return True
