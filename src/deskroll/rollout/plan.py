"""Plan: which episodes are to be run, less what was done before. Pure but for the journal that it reads and writes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import msgspec

from deskroll.errors import FailureClass, InputError
from deskroll.rollout.retry import begin_anew, is_infrastructure
from deskroll.store import Index, RunStore
from deskroll.store.index import GroupKey, Outcome
from deskroll.store.journal import Failed, GroupClosed, JournalRecord, Planned, Reopened, Sealed
from deskroll.tasks import task_digest
from deskroll.types import Episode, EpisodeKey, GroupEnd, Record, Task


class Group(Record, frozen=True):
    """The episodes of one task in one round."""

    task: Task
    keys: tuple[EpisodeKey, ...]
    """Those that are still to be run; none: all of it was done before."""


def changed_tasks(index: Index, phase: str, round_: int, tasks: Sequence[Task]) -> list[str]:
    """What of a plan that was journalled before is not as it was: one line for each task."""
    planned = index.plan(phase, round_)
    known = {task.id: task_digest(task) for task in tasks}
    changed = [
        f"task {name!r} has changed" if name in known else f"task {name!r} is gone"
        for name, each in planned.items()
        if each.samples and known.get(name) != each.digest
    ]
    added = [name for name in known if planned and name not in planned]
    if missing := index.unplanned(phase, round_):  # killed while it planned: those are its own, and no change
        own = len(added) == missing
        return changed if own else [*changed, f"{missing} tasks are not planned yet, and {len(added)} are there for it"]
    return [*changed, *(f"task {name!r} is new" for name in added)]


def failed_before(index: Index) -> dict[EpisodeKey, list[Episode]]:
    """Attempts of earlier starts that failed, of episodes that have no outcome since."""
    sealed: dict[EpisodeKey, int] = {}
    for record in index.records(Sealed):
        sealed[record.episode.key] = record.episode.attempt
    failed: dict[EpisodeKey, list[Episode]] = {}
    for each in index.records(Failed):
        episode = each.episode
        cancelled = episode.failure is not None and episode.failure.failure_class is FailureClass.CANCELLED
        if episode.attempt > sealed.get(episode.key, 0) and not cancelled:
            failed.setdefault(episode.key, []).append(episode)
            if each.anew:
                failed[episode.key] = begin_anew(failed[episode.key])
    return {key: history for key, history in failed.items() if history}


def filled_before(index: Index) -> Counter[GroupKey]:
    """How often earlier starts had members of a group sampled anew, of groups that are not closed since."""
    filled = Counter(
        (each.episode.key.phase, each.episode.key.round, each.episode.key.task)
        for each in index.records(Failed)
        if each.anew
    )
    closed = {key for key, last in index.groups.items() if isinstance(last, GroupClosed) and not _is_open(last)}
    return Counter({key: number for key, number in filled.items() if key not in closed})


def _is_open(closed: GroupClosed) -> bool:
    return closed.end in (None, GroupEnd.STOPPED)


def members(phase: str, round_: int, task: str, samples: int) -> list[EpisodeKey]:
    """Every episode of a group."""
    return [EpisodeKey(phase=phase, round=round_, task=task, sample=sample) for sample in range(samples)]


def _unfinished(index: Index, group: Sequence[EpisodeKey]) -> list[EpisodeKey]:
    """What of a group a start would run: what has no outcome, or one that infrastructure spoiled.

    Where its policy gave members up, the group is over, and what was spoiled of it stays so.
    """
    known = [(key, index.outcome(key)) for key in group]
    over = any(is_given_up(outcome) for _, outcome in known if outcome is not None)
    return [key for key, outcome in known if outcome is None or (is_infrastructure(outcome) and not over)]


def is_given_up(outcome: Outcome) -> bool:
    """Whether a policy did not want it any more."""
    return outcome.failure is not None and outcome.failure.failure_class is FailureClass.CANCELLED


def left_to_do(index: Index, phase: str, round_: int, tasks: Sequence[Task], samples: int) -> dict[str, int]:
    """How many episodes of each task a start would run; tasks of which none is left are not in it."""
    left = {}
    for task in tasks:
        if number := len(_unfinished(index, members(phase, round_, task.id, samples))):
            left[task.id] = number
    return left


def make_plan(
    store: RunStore, phase: str, round_: int, tasks: Sequence[Task], samples: int, *, whole: bool = True, spec: str = ""
) -> list[Group]:
    """Journal what is planned, take back outcomes that infrastructure spoiled, and return what is left to do.

    `spec`: the digest of what the episodes are made of, where that is noted.
    `whole`: the round has these tasks and no others; what was planned of it before and is not among them is dropped.
    """
    planned = store.index.plan(phase, round_)
    records: list[JournalRecord] = []
    groups = []
    for task in tasks:
        digest = task_digest(task)
        before = planned.get(task.id)
        if before is None or (before.digest, before.samples, before.spec or spec) != (digest, samples, spec):
            records.append(
                Planned(
                    phase=phase,
                    round=round_,
                    task=task.id,
                    samples=samples,
                    digest=digest,
                    domain=task.domain,
                    of=len(tasks) if whole else 0,
                    spec=spec,
                    revised=before is not None,
                )
            )
        keys = _unfinished(store.index, members(phase, round_, task.id, samples))
        for key in keys:
            if (episode := store.index.outcome(key)) is not None:
                why = f"{episode.failure.failure_class if episode.failure else 'unscored'}: it is run again"
                records.append(Reopened(key=key, epoch=store.epoch, at=time.time(), why=why))
        groups.append(Group(task=task, keys=tuple(keys)))
    if len({task.id for task in tasks}) != len(tasks):
        raise InputError("two tasks have the same id; ids must be unique")
    gone = planned.keys() - {task.id for task in tasks} if whole else set()
    records.extend(
        msgspec.structs.replace(planned[name], samples=0, of=len(tasks), revised=True)
        for name in sorted(gone)
        if planned[name].samples
    )
    store.write(*records)
    return groups
