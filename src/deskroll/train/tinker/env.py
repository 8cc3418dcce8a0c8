"""One episode as tinker's `Env`, and the group of a task as its `EnvGroupBuilder`.

tinker drives: `initial_observation` waits for the agent's first request, `step` answers it and waits for the next one.
The score is the reward of the last step. An episode without a score raises `EpisodeUnscored`, which tinker's strategies
take for a rollout that failed: they, and not we, try again. Guarantee: after `cleanup` no episode of the group runs,
and its desktops are with the pool, whoever was cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import tinker
from tinker_cookbook.completers import StopCondition
from tinker_cookbook.rl.types import (
    ActionExtra,
    Env,
    EnvGroupBuilder,
    InitialObservationOverflow,
    Metrics,
    StepResult,
    Trajectory,
)
from tinker_cookbook.rl.types import StopReason as TinkerStop

from deskroll.errors import FailureKind, plain
from deskroll.models.base import ContextTooLong
from deskroll.rollout.bound_model import session_of
from deskroll.rollout.config import RunConfig
from deskroll.train.driven import TRAIN, DrivenEpisode, EpisodeUnscored, RuntimeGone, drive
from deskroll.train.tinker.messages import Tokens
from deskroll.types import Episode, StopReason, Task

_log = logging.getLogger(__name__)
_TOO_LONG = 400
_STOPS = {
    StopReason.DONE: TinkerStop.COMPLETED,
    StopReason.FAIL: TinkerStop.COMPLETED,
    StopReason.ANSWER: TinkerStop.COMPLETED,
    StopReason.MAX_TURNS: TinkerStop.MAX_TURNS,
    StopReason.MAX_TOKENS: TinkerStop.MAX_TOKENS,
    StopReason.MAX_TIME: TinkerStop.ROLLOUT_TIMEOUT,
    StopReason.FAILURE: TinkerStop.PARSE_ERROR,
}


class DeskrollEnv(Env):
    """One episode, used once. Made by `DeskrollGroupBuilder.make_envs`."""

    def __init__(self, group: DeskrollGroupBuilder) -> None:
        self.outcome: Episode | None = None
        """How it ended, once it has."""
        self._group = group
        self._tokens = group.tokens
        self._episode: DrivenEpisode | None = None
        self._prompt = tinker.ModelInput.empty()
        self._closed = False

    async def initial_observation(self) -> tuple[tinker.ModelInput, StopCondition] | InitialObservationOverflow:
        """Begin the episode; what its agent asks first."""
        group = self._group
        episodes = await drive(group.config)
        if self._closed:
            raise EpisodeUnscored(f"an episode of task {group.task.id!r} was not wanted any more when it was to begin")
        self._episode = episodes.begin(group.task, group.phase, group.folder)
        if await self._observe(self._episode):
            return self._prompt, self._tokens.stop
        outcome = await self._ended(self._episode)
        if outcome.steps or not _overflowed(outcome):
            raise EpisodeUnscored(f"{session_of(outcome.key)}: its agent asked no model; there is nothing to sample")
        return InitialObservationOverflow(reward=outcome.points or 0.0, metrics=_metrics(outcome), logs=_logs(outcome))

    async def step(self, action: list[int], *, extra: ActionExtra | None = None) -> StepResult:
        """Give the agent what was sampled; what it asks next, or the score."""
        if self._episode is None:
            raise RuntimeError("initial_observation comes first")
        cut_off = (extra or {}).get("stop_reason") == "length"
        self._episode.answer(self._tokens.answer(self._prompt, action, cut_off=cut_off))
        if await self._observe(self._episode):
            return StepResult(
                reward=0.0, episode_done=False, next_observation=self._prompt, next_stop_condition=self._tokens.stop
            )
        outcome = await self._ended(self._episode)
        return StepResult(
            reward=outcome.points or 0.0, episode_done=True, next_observation=tinker.ModelInput.empty(),
            next_stop_condition=[], metrics=_metrics(outcome), logs=_logs(outcome),
        )  # fmt: skip

    async def close(self) -> None:
        """End it, wherever it stands."""
        self._closed = True
        if self._episode is not None:
            await self._episode.abandon()

    async def _observe(self, episode: DrivenEpisode) -> bool:
        """Wait for the next request; False: there is none, for the episode has ended."""
        while (request := await episode.request()) is not None:
            self._prompt = self._tokens.prompt(request)  # in no other thread: tokenizers refuse to be used by two
            most = self._group.max_prompt_tokens
            if most is None or self._prompt.length <= most:
                return True
            what = f"the prompt has {self._prompt.length:,} tokens, and max_prompt_tokens is {most:,}"
            episode.refuse(ContextTooLong(what, _TOO_LONG))
        return False

    async def _ended(self, episode: DrivenEpisode) -> Episode:
        self.outcome = await episode.outcome()
        return self.outcome


@dataclass
class DeskrollGroupBuilder(EnvGroupBuilder):
    """The environments of one task. What is pickled are settings; the runtime is found where it is unpickled."""

    config: RunConfig
    task: Task
    tokens: Tokens
    group_size: int = 4
    phase: str = TRAIN
    folder: str = ""
    """Where the files are that the task names; empty: the working folder."""
    max_prompt_tokens: int | None = None
    """A longer prompt ends the episode, with 0 for the agent; None: any is sampled from."""
    _made: list[DeskrollEnv] = field(default_factory=list, repr=False, compare=False)

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_made": []}

    async def make_envs(self) -> Sequence[DeskrollEnv]:
        """As many as a group has; none of them holds anything before it is asked for its first observation."""
        made = [DeskrollEnv(self) for _ in range(self.group_size)]
        self._made += made
        return made

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[Env]
    ) -> list[tuple[float, Metrics]]:
        """Nothing more: each trajectory has its score as its last reward."""
        return [(0.0, {}) for _ in trajectory_group]

    async def cleanup(self) -> None:
        """End what still runs, and wait until its desktops are with the pool."""
        made, self._made = self._made, []
        for error in await asyncio.gather(*(env.close() for env in made), return_exceptions=True):
            if isinstance(error, BaseException) and not isinstance(error, RuntimeGone):
                what = f"{type(error).__name__}: {plain(str(error))}"
                _log.error("an episode of task %r could not be ended: %s", plain(self.task.id), what)

    def logging_tags(self) -> list[str]:
        """Under which its metrics are told."""
        return ["deskroll", *([self.task.domain] if self.task.domain else [])]


def _overflowed(outcome: Episode) -> bool:
    return outcome.failure is not None and outcome.failure.kind is FailureKind.CONTEXT_TOO_LONG


def _metrics(outcome: Episode) -> Metrics:
    found: Metrics = {"score": outcome.points or 0.0, "turns": outcome.steps, "success": float(outcome.success)}
    stop = TinkerStop.CONTEXT_OVERFLOW if _overflowed(outcome) else _STOPS.get(outcome.stop)
    return found | ({f"stop/{stop}": 1.0} if stop is not None else {})


def _logs(outcome: Episode) -> dict[str, str | int | float]:
    name = f"{session_of(outcome.key)}#{outcome.attempt}"
    return {"episode": name, "stop": str(outcome.stop), "reason": outcome.score.reason, "desktop": outcome.desktop}
