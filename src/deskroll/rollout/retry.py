"""What becomes of an attempt: sealed as it is, blamed on the agent, or tried again. Pure: history in, verdict out.

class       tried again                               when that is used up
agent       never                                     scored 0
model       `model` times                             not scored
desktop     `desktop` times, on another desktop       not scored
..          died of what was done in it, after the
            agent's first action: once; a second
            such death elsewhere                      the agent's: desktop_lost, scored 0
setup       `setup` times, on another desktop         not scored
env         `env` times                               not scored
evaluator   `evaluator` times                         not scored
worker      once, alone in a process                  not scored
cancelled   never now; a resume does it               no outcome
..          given up by its group's policy: never     not scored, and not counted
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from pydantic import Field

from deskroll.config import Settings
from deskroll.errors import DeathCause, FailureClass, FailureKind
from deskroll.host.backoff import Backoff
from deskroll.types import Episode, Failure, Record, Score

if TYPE_CHECKING:
    from deskroll.store.index import Outcome


class Retries(Settings):
    """How often an attempt is made again, by the class of its failure."""

    model: int = Field(default=2, ge=0)
    """After the model's server failed (its client has its own retries before that)."""
    desktop: int = Field(default=3, ge=0)
    """After a desktop failed."""
    setup: int = Field(default=2, ge=0)
    """After the task could not be prepared."""
    env: int = Field(default=1, ge=0)
    """After a bug in the environment or one of its tools."""
    evaluator: int = Field(default=1, ge=0)
    """After the attempt could not be judged."""
    backoff: float = Field(default=1.0, ge=0)
    """Pause before the first retry, in seconds; doubled with each further one, and varied by half."""
    backoff_max: float = Field(default=60.0, ge=0)
    """The longest pause, in seconds."""


class Verdict(Record, frozen=True):
    """What to do with the last attempt of a history."""

    seal: Episode | None = None
    """The outcome; None: there is none yet."""
    again: bool = False
    pause: float = 0.0
    isolated: bool = False
    anew: bool = False
    """Whether the group has it sampled anew: failures so far count no more."""


def judge(history: Sequence[Episode], retries: Retries, *, alone: bool, dice: random.Random) -> Verdict:
    """Decide on the last attempt; `alone`: it had a process of its own."""
    last = history[-1]
    if last.failure is None:
        return Verdict(seal=last)
    match last.failure.failure_class:
        case FailureClass.CANCELLED:
            return Verdict()
        case FailureClass.AGENT:
            return Verdict(seal=last)
        case FailureClass.WORKER:
            return Verdict(seal=last) if alone else Verdict(again=True, isolated=True)
    if is_evidence(last):
        deaths = {each.desktop for each in history if is_evidence(each)}
        if len(deaths) > 1:
            return Verdict(seal=_blamed(last, len(deaths)))
    count = sum(_class(each) is last.failure.failure_class for each in history)
    if count > getattr(retries, last.failure.failure_class):
        return Verdict(seal=last)
    pause = Backoff(base=retries.backoff, longest=retries.backoff_max).pause(count) * dice.uniform(0.5, 1.0)
    return Verdict(again=True, pause=pause, isolated=alone)


def is_evidence(episode: Episode) -> bool:
    """Whether its desktop died of what was done in it, when the agent had begun to act there.

    In doubt it did not: what the host did, what the watchdog stopped, and what nobody can tell are no evidence.
    """
    failure = episode.failure
    return failure is not None and failure.cause is DeathCause.INSIDE and episode.actions > 0


def begin_anew(history: Sequence[Episode]) -> list[Episode]:
    """What still counts of an episode's attempts when it is sampled anew: deaths of desktops by what was done there."""
    return [each for each in history if is_evidence(each)]


def acquit(episode: Episode, others: int) -> Episode:
    """The attempt, as it is judged when so many other desktops died together with its own: of their host."""
    failure = episode.failure
    if failure is None or not others:
        return episode
    why = f"{failure.message}; {others} other{'s' * (others > 1)} died at the same time, so its host is at fault"
    failure = msgspec.structs.replace(failure, cause=DeathCause.OUTSIDE, message=why)
    score = Score(value=None, reason=f"{failure.failure_class}: {why}")
    return msgspec.structs.replace(episode, failure=failure, score=score)


def doubt(episode: Episode) -> Episode:
    """The attempt, where nobody waited to hear whether other desktops died together with its own: no evidence."""
    if episode.failure is None or not is_evidence(episode):
        return episode
    failure = msgspec.structs.replace(episode.failure, cause=DeathCause.UNKNOWN)
    return msgspec.structs.replace(episode, failure=failure)


def is_infrastructure(episode: Outcome) -> bool:
    """Whether an outcome is unscored for no fault of the agent: what a resume does again. One given up is not."""
    failure = episode.failure
    return episode.score.value is None and failure is not None and failure.failure_class is not FailureClass.CANCELLED


def _class(episode: Episode) -> FailureClass | None:
    return episode.failure.failure_class if episode.failure else None


def _blamed(episode: Episode, deaths: int) -> Episode:
    reason = f"agent: desktop_lost: {deaths} desktops died of what was done in them; the last: "
    message = episode.failure.message if episode.failure else ""
    failure = Failure(
        failure_class=FailureClass.AGENT, kind=FailureKind.DESKTOP_LOST_BY_AGENT, message=reason + message
    )
    return msgspec.structs.replace(episode, failure=failure, score=Score(value=0.0, reason=failure.message))
