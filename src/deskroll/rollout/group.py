"""GroupResult: what came of the episodes of one task in one round of a job."""

from __future__ import annotations

from deskroll.types import Episode, GroupEnd, Record, Task


class GroupResult(Record, frozen=True):
    """A group all of whose episodes have their outcome."""

    phase: str
    round: int
    task: Task
    episodes: tuple[Episode, ...]
    """One for each sample, in their order; those that a policy gave up among them (`Episode.given_up`)."""
    end: GroupEnd = GroupEnd.COMPLETE
    """Why it was closed."""
    closed_at: float = 0.0
    """When that was, in seconds since the epoch."""
    resumed: bool = False
    """Whether all of it was done before: by an earlier start, or an earlier job of this name and round."""

    @property
    def opened_at(self) -> float:
        """When the first of the attempts that count was begun; 0: none was."""
        return min((each.started_at for each in self.episodes if each.started_at), default=0.0)

    @property
    def scores(self) -> tuple[float, ...]:
        """Of the members that have one."""
        return tuple(score for each in self.episodes if (score := each.points) is not None)

    @property
    def versions(self) -> tuple[str, ...]:
        """Of the weights that answered, in the order of first use."""
        return tuple(dict.fromkeys(version for each in self.episodes for version in each.versions))
