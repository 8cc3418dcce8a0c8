"""EpisodeRecorder: what is written down of one attempt while it runs, and the `Episode` that it ends as."""

from __future__ import annotations

import math
import time

import msgspec

from deskroll.envs import Ending, TurnResult
from deskroll.errors import DeskrollError, EvaluatorError, FailureClass, FailureKind
from deskroll.rollout.budget import Budget
from deskroll.rollout.context import EpisodeContext
from deskroll.rollout.live_attempt import LiveAttempt
from deskroll.rollout.traces import CLOSE_ERROR, ERROR
from deskroll.rollout.turns import has_ids, joins
from deskroll.scoring.excerpt import shorten
from deskroll.store import AttemptWriter
from deskroll.types import Completion, Decision, Episode, Failure, Observation, Score, Stage, Step, StopReason

LONGEST_ANSWER = 100_000
"""Characters of an answer that are kept with the outcome; all of it is in the conversation."""


class EpisodeRecorder:
    """One attempt's files and figures."""

    def __init__(self, live: LiveAttempt, context: EpisodeContext) -> None:
        order = live.order
        self.writer = AttemptWriter(context.storage, order.key, order.attempt)
        live.note = self.keep
        self.limits = context.spec.limits
        self.budget = Budget(self.limits)
        self.judged = False
        """Whether it came to its end: what becomes of it is known, and no stop can change that."""
        self._live = live
        self._traces = context.traces
        self._shown = context.storage.shown
        self._model = context.model_name
        self._steps = self._actions = 0
        self._versions: dict[str, None] = {}
        self._asked: Decision | None = None
        """The last turn in which the model was asked."""
        self._joinable = self._joined = 0
        self._stop = StopReason.FAILURE
        self._answer: str | None = None
        self._score = Score(value=None, reason="it did not end")
        self._failure: Failure | None = None
        self._spent = dict[str, float]()
        self._pending: Decision | None = None
        """What the agent decided and of which nothing has come yet."""

    def keep(self, name: str, data: bytes) -> None:
        """Keep a file with the attempt."""
        self.writer.file(name, data)

    def begin(self) -> None:
        """It has begun: from now on there is something of it to keep."""
        self.writer.task(self._live.order.task)

    def count(self, completion: Completion) -> None:
        """Count an answer that the environment had from a model."""
        self.budget.count(completion)

    def note_decision(self, decision: Decision) -> None:
        """The agent has decided: from now on what happens may be its doing."""
        msgspec.json.encode(
            (decision.actions, decision.thought, decision.notes)
        )  # what cannot be written down is no decision
        self._pending = decision
        self._actions += len(decision.actions)
        self.budget.count(decision.completion)
        if (said := decision.completion) is not None:
            self._versions |= dict.fromkeys(filter(None, (said.version, said.version_end)))
            if self._asked is not None and has_ids(self._asked) and has_ids(decision):
                self._joinable += 1
                self._joined += joins(self._asked, decision)
            self._asked = decision

    def step(self, turn: TurnResult) -> None:
        """Write down the turn that was decided on, and what came of it."""
        decision, self._pending = self._pending, None
        if decision is None:
            raise RuntimeError("a step follows a decision")
        for stage, seconds in turn.seconds.items():
            self._live.shift(Stage.ACT, stage, seconds)
        self._write(decision, turn.observation, turn.settled)
        if turn.answer is not None:  # kept at once: judging it may fail
            self._answer = _writable(turn.answer)[:LONGEST_ANSWER]
        self.budget.count_turn(decision)
        self._live.turn = self.budget.turns

    def _write(self, decision: Decision, seen: Observation, settled: str = "") -> None:
        before, self._spent = self._spent, dict(self._live.seconds)
        self.writer.step(
            Step(
                index=self._steps,
                actions=decision.actions,
                thought=decision.thought,
                completion=decision.completion,
                sent=decision.sent,
                notes=decision.notes,
                results=tuple(map(_writable, seen.results)),
                screen=self.writer.screen(seen.screenshot) if seen.screenshot else "",
                seconds={
                    name: _rounded(after - before.get(name, 0.0))
                    for name, after in self._spent.items()
                    if after != before.get(name, 0.0)
                },
                settled=settled,
            )
        )
        self._steps += 1

    def note_score(self, ending: Ending, score: Score) -> None:
        """It came to its end and was judged."""
        given: object = score  # a plug-in's, so anything
        if not isinstance(given, Score) or not (given.value is None or math.isfinite(given.value)):
            raise EvaluatorError(f"the evaluation gave {given!r:.200}; a Score with a finite value, or none, is wanted")
        kept = {name: self._brief(getattr(score, name)) for name in ("found", "expected")}
        kept["reason"] = self._hidden(score.reason)
        self._stop, self._score, self.judged = ending.stop, msgspec.structs.replace(score, **kept), True

    def _brief(self, text: object) -> str | None:
        """Short, writable and without secrets, whoever wrote it."""
        return None if text is None else shorten(self._hidden(text))

    def _hidden(self, text: object) -> str:
        """Writable and without secrets."""
        return self._traces.hide(_writable(str(text)))

    def note_failure(self, error: DeskrollError) -> None:
        """It failed: by the agent, which is scored 0, or by anything else, which is not scored."""
        failure = Failure.of(error)
        message, trace = self._hidden(failure.message), self._traced(error, ERROR)
        self._failure = failure = msgspec.structs.replace(failure, message=message, trace=trace)
        self._stop = StopReason.FAILURE
        blamed = failure.failure_class is FailureClass.AGENT
        self._score = Score(value=0.0 if blamed else None, reason=f"{failure.failure_class}: {failure.message}")

    def note_unclosed(self, error: BaseException) -> None:
        """Its environment could not be closed, which changes nothing of the result."""
        self._traced(error, CLOSE_ERROR)

    def _traced(self, error: BaseException, name: str) -> str:
        """Keep where in others' code an error came from, and tell where that is; the file's name, or nothing."""
        if not (trace := self._traces.trace(error)):
            return ""
        kept = self.writer.file(name, trace.encode(errors="replace"))
        self._traces.tell(self._live.order.name, error, trace, self._shown(f"{self.writer.name}/{kept}"))
        return kept

    def note_stop(self, error: DeskrollError | None) -> None:
        """Somebody stopped it: because of an error, or because it was not wanted any more."""
        if error is not None:
            self.note_failure(error)
            return
        self._stop = StopReason.CANCELLED
        self._failure = Failure(
            failure_class=FailureClass.CANCELLED, kind=FailureKind.CANCELLED, message="it was stopped"
        )
        self._score = Score(value=None, reason="it was stopped")

    async def seal(self) -> Episode:
        """Make all of it durable."""
        if self._pending is not None:  # it was decided on, and nothing ever came of it
            decision, self._pending = self._pending, None
            self._write(decision, Observation())
        live, order = self._live, self._live.order
        self.writer.task(order.task)  # of one that failed before it began
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
            joinable=self._joinable,
            joined=self._joined,
            usage=self.budget.usage(),
            started_at=live.started_at,
            ended_at=time.time(),
            seconds={name: _rounded(seconds) for name, seconds in live.seconds.items()},
        )
        await self.writer.seal(episode)
        return episode

    async def discard(self) -> None:
        """It never began: nothing is kept of it."""
        await self.writer.discard()

    async def close(self) -> None:
        """Let go of its files; what was not sealed stays as evidence."""
        await self.writer.close()


def _writable(text: str) -> str:
    """Half characters, which no file can hold, are replaced."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _rounded(seconds: float) -> float:
    return round(seconds, 5)
