"""ServiceStatus: what a service on a runtime does at this moment, beside its episodes: batches, polls, consumers."""

from __future__ import annotations

from deskroll.types import Record


class RunningBatch(Record, frozen=True, omit_defaults=False):
    """A batch that was taken and is not through."""

    id: str
    round: int
    tasks: int
    left: int
    """Tasks whose group is not closed yet."""
    since: float
    """Seconds since the epoch: when it got its round."""


class BadBatchNote(Record, frozen=True, omit_defaults=False):
    """A batch that was set aside."""

    id: str
    error: str
    at: float


class ConsumerNote(Record, frozen=True, omit_defaults=False):
    """A consumer that asks over HTTP."""

    name: str
    done: int
    """Groups, in all."""


class ServiceStatus(Record, frozen=True, omit_defaults=False):
    """All of a service."""

    source: str
    done: int
    """Batches that were run to their end, over all starts."""
    running: tuple[RunningBatch, ...]
    waiting: int
    """Batches that were seen in the source and are not taken yet, as far as that is known."""
    bad: int
    """Batches that were set aside, over all starts."""
    last_bad: tuple[BadBatchNote, ...]
    """The last of them, the newest first."""
    passed: int
    """Batches that were passed over for newer ones."""
    next_poll: float | None
    """When the source is polled next, in seconds since the epoch; None: it is not waited for."""
    trouble: str
    """Why the source, or newer weights, cannot be had at the moment; empty: they can."""
    draining: bool
    """Whether no new batch is taken any more."""
    version: str
    """Of the weights that its own model servers have; empty: it has none, or they have no version."""
    consumers: tuple[ConsumerNote, ...]
    begun: bool = True
    """Whether its own models are up, where it has some, so that batches are taken."""

    @property
    def limit(self) -> str:
        """What it waits for while nothing is left to run, in one line."""
        if self.draining:
            return "nothing is left to do, and no new batch is taken"
        return "the source: no new batch is there" if self.next_poll is not None else "a batch is being made ready"
