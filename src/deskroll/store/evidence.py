"""Evidence: what a run's other files say of its outcomes, for a line of the journal that is damaged or doubted.

Every attempt that became an outcome has an `episode.json` of the same content, and a line in `results.jsonl`. Three
kinds of outcome differ from their `episode.json`: one whose worker was lost has none; where desktops died under an
agent the journal blames the agent, which no single attempt can know; one that its group gave up may never have run.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

import msgspec

from deskroll.errors import FailureClass, StoreError
from deskroll.store import journal, paths
from deskroll.store.attempt import AttemptReader
from deskroll.store.journal import Failed, JournalRecord, Sealed, Started
from deskroll.store.results import Result
from deskroll.store.storage import Storage
from deskroll.types import Episode, EpisodeKey

_result_decoder = msgspec.json.Decoder(Result)


def agree(sealed: Episode, stored: Episode) -> bool:
    """Whether an outcome is what its attempt's `episode.json` says, or what a coordinator may have made of that."""
    if sealed == stored:
        return True
    blamed = sealed.failure is not None and sealed.failure.failure_class is FailureClass.AGENT
    died = stored.failure is not None and stored.failure.failure_class is FailureClass.DESKTOP
    overruled = msgspec.structs.replace(stored, failure=sealed.failure, score=sealed.score)
    return blamed and died and sealed.score.value == 0.0 and sealed == overruled


def has_manifest(sealed: Episode) -> bool:
    """Whether the attempt of an outcome must have left an `episode.json`."""
    made_here = (FailureClass.WORKER, FailureClass.CANCELLED)
    return sealed.failure is None or sealed.failure.failure_class not in made_here


class Evidence:
    """The files of one run, and which attempts its journal knows."""

    def __init__(self, storage: Storage, records: Iterable[JournalRecord]) -> None:
        self._storage = storage
        self._started: dict[tuple[EpisodeKey, int], None] = {}
        self._ended: set[tuple[EpisodeKey, int]] = set()
        for record in records:
            if isinstance(record, Started):
                self._started[record.key, record.attempt] = None
            elif isinstance(record, Sealed | Failed):
                self._ended.add((record.episode.key, record.episode.attempt))

    def episode(self, key: EpisodeKey, attempt: int) -> Episode | None:
        """What an attempt says of itself; None where it was not sealed, or cannot be read."""
        try:
            found = AttemptReader(self._storage, paths.attempt_folder(key, attempt)).episode()
        except StoreError:
            return None
        return found if found is not None and (found.key, found.attempt) == (key, attempt) else None

    def candidates(self, record: JournalRecord | None) -> Iterator[Episode]:
        """Attempts that a damaged line may have been about: the one that it names, and those without an end."""
        own = [(record.episode.key, record.episode.attempt)] if isinstance(record, Sealed) else []
        for key, attempt in [*own, *(each for each in self._started if each not in self._ended)]:
            if (episode := self.episode(key, attempt)) is not None:
                yield episode

    def contradicts(self, sealed: Episode) -> bool:
        """Whether an attempt's folder speaks against an outcome that no checksum vouches for."""
        if not has_manifest(sealed):
            return False
        if (stored := self.episode(sealed.key, sealed.attempt)) is not None:
            return not agree(sealed, stored)
        folder = paths.attempt_folder(sealed.key, sealed.attempt)
        if self._has_episodes and (left := self._storage.list(folder)):
            return paths.EPISODE_JSON not in left  # one that cannot be read says nothing
        return (sealed.key, sealed.attempt) not in self._started

    def confirms(self, episode: Episode) -> bool:
        """Whether `results.jsonl` says the same."""
        result = self._results.get((episode.key, episode.attempt))
        return result is not None and result == Result.of(episode, result.question)

    @functools.cached_property
    def _has_episodes(self) -> bool:
        return bool(self._storage.list(paths.EPISODES))

    @functools.cached_property
    def _results(self) -> dict[tuple[EpisodeKey, int], Result]:
        found = {}
        data = self._storage.read(paths.RESULTS) if self._storage.exists(paths.RESULTS) else b""
        for line in journal.lines(data) if data else []:
            try:
                each = _result_decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            key = EpisodeKey(phase=each.phase, round=each.round, task=each.task_id, sample=each.sample)
            found[key, each.attempt] = each
        return found
