"""results.jsonl: one line an outcome, flat, for people and for other tools.

Lines are appended as outcomes come, so an episode that was reopened has two for a while: the last one counts. When the
run is closed the file is written anew from the journal, one line for each episode, in the order of their beginning.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from deskroll.store import paths
from deskroll.store.commit import write_all
from deskroll.store.index import GroupKey
from deskroll.store.journal import whole
from deskroll.store.local import LocalStorage
from deskroll.store.storage import Storage, store_error
from deskroll.types import Episode, EpisodeKey

Describe = Callable[[EpisodeKey], str]
"""The question of an episode: what its task says."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One line; every field is always there."""

    task_id: str
    sample: int
    phase: str
    round: int
    attempt: int
    question: str
    answer: str | None
    success: bool | None
    """None where it was not scored."""
    score: float | None
    reason: str
    found: str | None = None
    """What was judged, in brief; older runs do not have it."""
    expected: str | None = None
    stop: str
    error: str | None
    failure_class: str | None
    seconds: float
    tokens: int
    cost_usd: float | None
    folder: str
    """Relative to the run's folder."""

    @classmethod
    def of(cls, episode: Episode, question: str) -> Result:
        """The line of an outcome."""
        key, score, failure = episode.key, episode.score.value, episode.failure
        return cls(
            task_id=key.task,
            sample=key.sample,
            phase=key.phase,
            round=key.round,
            attempt=episode.attempt,
            question=question,
            answer=episode.answer,
            success=None if score is None else episode.success,
            score=score,
            reason=episode.score.reason,
            found=episode.score.found,
            expected=episode.score.expected,
            stop=episode.stop,
            error=None if failure is None else failure.message,
            failure_class=None if failure is None else failure.failure_class,
            seconds=round(max(0.0, episode.ended_at - episode.started_at), 3),
            tokens=episode.usage.prompt_tokens + episode.usage.completion_tokens,
            cost_usd=episode.usage.cost_usd,
            folder=paths.attempt_folder(key, episode.attempt),
        )

    def encode(self) -> bytes:
        """The line, newline included."""
        return msgspec.json.encode(self) + b"\n"


class _Asked(msgspec.Struct):
    task_id: str
    phase: str = ""
    round: int = 0
    question: str = ""


def known_questions(storage: Storage) -> dict[GroupKey, str]:
    """The question of each group that has a result; what cannot be read is left out."""
    if not storage.exists(paths.RESULTS):
        return {}
    decoder, found = msgspec.json.Decoder(_Asked), dict[GroupKey, str]()
    for line in storage.read(paths.RESULTS).splitlines():
        # The file is for people, who may have edited it; the journal has the results.
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            asked = decoder.decode(line)
            found[asked.phase, asked.round, asked.task_id] = asked.question
    return found


class ResultsFile:
    """results.jsonl while the run goes on, on a local path; in an object store it is written at the end only."""

    def __init__(self, storage: Storage) -> None:
        self._fd: int | None = None
        self._path = storage.path(paths.RESULTS) if isinstance(storage, LocalStorage) else ""

    def open(self) -> None:
        """Go on where it ends; a torn last line is cut off."""
        if not self._path:
            return
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            size = os.fstat(self._fd).st_size
            if size and os.pread(self._fd, 1, size - 1) != b"\n":
                os.ftruncate(self._fd, whole(Path(self._path).read_bytes()))
        except OSError as error:
            raise store_error("open", self._path, error) from error

    def append(self, lines: bytes) -> None:
        """Append lines; they are not made durable, since the journal has it all."""
        if self._fd is not None and lines:
            try:
                write_all(self._fd, lines)
            except OSError as error:
                raise store_error("write", self._path, error) from error

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
