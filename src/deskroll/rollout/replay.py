"""An episode played again: the same loop, set-up and desktops, with an agent that repeats what was done.

A replay is a run of one episode in a folder of its own, so nothing is done here that a run does not do. Guarantees: the
run that is replayed is only read.
"""

from __future__ import annotations

from dataclasses import dataclass

from deskroll.config import Override
from deskroll.errors import InputError, plain
from deskroll.export.difference import TOLERANCE, Difference, compare
from deskroll.export.episodes import beginning
from deskroll.export.pictures import open_image
from deskroll.rollout.config import RunConfig, RunLimits
from deskroll.rollout.loading import resume_run
from deskroll.store import AttemptReader, Run
from deskroll.store.index import shown
from deskroll.tasks import task_digest
from deskroll.types import Episode, EpisodeKey, Record, Score, Task

AGENT = "deskroll.agents.replay:ReplayAgent"
BEGINNING = -1
"""The number of the screen that was seen before the first step."""
_RECORDING = ("enable_recording", "recording_fps")


class Compared(Record, frozen=True, omit_defaults=False):
    """One screen, stored and replayed."""

    step: int
    """After which step it was seen; -1: before the first."""
    same: bool
    difference: Difference
    stored: str
    """The names of both, each in its attempt."""
    replayed: str


class Comparison(Record, frozen=True, omit_defaults=False):
    """What a replay came to."""

    run_id: str
    task_id: str
    sample: int
    attempt: int
    same: bool
    """Whether all screens (and the score, where it was asked for) are the same, and the replay came to its end."""
    first_difference: int | None
    """The step after which screens first differ."""
    tolerance: float
    screens: tuple[Compared, ...]
    missing: tuple[int, ...]
    """Steps of which one side has a screen and the other has none."""
    failure: str | None
    """Why the replay did not come to its end."""
    stored_score: float | None
    score: float | None
    score_reason: str


@dataclass(frozen=True)
class Source:
    """The attempt that is replayed."""

    run: Run
    key: EpisodeKey
    attempt: int
    reader: AttemptReader
    stored_score: float | None
    config: RunConfig
    task: Task

    @classmethod
    def find(
        cls, root: str, key: EpisodeKey, attempt: int, overrides: tuple[Override, ...] = (), *, force: bool = False
    ) -> Source:
        """An attempt of a run, with the settings and the task that it was made with; `InputError` where that fails."""
        run = Run.open(root)
        reader = run.attempt(key, attempt)
        _, config, tasks = resume_run(root, ['pool=""', *overrides])
        task = next((each for each in tasks if each.id == key.task), None)
        if task is None:
            raise InputError(f"{config.tasks} has no task {plain(key.task)!r} any more: it cannot be set up")
        digests = {each.digest for each in run.index.planned if each.task == key.task and each.digest}
        if digests and task_digest(task) not in digests and not force:
            raise InputError(
                f"task {plain(key.task)!r} in {config.tasks} is not what it was when {shown(key)} ran: "
                "restore it, or replay on the changed one with --force"
            )
        if not any(step.actions for step in reader.steps()):
            raise InputError(f"{shown(key)}, attempt {attempt}: nothing was done in it, so there is nothing to replay")
        outcome = run.index.episode(key)
        known = outcome if outcome is not None and outcome.attempt == attempt else reader.episode()
        return cls(run, key, attempt, reader, known.score.value if known else None, config, task)

    @property
    def name(self) -> str:
        """For people."""
        return f"{shown(self.key)}, attempt {self.attempt}"

    @property
    def has_screens(self) -> bool:
        """Whether there is anything to lay beside the replay's screens."""
        return bool(_screens(self.reader))

    def replay_config(self, output_dir: str, *, score: bool) -> RunConfig:
        """The settings of the replay: those of the run, for one episode on one desktop."""
        turns = sum(bool(step.actions) for step in self.reader.steps())
        config = self.config
        limits = RunLimits(
            max_turns=turns,
            max_time=None,
            setup_timeout=config.limits.setup_timeout,
            score_timeout=config.limits.score_timeout,
        )
        options = {name: value for name, value in config.env_options.items() if name not in _RECORDING}
        settings = {"run": self.run.root, "attempt": self.reader.folder}
        update = {
            "agent": AGENT, "agent_options": settings, "env_options": options, "evaluate": score, "limits": limits,
            "group_size": 1, "num_rollouts": 1, "max_concurrent_rollouts": None, "reserved": {}, "num_vms": 1,
            "min_vms": None, "backend": "inline", "metrics": "", "output_dir": output_dir, "run_id": "replay",
        }  # fmt: skip
        return config.model_copy(update=update)


def compare_attempts(
    source: Source, outcome: Episode, replayed: AttemptReader, tolerance: float = TOLERANCE, *, score: bool = False
) -> Comparison:
    """Lay a replay beside what it repeats."""
    mine, theirs = _screens(source.reader), _screens(replayed)
    screens = tuple(
        _compared(step, source.reader, mine[step], replayed, theirs[step], tolerance)
        for step in sorted(mine.keys() & theirs.keys())
    )
    missing = tuple(sorted((mine.keys() ^ theirs.keys()) - {BEGINNING}))
    differing = [each.step for each in screens if not each.same] + list(missing)
    judged = outcome.score if score else Score(value=None, reason="")
    failure = None if outcome.failure is None else f"{outcome.failure.failure_class}: {outcome.failure.message}"
    same = not differing and failure is None and (not score or judged.value == source.stored_score)
    return Comparison(
        run_id=source.run.info.run_id, task_id=source.key.task, sample=source.key.sample, attempt=source.attempt,
        same=same, first_difference=min(differing, default=None), tolerance=tolerance, screens=screens,
        missing=missing, failure=failure, stored_score=source.stored_score, score=judged.value,
        score_reason=judged.reason,
    )  # fmt: skip


def _screens(attempt: AttemptReader) -> dict[int, str]:
    """The screen after each step that has one, and the one of the beginning."""
    steps = attempt.steps()
    first = beginning(steps, attempt.files())
    found = {step.index: step.screen for step in steps if step.screen}
    return ({BEGINNING: first} if first else {}) | found


def _compared(
    step: int, source: AttemptReader, stored: str, replay: AttemptReader, replayed: str, tolerance: float
) -> Compared:
    images = source.image(stored), replay.image(replayed)
    if images[0] == images[1]:
        found = Difference()
    else:
        found = compare(open_image(images[0], f"{source.folder}/{stored}"), open_image(images[1], replayed))
    same = found.share <= tolerance
    return Compared(step=step, same=same, difference=found, stored=stored, replayed=replayed)
