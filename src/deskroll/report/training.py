"""Training as a report has it: each evaluation with its interval, each step, and how busy all was over time. Pure.

Baseline, training and evaluations stand apart throughout: no number here is over more than one of them. Time is that in
which a coordinator had the run: pauses between starts are cut out.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from deskroll.report.stats import tally
from deskroll.report.summary import Evaluation, Training, TrainStep, Use, Window
from deskroll.report.timeline import Start, spans_of
from deskroll.store.journal import DesktopChanged
from deskroll.store.training import TRAIN, EvalRecord, StepRecord, TrainRecord
from deskroll.types import Episode

_WINDOWS = 60
_LEASED = "leased"
Spans = Sequence[tuple[float, float]]
"""From when to when something went on, in seconds since the beginning."""


def training_of(
    records: Sequence[TrainRecord],
    outcomes: Sequence[Episode],
    attempts: Iterable[Episode],
    changes: Iterable[DesktopChanged],
    starts: Sequence[Start],
    *,
    wanted: int | None = None,
    num_rollouts: int | None = None,
) -> Training:
    """What `train.jsonl` and the journal say together; `attempts` are all of them, the retried ones included."""
    steps = [each for each in records if isinstance(each, StepRecord)]
    busy = _Busy(steps, attempts, changes, starts)
    return Training(
        wanted=wanted,
        num_rollouts=num_rollouts,
        evaluations=tuple(_evaluations(records, outcomes, busy)),
        steps=_steps(steps, busy),
        windows=_windows(busy),
    )


def _evaluations(records: Sequence[TrainRecord], outcomes: Sequence[Episode], busy: _Busy) -> Iterable[Evaluation]:
    """Those that were begun, in their order; one that is not in the log is not whole yet."""
    made = {(each.phase, each.step): each for each in records if isinstance(each, EvalRecord)}
    held = {each.step - 1: each.seconds.get("hold", 0.0) for each in records if isinstance(each, StepRecord)}
    episodes: dict[tuple[str, int], list[Episode]] = defaultdict(list)
    for each in outcomes:
        if each.key.phase != TRAIN:
            episodes[each.key.phase, each.key.round].append(each)
    for phase, step in sorted({*made, *episodes}, key=lambda name: (name[1], name[0])):
        record, found = made.get((phase, step)), episodes[phase, step]
        yield Evaluation(
            phase=phase,
            step=step,
            versions=tuple(dict.fromkeys(version for each in found for version in each.versions)),
            whole=record is not None,
            outcomes=tally(f"{phase} after step {step}" if step else phase, record.episodes if record else None, found),
            elapsed_s=round(busy.elapsed(record.at), 3) if record else None,
            seconds=record.seconds if record else None,
            held_s=held.get(step),
        )


def _steps(records: Sequence[StepRecord], busy: _Busy) -> tuple[TrainStep, ...]:
    edges = [0.0, *(busy.elapsed(each.at) for each in records)]
    return tuple(
        TrainStep(
            step=each.step,
            at=each.at,
            elapsed_s=round(edges[place + 1], 3),
            reward=each.reward,
            groups=len(each.groups),
            no_signal=len(each.no_signal),
            withheld=len(each.withheld),
            failed=len(each.failed),
            sequences=each.sequences,
            lag_p50=each.lag_p50,
            lag_p95=each.lag_p95,
            lag_max=each.lag_max,
            served=each.served,
            seconds=each.seconds,
            report=each.report,
            use=use,
        )
        for place, (each, use) in enumerate(zip(records, busy.between(edges), strict=True))
    )


def _windows(busy: _Busy) -> tuple[Window, ...]:
    if busy.whole <= 0:
        return ()
    edges = [busy.whole * place / _WINDOWS for place in range(_WINDOWS + 1)]
    return tuple(
        Window(start_s=round(edges[place], 3), end_s=round(edges[place + 1], 3), use=use)
        for place, use in enumerate(busy.between(edges))
    )


class _Busy:
    """Who was at work when."""

    def __init__(
        self,
        steps: Sequence[StepRecord],
        attempts: Iterable[Episode],
        changes: Iterable[DesktopChanged],
        starts: Sequence[Start],
    ) -> None:
        self._starts = starts
        self._before = [sum(each.ended - each.begun for each in starts[:place]) for place in range(len(starts))]
        self.whole = sum(each.ended - each.begun for each in starts)
        """How long coordinators had the run, in all."""
        phases: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for each in attempts:
            phases[each.key.phase].append(self._span(each.started_at, each.ended_at))
        self._phases: Mapping[str, Spans] = phases
        self._trainer = [
            self._span(each.at - each.seconds.get("train", 0.0) - each.seconds.get("save", 0.0), each.at)
            for each in steps
        ]
        spans = spans_of(changes, starts)
        self._alive = [self._span(each.start, each.end) for each in spans]
        self._leased = [self._span(each.start, each.end) for each in spans if each.state == _LEASED]

    def elapsed(self, at: float) -> float:
        """A moment, in seconds since the beginning, without pauses."""
        if not self._starts:
            return 0.0
        place = max(0, bisect_right(self._starts, at, key=lambda start: start.begun) - 1)
        start = self._starts[place]
        return self._before[place] + min(max(at - start.begun, 0.0), start.ended - start.begun)

    def _span(self, begun: float, ended: float) -> tuple[float, float]:
        return self.elapsed(begun), self.elapsed(ended)

    def between(self, edges: Sequence[float]) -> list[Use]:
        """How busy all was between each two edges, which are in order."""
        lengths = [end - start for start, end in itertools.pairwise(edges)]
        phases = {name: covered(spans, edges) for name, spans in sorted(self._phases.items())}
        trainer, alive, leased = (covered(each, edges) for each in (self._trainer, self._alive, self._leased))
        return [
            Use(
                episodes={name: round(taken[place] / length, 3) if length else 0.0 for name, taken in phases.items()},
                trainer=round(min(1.0, trainer[place] / length), 4) if length else 0.0,
                desktops=round(leased[place] / alive[place], 4) if alive[place] else None,
            )
            for place, length in enumerate(lengths)
        ]


def covered(spans: Spans, edges: Sequence[float]) -> list[float]:
    """Of the time between each two edges, which are in order, how much the spans cover, each counted for itself."""
    parts: list[list[float]] = [[] for _ in edges[1:]]
    for start, end in spans:
        place = max(0, bisect_right(edges, start) - 1)
        while place < len(parts) and edges[place] < end:
            parts[place].append(max(0.0, min(end, edges[place + 1]) - max(start, edges[place])))
            place += 1
    return [math.fsum(each) for each in parts]
