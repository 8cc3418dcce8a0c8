"""TrainLoop: baseline, steps and evaluations on one runtime.

Groups are generated as the pace allows (`staleness.py`) while the trainer works; a step is taken on the next batch of
groups with a signal, its weights are saved, noted in `train.jsonl`, and brought to the servers. An evaluation is of one
version: adapters are pinned for it by their name, and nothing waits; with whole weights, which servers change in place,
no step is taken while it runs, and what capacity it leaves generates.

Guarantees: a group is trained on at most once; a step that is in the log has its weights and its trainer's state on the
disk, and a resume goes on after the last of them; a trainer or a refresh that fails leaves the last good weights
serving, and the third failure in a row ends the run, resumable. A batch that the trainer refuses for what is in it ends
it at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deskroll.errors import DeskrollError, Untrainable, first_error
from deskroll.events import LoopWait
from deskroll.report.intervals import percentile
from deskroll.rollout.group import GroupResult
from deskroll.rollout.job import Job
from deskroll.rollout.runtime import Runtime
from deskroll.rollout.samples import Advantage, ImageToken, Weight
from deskroll.rollout.spec import EpisodeSpec
from deskroll.store.training import BASELINE, EVAL, TRAIN, EvalRecord, StepRecord, UsedGroup
from deskroll.train.base import StepReport, TrainBatch
from deskroll.train.checkpoints import Checkpoints
from deskroll.train.feed import Feed, Taken, version_of
from deskroll.train.log import TrainLog
from deskroll.train.order import TaskOrder
from deskroll.train.sequences import sequences_of
from deskroll.train.staleness import Pace
from deskroll.train.telling import LoopEvents
from deskroll.types import Episode, Task

_FAILURES = 3
"""So many in a row, of the trainer or of refreshes, end the run."""


@dataclass(frozen=True)
class TrainPlan:
    """What is done."""

    tasks: Sequence[Task]
    spec: EpisodeSpec
    steps: int
    pace: Pace
    group_size: int = 4
    seed: int = 0
    eval_tasks: Sequence[Task] = ()
    eval_spec: EpisodeSpec | None = None
    eval_samples: int = 1
    eval_every: int = 10
    """0: never."""
    baseline: bool = True
    baseline_only: bool = False
    advantage: Advantage = Advantage.CENTRED
    weight: Weight = Weight.EPISODE
    image_token: ImageToken = None
    folder: str = ""
    """Where the files are that training tasks name."""
    eval_folder: str = ""
    """The same of evaluation tasks."""


class TrainerHandle(Protocol):
    """A trainer in a process of its own."""

    async def open(self, checkpoint: Path, state: Path | None) -> None:
        """Load these weights; `TrainerError` where they cannot be trained. A process that died is started again."""

    async def step(self, batch: TrainBatch) -> StepReport:
        """Take a step."""

    async def save(self, folder: Path) -> None:
        """Write the weights into a folder."""

    async def save_state(self, folder: Path) -> None:
        """Write what it goes on from into a folder."""


class Servers(Protocol):
    """Whoever serves the model."""

    @property
    def keeps_versions(self) -> bool:
        """Whether a version can be pinned, and goes on being served beside newer ones."""

    def pinned(self, version: int) -> AbstractAsyncContextManager[str]:
        """Have a version served for the length of the block; the name to ask for it by, empty where none can be."""

    async def reload(self, folder: Path) -> object:
        """Serve the weights in a folder; a `DeskrollError` where no server takes them."""


@dataclass(frozen=True)
class _Due:
    """An evaluation that is to be made."""

    phase: str
    step: int
    version: int


class TrainLoop:
    """One start of a training run; `run` it once."""

    def __init__(
        self, plan: TrainPlan, runtime: Runtime, trainer: TrainerHandle, servers: Servers, checkpoints: Checkpoints,
        log: TrainLog, tell: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._plan = plan
        self.runtime = runtime
        self._trainer = trainer
        self._servers = servers
        self._checkpoints = checkpoints
        self.log = log
        self._tell = tell
        self._failures = 0
        self._evaluation: asyncio.Task[None] | None = None
        """The last one that was begun."""
        self._pins: list[int] = []
        """Versions that evaluations are of, where they are pinned."""
        done = log.steps[-1].step if log.steps else 0
        self.feed = _feed(plan, runtime, log, done)
        self._events = LoopEvents(runtime.hub, self.feed)
        self._refresh_s = 0.0
        self._pinned = asyncio.Event()
        """Set once the version of the last evaluation is pinned, where it can be."""

    @property
    def step(self) -> int:
        """How many steps were taken."""
        return self.feed.step

    @property
    def is_over(self) -> bool:
        """Whether all steps were taken, and every evaluation was made that is due by now."""
        plan = self._plan
        left = range(0 if self._servers.keeps_versions else self.step, self.step + 1)
        return (plan.baseline_only or self.step >= plan.steps) and not any(map(self._due_after, left))

    def stop(self, now: bool = False) -> None:
        """Start nothing more: a step that is being taken is finished, and so are episodes, unless `now`."""
        self.feed.end()
        self.runtime.stop(now)

    async def farewell(self) -> str:
        """What becomes of what runs, once it was told to stop, in words."""
        return f"stopping after step {self.step}: episodes under way will finish; Ctrl-C again stops now"

    async def run(self) -> None:
        """To the last step, or until the runtime is told to stop."""
        try:
            await self._run()
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None

    async def _run(self) -> None:
        plan = self._plan
        self._events.start(plan.steps, plan.pace.groups_per_batch)
        async with asyncio.TaskGroup() as work:
            await self._begin_missed(work)
            self._begin_evaluation(work)
            if not plan.baseline_only and self.step < plan.steps:
                job = self.runtime.run(Job(TRAIN, self.feed, plan.spec, plan.group_size, folder=plan.folder))
                collecting = work.create_task(self._collect(job))
                try:
                    await self._take_steps(work)
                finally:
                    self._events.wait(LoopWait.NOTHING)
                    self.feed.end()
                    if self.step >= plan.steps:
                        job.stop(now=True)  # nobody would use what it still generates
                await collecting
            else:
                self._events.wait(LoopWait.NOTHING)

    async def _collect(self, job: object) -> None:
        try:
            async for group in job:  # type: ignore[attr-defined]
                self.feed.note_closed(group)
                self._events.collect(group)
        finally:
            self.feed.end()

    async def _take_steps(self, work: asyncio.TaskGroup) -> None:
        while self.step < self._plan.steps:
            begun = time.monotonic()
            self._events.wait(LoopWait.GROUPS)
            if (taken := await self.feed.take()) is None:
                return
            ready = time.monotonic()
            if not await self._hold():
                return
            seconds = {
                "refresh": self._refresh_s, "generate": ready - begun, "hold": time.monotonic() - ready,
            }  # fmt: skip
            await self._take_step(taken, seconds)
            self._begin_evaluation(work)

    async def _take_step(self, taken: Taken, seconds: dict[str, float]) -> None:
        plan, step = self._plan, self.step + 1
        for group in taken.withheld:
            self.runtime.withhold(group)
        root = Path(self.runtime.folder)
        sequences = await asyncio.to_thread(
            sequences_of, taken.groups, self.runtime.store, root, advantage=plan.advantage, weight=plan.weight,
            image_token=plan.image_token,
        )  # fmt: skip
        report = await self._train(TrainBatch(step=step, sequences=tuple(sequences)), seconds)
        record = _record(step, taken, len(sequences), report, seconds, self.feed.version)
        self.log.append(record)
        self._events.take(record)
        self._tell(
            f"step {step}/{plan.steps}: reward {record.reward:.3f}, lag {record.lag_p50:g} (most {record.lag_max}), "
            f"{len(record.no_signal)} groups without signal, {sum(seconds.values()):.1f} s"
        )
        await self._refresh(step)
        self.feed.done(step)  # not before: what is begun from now on is sampled with the new weights

    async def _train(self, batch: TrainBatch, seconds: dict[str, float]) -> StepReport:
        """Take the step and save what comes of it; the trainer is begun anew where it fails."""
        failures = 0
        while True:
            begun = time.monotonic()
            self._events.wait(LoopWait.TRAINER)
            try:
                if failures:
                    before = batch.step - 1
                    await self._trainer.open(self._checkpoints.folder(before), self._checkpoints.state(before))
                report = await self._trainer.step(batch)
                seconds["train"] = time.monotonic() - begun
                self._events.wait(LoopWait.CHECKPOINT)
                await self._checkpoints.save(batch.step, self._trainer.save, self._trainer.save_state)
            except DeskrollError as error:
                failures += 1
                self._events.fail(batch.step, failures, error)
                if failures == _FAILURES or isinstance(error, Untrainable):
                    raise
                self._tell(f"step {batch.step} failed, and is taken again: {error}")
            else:
                seconds["save"] = time.monotonic() - begun - seconds["train"]
                return report

    async def _refresh(self, step: int) -> None:
        """Bring the weights of a step to the servers."""
        begun = time.monotonic()
        self._events.wait(LoopWait.SERVERS)
        try:
            await self._servers.reload(self._checkpoints.folder(step))
        except DeskrollError as error:  # no server takes them, or they are refused before one is asked
            self._failures += 1
            self._events.refuse(step, error)
            if self._failures == _FAILURES:
                raise
            self._tell(f"version {step} is not served, and version {self.feed.version} goes on: {error}")
        else:
            self._failures = 0
            self.feed.version = step
            self._events.serve(step, time.monotonic() - begun)
        self._refresh_s = time.monotonic() - begun
        self._checkpoints.prune(step, self.feed.version, *self._pins)

    # --- evaluations ---

    def _begin_evaluation(self, work: asyncio.TaskGroup) -> None:
        """Where one is due after this many steps, and was not made: begin it."""
        if (phase := self._due_after(self.step)) is not None:
            self._begin(work, phase, self.step, self.feed.version)

    async def _begin_missed(self, work: asyncio.TaskGroup) -> None:
        """Begin those that an earlier start left while steps went on: of older versions, each loaded once more."""
        due = {step: phase for step in range(self.step) if (phase := self._due_after(step)) is not None}
        missed = due if self._servers.keeps_versions else {}  # whole weights take no step meanwhile
        for step, phase in missed.items():
            if not self._checkpoints.is_whole(step):
                self._tell(f"{phase} after step {step} was not finished, and its weights are gone: it is left out")
                continue
            if step:
                await self._servers.reload(self._checkpoints.folder(step))
            self._begin(work, phase, step, step)
            await self._pinned.wait()
        if any(missed):
            await self._servers.reload(self._checkpoints.folder(self.step))

    def _due_after(self, step: int) -> str | None:
        """The phase of the evaluation after so many steps; None: there is none, or it was made."""
        plan = self._plan
        if step == 0:
            phase, due = BASELINE, plan.baseline or plan.baseline_only
        else:
            phase, due = EVAL, plan.eval_every > 0 and (step % plan.eval_every == 0 or step >= plan.steps)
        return phase if due and plan.eval_tasks and (phase, step) not in self.log.evaluated else None

    def _begin(self, work: asyncio.TaskGroup, phase: str, step: int, version: int) -> None:
        if (spec := self._plan.eval_spec) is None:
            return
        self._pinned = asyncio.Event()
        evaluation = self._evaluate(_Due(phase, step, version), spec, self._pinned, self._evaluation)
        self._evaluation = work.create_task(evaluation)

    async def _evaluate(
        self, due: _Due, spec: EpisodeSpec, pinned: asyncio.Event, before: asyncio.Task[None] | None
    ) -> None:
        """`before`: the evaluation that ends first: one job of a name runs at a time."""
        async with self._servers.pinned(due.version) as name:
            self._pins.append(due.version)
            pinned.set()
            if before is not None:
                await before
            await self._evaluate_pinned(due.phase, due.step, spec, name)
        self._pins.remove(due.version)

    async def _evaluate_pinned(self, phase: str, step: int, spec: EpisodeSpec, name: str) -> None:
        plan, begun = self._plan, time.monotonic()
        asking = spec.model.model_copy(update={"served_as": name})
        spec = spec.model_copy(update={"model": asking})
        self._events.evaluate(phase, step, len(plan.eval_tasks) * plan.eval_samples)
        job = Job(phase, plan.eval_tasks, spec, plan.eval_samples, round=step, priority=1, folder=plan.eval_folder)
        episodes = [each async for group in self.runtime.run(job) for each in group.episodes]
        if len(episodes) < len(plan.eval_tasks) * plan.eval_samples:
            return  # it was stopped: a resume does the rest
        record = _evaluated(phase, step, episodes, time.monotonic() - begun)
        self.log.append(record)
        self._events.end_evaluation(record)
        mean = "nothing was scored" if record.mean_score is None else f"mean score {record.mean_score:.3f}"
        self._tell(f"{phase} after step {step}: {mean}, {record.successes} of {record.scored} scored succeed")

    async def _hold(self) -> bool:
        """Wait until weights may change: for the end of an evaluation, or until its version is pinned; False: the run
        was told to stop meanwhile, and a step would leave an evaluation behind that a resume can finish."""
        if self._evaluation is None:
            return True
        if self._servers.keeps_versions:
            await self._pinned.wait()
            return True
        if not self._evaluation.done():
            self._events.wait(LoopWait.EVALUATION)
        await self._evaluation
        return not self.feed.has_ended


def _feed(plan: TrainPlan, runtime: Runtime, log: TrainLog, done: int) -> Feed:
    """The groups that are left over from earlier starts first, and then on where those were."""
    order, passed = TaskOrder(plan.tasks, plan.seed), log.passed()
    following = sum(each.phase == TRAIN for each in runtime.store.index.planned)
    names = (order.at(number) for number in range(following))
    begun = [number for number, (round_, task) in enumerate(names) if (round_, task.id) not in passed]
    return Feed(order, plan.pace, step=done, begun=begun, following=following)


def _record(
    step: int, taken: Taken, sequences: int, report: StepReport, seconds: dict[str, float], served: int
) -> StepRecord:
    groups = tuple(_used(group, step - 1) for group in taken.groups)
    scores = [score for group in taken.groups for score in group.scores]
    lags = sorted(float(group.lag) for group in groups)
    return StepRecord(
        step=step,
        at=time.time(),
        groups=groups,
        withheld=tuple((group.round, group.task.id) for group in taken.withheld),
        no_signal=tuple(taken.no_signal),
        failed=tuple(taken.failed),
        reward=sum(scores) / len(scores),
        lag_p50=percentile(lags, 0.5),
        lag_p95=percentile(lags, 0.95),
        lag_max=int(lags[-1]),
        sequences=sequences,
        report=report,
        seconds={name: round(value, 3) for name, value in seconds.items()},
        served=served,
    )


def _used(group: GroupResult, step: int) -> UsedGroup:
    return UsedGroup(
        round=group.round, task=group.task.id, attempts=tuple(each.attempt for each in group.episodes),
        score=sum(group.scores) / len(group.scores), lag=step - version_of(group, step),
    )  # fmt: skip


def _evaluated(phase: str, step: int, episodes: Sequence[Episode], seconds: float) -> EvalRecord:
    scores = [score for each in episodes if (score := each.points) is not None]
    return EvalRecord(
        phase=phase,
        step=step,
        at=time.time(),
        episodes=len(episodes),
        scored=len(scores),
        successes=sum(each.success for each in episodes),
        mean_score=sum(scores) / len(scores) if scores else None,
        versions=tuple(dict.fromkeys(version for each in episodes for version in each.versions)),
        seconds=round(seconds, 3),
    )
