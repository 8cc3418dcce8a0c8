"""The numbers behind the charts of a page. Pure; how they are drawn is the business of `static/report.js`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from deskroll.errors import plain
from deskroll.report import words
from deskroll.report.curves import Curves, curves
from deskroll.report.outcome import Outcome, outcome_of
from deskroll.report.stats import NO_DOMAIN
from deskroll.report.summary import Summary
from deskroll.report.timeline import Start, Timeline, timeline
from deskroll.store.journal import DesktopChanged
from deskroll.types import Episode, Record

MAX_DOMAINS = 40
_BINS = 10


class Bars(Record, frozen=True):
    """Named bars in parts: `parts[name][n]` is the part of bar n."""

    labels: list[str]
    parts: dict[str, list[float]]


class Charts(Record, frozen=True):
    """Everything that is drawn."""

    outcomes: Bars
    phases: Bars
    timeline: Timeline
    scores: Bars
    steps: Bars
    training: Curves | None
    """Of a training run."""


def charts(
    summary: Summary, episodes: Sequence[Episode], changes: Iterable[DesktopChanged], starts: Sequence[Start] = ()
) -> Charts:
    """The charts of a run."""
    return Charts(
        outcomes=_outcomes(summary, episodes),
        phases=_phases(summary),
        timeline=timeline(changes, episodes, starts),
        scores=_scores(episodes),
        steps=_steps(episodes),
        training=curves(summary.training) if summary.training else None,
    )


def _outcomes(summary: Summary, episodes: Iterable[Episode]) -> Bars:
    """By domain; by phase, where there are several."""
    by_phase = bool(summary.phases)
    counts: Counter[tuple[str, str]] = Counter(
        (each.key.phase if by_phase else each.domain or NO_DOMAIN, outcome_of(each).value) for each in episodes
    )
    rows = sorted(summary.phases or summary.domains, key=lambda row: (-(row.planned or row.attempted), row.name))[
        :MAX_DOMAINS
    ]
    parts: dict[str, list[float]] = {
        _name(outcome): [counts[row.name, outcome.value] for row in rows] for outcome in Outcome
    }
    parts["not run"] = [max(0, (row.planned or 0) - row.attempted - row.given_up) for row in rows]
    return Bars(
        labels=[plain(row.name, 40) for row in rows], parts={name: part for name, part in parts.items() if any(part)}
    )


def _phases(summary: Summary) -> Bars:
    rows = summary.consumption.phases
    return Bars(
        labels=[plain(words.stage(row.phase), 30) for row in rows],
        parts={"mean": [round(row.seconds.mean, 3) for row in rows]},
    )


def _scores(episodes: Sequence[Episode]) -> Bars:
    """Ten bins; the last one holds 1 as well, whatever lies beyond is in the bin at that end."""
    labels = [f"{place / _BINS:.1f}" for place in range(_BINS)]
    labels[-1] = f"{(_BINS - 1) / _BINS:.1f}–1"
    scored = ((each, score) for each in episodes if (score := each.points) is not None)
    binned = ((each, min(_BINS - 1, max(0, math.floor(score * _BINS + 1e-9)))) for each, score in scored)
    return _histogram(labels, binned)


def _steps(episodes: Sequence[Episode]) -> Bars:
    longest = max((episode.steps for episode in episodes), default=0)
    width = max(1, math.ceil((longest + 1) / 20))
    places = range(longest // width + 1)
    labels = [str(place * width) if width == 1 else f"{place * width}–{place * width + width - 1}" for place in places]
    return _histogram(labels, ((episode, episode.steps // width) for episode in episodes))


def _histogram(labels: list[str], binned: Iterable[tuple[Episode, int]]) -> Bars:
    """Bars of how many episodes each bin has, in parts by what came of them; parts without any are left out."""
    counts = Counter((outcome_of(episode), place) for episode, place in binned)
    parts: dict[str, list[float]] = {
        _name(outcome): [counts[outcome, place] for place in range(len(labels))] for outcome in Outcome
    }
    return Bars(labels=labels, parts={name: part for name, part in parts.items() if any(part)})


def _name(outcome: Outcome) -> str:
    return outcome.value.replace("_", " ")
