"""Notebook: what is written down of one attempt while it runs, and the `Episode` that it ends as."""

from __future__ import annotations

import time

from deskroll.envs import Ending, Moment
from deskroll.errors import DeskrollError, FailureClass
from deskroll.rollout.budget import Budget
from deskroll.rollout.kit import Kit
from deskroll.rollout.live import Live
from deskroll.store import AttemptWriter
from deskroll.types import Decision, Episode, Failure, Phase, Score, Step, StopReason


class Notebook:
    """One attempt's files and figures."""

    def __init__(self, live: Live, kit: Kit) -> None:
        order = live.order
        self.writer = AttemptWriter(kit.storage, order.key, order.attempt)
        live.note = self._keep
        self.limits = kit.spec.limits
        self.budget = Budget(self.limits)
        self._live = live
        self._model = kit.model_name
        self._steps = self._actions = 0
        self._versions: dict[str, None] = {}
        self._stop = StopReason.FAILURE
        self._answer: str | None = None
        self._score = Score(value=None, reason="it did not end")
        self._failure: Failure | None = None
        self._spent = dict[str, float]()

    def _keep(self, name: str, data: bytes) -> None:
        self.writer.file(name, data)

    def step(self, decision: Decision, moment: Moment) -> None:
        """Write down one turn."""
        live, seen = self._live, moment.observation
        for phase, seconds in moment.seconds.items():
            live.shift(Phase.ACT, phase, seconds)
        before, self._spent = self._spent, dict(live.seconds)
        self.budget.used(decision.completion)
        self.writer.step(
            Step(
                index=self._steps,
                actions=decision.actions,
                thought=decision.thought,
                completion=decision.completion,
                sent=decision.sent,
                results=seen.results,
                screen=self.writer.screen(seen.screenshot) if seen.screenshot else "",
                seconds={name: _rounded(after - before.get(name, 0.0)) for name, after in self._spent.items()},
                settled=moment.settled,
            )
        )
        self._steps += 1
        self._actions += len(decision.actions)
        if decision.actions:
            self.budget.turns += 1
            live.turn = self.budget.turns
        if decision.completion is not None and decision.completion.version:
            self._versions[decision.completion.version] = None

    def scored(self, ending: Ending, score: Score) -> None:
        """It came to its end and was judged."""
        self._stop, self._answer, self._score = ending.stop, ending.answer, score

    def failed(self, error: DeskrollError) -> None:
        """It failed: by the agent, which is scored 0, or by anything else, which is not scored."""
        self._failure = failure = Failure.of(error)
        self._stop = StopReason.FAILURE
        blamed = failure.failure_class is FailureClass.AGENT
        self._score = Score(value=0.0 if blamed else None, reason=f"{failure.failure_class}: {failure.message}")

    def stopped(self, error: DeskrollError | None) -> None:
        """Somebody stopped it: because of an error, or because it was not wanted any more."""
        if error is not None:
            self.failed(error)
            return
        self._stop = StopReason.CANCELLED
        self._failure = Failure(failure_class=FailureClass.CANCELLED, kind="Cancelled", message="it was stopped")
        self._score = Score(value=None, reason="it was stopped")

    async def seal(self) -> Episode:
        """Make all of it durable."""
        live, order = self._live, self._live.order
        episode = Episode(
            key=order.key,
            attempt=order.attempt,
            stop=self._stop,
            score=self._score,
            failure=self._failure,
            steps=self._steps,
            actions=self._actions,
            answer=self._answer,
            domain=order.task.domain,
            desktop=live.desktop,
            model=self._model,
            versions=tuple(self._versions),
            usage=self.budget.usage(),
            started_at=live.started_at,
            ended_at=time.time(),
            seconds={name: _rounded(seconds) for name, seconds in live.seconds.items()},
        )
        await self.writer.seal(episode)
        return episode

    async def close(self) -> None:
        """Let go of its files; what was not sealed stays as evidence."""
        await self.writer.close()


def _rounded(seconds: float) -> float:
    return round(seconds, 5)
