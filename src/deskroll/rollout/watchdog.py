"""Watchdog: nothing stalls in silence.

Looks at what every episode does. A stage far beyond its usual time is dumped and reported; one beyond its cap is
stopped as a failure of whoever did not answer, which the engine then retries.

Guarantees: it goes by what workers say of themselves, in time in which they ran, and adds nothing of its own: neither
a step of the clock nor a sleep of its own makes a stage longer. What it stops is no evidence against the agent.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from deskroll.errors import DeskrollError, DesktopStalled, EnvError, EvaluatorError, ModelError, SetupError
from deskroll.events import AttemptEnded, EpisodeStalled, EventSink, guarded
from deskroll.rollout.backends import Backend
from deskroll.rollout.config import WatchdogSettings
from deskroll.rollout.orders import Activity
from deskroll.rollout.spec import EpisodeSpec
from deskroll.store.names import name_of
from deskroll.types import EpisodeKey, Stage

_log = logging.getLogger(__name__)
_LOOK_S = 2.0
_BEYOND = 10.0
"""A stage is far beyond its usual time at so many times that."""
_GRACE_S = 30.0
_CULPRIT: Mapping[Stage, type[DeskrollError]] = {
    Stage.SETUP: SetupError,
    Stage.MODEL: ModelError,
    Stage.ACT: DesktopStalled,
    Stage.SETTLE: DesktopStalled,
    Stage.SCORE: EvaluatorError,
}
_Mark = tuple[EpisodeKey, int, int]
"""One stage of one attempt."""


class Usual:
    """How long each stage usually takes: of the last few hundred episodes, what nineteen in twenty stay below."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[float]] = {}

    def learn(self, event: AttemptEnded) -> None:
        """Take an attempt's stages into account, those of its turns by the turn."""
        for stage, seconds in event.seconds.items():
            turns = max(event.steps, 1) if stage in (Stage.MODEL, Stage.ACT, Stage.SETTLE) else 1
            self._seen.setdefault(stage, deque(maxlen=300)).append(seconds / turns)

    def time_of(self, stage: Stage) -> float:
        """In seconds; 0 where nothing is known."""
        seen = sorted(self._seen.get(stage, ()))
        return seen[int(len(seen) * 0.95)] if len(seen) >= 5 else 0.0


class Watchdog:
    """Runs beside a runtime: `await watch()`."""

    def __init__(
        self,
        backend: Backend,
        settings: WatchdogSettings,
        activities: Callable[[], Sequence[Activity]],
        *,
        sink: EventSink | None = None,
    ) -> None:
        self.usual = Usual()
        self._activities = activities
        self._backend = backend
        self._settings = settings
        self._sink = guarded(sink)
        self._reported: set[_Mark] = set()
        self._caps: dict[str, Mapping[Stage, float]] = {}
        """By job, the longest that each stage of its episodes may take."""

    def expect(self, job: str, spec: EpisodeSpec) -> None:
        """Episodes of this job are limited by that spec from now on."""
        limits, model = spec.limits, spec.model
        self._caps[job] = {
            Stage.SETUP: limits.setup_timeout + _GRACE_S,
            Stage.MODEL: (model.retries + 1) * (model.timeout + model.backoff_max) + _GRACE_S,
            Stage.ACT: self._settings.act_timeout,
            Stage.SETTLE: self._settings.act_timeout,
            Stage.SCORE: limits.score_timeout + _GRACE_S,
        }

    async def watch(self) -> None:
        """Look, for ever."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.look()

    def look(self) -> None:
        """Look once."""
        live = set()
        for each in self._activities():
            live.add(_mark(each))
            if each.seconds > self._caps.get(each.key.phase, {}).get(each.stage, math.inf):
                self._stop(each)
            elif each.stage is not Stage.DESKTOP and each.seconds > self._stalled_after(each.stage):
                self._report(each)
        self._reported &= live

    def _stalled_after(self, stage: Stage) -> float:
        return max(self._settings.stalled_after, _BEYOND * self.usual.time_of(stage))

    def _report(self, each: Activity) -> None:
        if _mark(each) in self._reported:
            return
        self._reported.add(_mark(each))
        usual = self.usual.time_of(each.stage)
        why = f"{each.stage} has taken {each.seconds:.0f} s" + (f"; usual: {usual:.1f} s" if usual else "")
        on = f" on desktop {each.desktop}" if each.desktop else ""
        _log.warning("%s%s is stalled: %s", name_of(each.key, each.attempt), on, why)
        self._sink.emit(
            EpisodeStalled(key=each.key, attempt=each.attempt, stage=each.stage, desktop=each.desktop, reason=why)
        )
        self._backend.dump(each.key, each.attempt, why)

    def _stop(self, each: Activity) -> None:
        name = name_of(each.key, each.attempt)
        culprit = _CULPRIT[each.stage]
        if culprit is DesktopStalled and not each.desktop:
            culprit = EnvError  # its tools hang, which are no desktop's
        error = culprit(f"{each.stage} of {name} took {each.seconds:.0f} s, and was stopped by the watchdog")
        _log.warning("%s", error)
        self._backend.stop(each.key, each.attempt, error, each.visit)


def _mark(each: Activity) -> _Mark:
    return (each.key, each.attempt, each.visit)
