"""`Results`: everything that a report needs of a stored run, read once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import yaml

from deskroll.errors import InputError, StoreError
from deskroll.report.made_of import made_of
from deskroll.report.stats import Plan, summarise
from deskroll.report.summary import Summary, Training
from deskroll.report.timeline import Start, starts_of
from deskroll.report.training import training_of
from deskroll.report.words import counted
from deskroll.store import Run, RunInfo, find_run, paths
from deskroll.store.index import GroupKey, group_of
from deskroll.store.journal import Closed, CloseReason, DesktopChanged, Failed, GroupClosed, Opened, Sealed, Started
from deskroll.store.results import known_questions
from deskroll.store.training import TrainRecord, read_training
from deskroll.types import Episode, EpisodeKey

_log = logging.getLogger(__name__)
COMPARED = 5000
"""Outcomes up to which each one is compared with its attempt's folder, which takes 0.2 s then; `Run.verify` does it for
any number."""


@dataclass(frozen=True)
class Results:
    """A run's outcomes and what surrounds them, as of one moment."""

    run: Run
    name: str
    state: str
    """Finished, running, stopped or broken off, with how many of how many."""
    planned: int
    plan: list[Plan]
    outcomes: list[Episode]
    retried: list[Episode]
    """Attempts that failed and were tried again, by a retry or by a resume."""
    changes: list[DesktopChanged]
    starts: list[Start]
    """From when to when each coordinator had it."""
    questions: dict[GroupKey, str] = field(default_factory=dict)
    """What the task of each group says, as far as it is known."""
    trained: list[TrainRecord] = field(default_factory=list)
    """Steps and evaluations of a training run."""

    @classmethod
    def read(cls, path: str | Path, *, newest: bool = False) -> Results:
        """Read the run that `path` means: its folder, its run.json, or a folder that holds one run.

        Of several runs in that folder, the newest where that is asked for. StoreError where its files are damaged.
        """
        try:
            root = find_run(path, newest=newest)
        except StoreError as error:
            raise InputError(str(error)) from error
        run = Run.open(root)
        _check_begun(run)
        _name_damage(run)
        outcomes, changes = run.outcomes(), run.desktop_changes()
        retried = _retried(run, outcomes)
        planned = sum(each.samples for each in run.index.planned)
        return cls(
            run=run,
            name=run.info.run_id or root.rpartition("/")[2],
            state=f"{_state(run)}: {len(outcomes):,} of {counted(planned, 'episode')}{_none_scored(outcomes)}",
            planned=planned,
            plan=_plan(run),
            outcomes=outcomes,
            retried=retried,
            changes=changes,
            starts=_starts(run, changes, outcomes + retried),
            questions=known_questions(run.storage),
            trained=read_training(run.storage),
        )

    @property
    def info(self) -> RunInfo:
        """What the run was made with."""
        return self.run.info

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """Its settings, with those of its jobs."""
        return made_of(self.run)

    def question(self, key: EpisodeKey) -> str:
        """What the task of an episode says; empty where it is not known."""
        return self.questions.get(group_of(key), "")

    def tasks(self) -> set[str]:
        """Every task of which anything is planned."""
        return {each.task for each in self.run.index.planned if each.samples}

    def summary(self) -> Summary:
        """What the run came to."""
        whole = self.run.index.plan_is_whole
        groups = [
            str(each.end) for each in self.run.index.groups.values() if isinstance(each, GroupClosed) and each.end
        ]
        found = summarise(self.planned, self.outcomes, plan=self.plan, retried=self.retried, groups=groups, whole=whole)
        return msgspec.structs.replace(found, training=self._training()) if self.is_training else found

    @property
    def is_training(self) -> bool:
        """Whether it is a training run, begun or over."""
        return bool(self.trained) or self.run.storage.exists(paths.TRAIN_CONFIG)

    def _training(self) -> Training:
        most = self.settings.get("num_rollouts")
        return training_of(
            self.trained, self.outcomes, [*self.outcomes, *self.retried], self.changes, self.starts,
            wanted=_wanted_steps(self.run), num_rollouts=most if isinstance(most, int) else None,
        )  # fmt: skip


def _plan(run: Run) -> list[Plan]:
    counts: Counter[tuple[str, str]] = Counter()
    for each in run.index.planned:
        counts[each.phase, each.domain] += each.samples
    return [Plan(phase=phase, domain=domain, episodes=number) for (phase, domain), number in counts.items()]


def _wanted_steps(run: Run) -> int | None:
    """How many steps a training run was to take, as its settings say; the report does without, where they are lost."""
    if not run.storage.exists(paths.TRAIN_CONFIG):
        return None
    try:
        kept = yaml.safe_load(run.storage.read(paths.TRAIN_CONFIG))
    except (yaml.YAMLError, UnicodeDecodeError):
        return None
    steps = kept.get("steps") if isinstance(kept, dict) else None
    return steps if isinstance(steps, int) else None


def _check_begun(run: Run) -> None:
    """Nobody shall take a run of which nothing is known for one that is finished."""
    if run.index.opened is None and run.holder() is None:
        raise StoreError(
            f"{run.storage.shown(paths.JOURNAL)} is missing or empty: the run was killed before it had begun, or its "
            "files are damaged. Resume it, or restore the file"
        )


def _name_damage(run: Run) -> None:
    for each in run.damage:
        _log.warning("%s", each)
    if run.storage.local and run.index.done <= COMPARED:
        for each in run.disagreements():
            _log.warning("%s", each)


def _retried(run: Run, outcomes: list[Episode]) -> list[Episode]:
    """Failed attempts, and outcomes that a resume took back; not those of episodes that are no longer planned."""
    counting = {(episode.key, episode.attempt) for episode in outcomes}
    failed = [record.episode for record in run.records(Failed)]
    sealed = (record.episode for record in run.records(Sealed))
    failed += [episode for episode in sealed if (episode.key, episode.attempt) not in counting]
    return [episode for episode in failed if not run.index.dropped(episode.key)]


def _starts(run: Run, changes: list[DesktopChanged], attempts: list[Episode]) -> list[Start]:
    opened, closed = list(run.records(Opened)), list(run.records(Closed))
    times: list[float] = []
    if len(closed) < len(opened):  # after a crash, other records tell until when it went on
        times = [each.at for each in changes] + [each.ended_at for each in attempts]
        times += [each.at for each in run.records(Started)]
    return starts_of(opened, closed, times)


def _state(run: Run) -> str:
    if run.holder() is not None and not (run.index.finished and run.info.has_tasks):  # else more may come
        return "running"
    if run.index.finished:
        return "finished"
    closed = run.index.closed
    if closed is None:
        return "broken off" if run.storage.local else "not closed"
    return "failed" if closed.why is CloseReason.FAILED else "stopped"


def _none_scored(outcomes: list[Episode]) -> str:
    spoiled = any(each.failure is not None for each in outcomes) and not any(each.score.scored for each in outcomes)
    return ", none scored" if spoiled else ""
