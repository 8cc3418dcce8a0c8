"""GroupResult: what came of the episodes of one task in one round of a job."""

from __future__ import annotations

from deskroll.types import Episode, Record, Task


class GroupResult(Record, frozen=True):
    """A group all of whose episodes have their outcome."""

    phase: str
    round: int
    task: Task
    episodes: tuple[Episode, ...]
    """One for each sample, in their order."""
    resumed: bool = False
    """Whether all of it was done before: by an earlier start, or an earlier job of this name and round."""
