"""The numbers behind the charts of a page. Pure; how they are drawn is the business of `static/report.js`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from deskroll.errors import plain
from deskroll.report.outcome import Outcome, outcome_of, score_of
from deskroll.report.stats import NO_DOMAIN
from deskroll.report.summary import Summary
from deskroll.store.journal import DesktopChanged
from deskroll.types import Episode, Record

MAX_DOMAINS = 40
MAX_DESKTOPS = 40
MAX_SPANS = 6_000
"""Bars of the timeline that a browser draws without pain."""
_BINS = 10
_GONE = frozenset({"stopped", "gone"})


class Bars(Record, frozen=True):
    """Named bars in parts: `parts[name][n]` is the part of bar n."""

    labels: list[str]
    parts: dict[str, list[float]]


class Span(Record, frozen=True):
    """A desktop was in a state, in seconds since the timeline's beginning."""

    desktop: str
    state: str
    start: float
    end: float


class Timeline(Record, frozen=True):
    """What each desktop did when."""

    desktops: list[str]
    spans: list[Span]
    seconds: float
    left_out: int
    """Desktops for which there was no room."""


class Charts(Record, frozen=True):
    """Everything that is drawn."""

    outcomes: Bars
    phases: Bars
    timeline: Timeline
    scores: Bars
    steps: Bars


def charts(summary: Summary, episodes: Sequence[Episode], changes: Iterable[DesktopChanged]) -> Charts:
    """The charts of a run."""
    return Charts(
        outcomes=_outcomes(summary, episodes),
        phases=_phases(summary),
        timeline=timeline(changes, episodes),
        scores=_scores(episodes),
        steps=_steps(episodes),
    )


def _outcomes(summary: Summary, episodes: Iterable[Episode]) -> Bars:
    counts: Counter[tuple[str, str]] = Counter((each.domain or NO_DOMAIN, outcome_of(each).value) for each in episodes)
    rows = sorted(summary.domains, key=lambda row: (-(row.planned or row.attempted), row.name))[:MAX_DOMAINS]
    parts: dict[str, list[float]] = {
        outcome.value: [counts[row.name, outcome.value] for row in rows] for outcome in Outcome
    }
    parts["not run"] = [max(0, (row.planned or 0) - row.attempted) for row in rows]
    return Bars(
        labels=[plain(row.name, 40) for row in rows], parts={name: part for name, part in parts.items() if any(part)}
    )


def _phases(summary: Summary) -> Bars:
    rows = summary.consumption.phases
    return Bars(
        labels=[plain(row.phase, 30) for row in rows], parts={"mean": [round(row.seconds.mean, 3) for row in rows]}
    )


def _scores(episodes: Iterable[Episode]) -> Bars:
    """Ten bins; the last one holds 1 as well, whatever lies beyond is in the bin at that end."""
    counts = Counter(
        min(_BINS - 1, max(0, math.floor(score * _BINS + 1e-9)))
        for episode in episodes
        if (score := score_of(episode)) is not None
    )
    labels = [f"{place / _BINS:.1f}" for place in range(_BINS)]
    labels[-1] = f"{(_BINS - 1) / _BINS:.1f}–1"
    return Bars(labels=labels, parts={"episodes": [counts[place] for place in range(_BINS)]})


def _steps(episodes: Sequence[Episode]) -> Bars:
    longest = max((episode.steps for episode in episodes), default=0)
    width = max(1, math.ceil((longest + 1) / 20))
    places = range(longest // width + 1)
    labels = [str(place * width) if width == 1 else f"{place * width}–{place * width + width - 1}" for place in places]
    parts: dict[str, list[float]] = {}
    for outcome in Outcome:
        counts = Counter(episode.steps // width for episode in episodes if outcome_of(episode) is outcome)
        if counts:
            parts[outcome.value] = [counts[place] for place in places]
    return Bars(labels=labels, parts=parts)


def timeline(changes: Iterable[DesktopChanged], episodes: Sequence[Episode]) -> Timeline:
    """What each desktop did when: as the journal says, or else when episodes had them."""
    spans = _spans(changes) or [
        Span(desktop=episode.desktop, state="leased", start=episode.started_at, end=episode.ended_at)
        for episode in episodes
        if episode.desktop and episode.ended_at > episode.started_at
    ]
    if not spans:
        return Timeline(desktops=[], spans=[], seconds=0.0, left_out=0)
    spans.sort(key=lambda span: span.start)
    begin, end = spans[0].start, max(span.end for span in spans)
    names = list(dict.fromkeys(span.desktop for span in spans))
    shown = set(names[:MAX_DESKTOPS])
    kept = [span for span in spans if span.desktop in shown]
    if len(kept) > MAX_SPANS:  # the longest say most
        kept = sorted(sorted(kept, key=lambda span: span.start - span.end)[:MAX_SPANS], key=lambda span: span.start)
    return Timeline(
        desktops=[plain(name, 40) for name in names[:MAX_DESKTOPS]],
        spans=[
            Span(
                desktop=plain(span.desktop, 40),
                state=plain(span.state, 20),
                start=round(span.start - begin, 2),
                end=round(span.end - begin, 2),
            )
            for span in kept
        ],
        seconds=end - begin,
        left_out=len(names) - len(shown),
    )


def _spans(changes: Iterable[DesktopChanged]) -> list[Span]:
    """From each change to the next one of the same desktop; the last one of all ends them."""
    current: dict[str, DesktopChanged] = {}
    spans, latest = [], 0.0
    for change in sorted(changes, key=lambda change: change.at):
        latest = change.at
        before = current.get(change.desktop)
        if before is not None and before.state not in _GONE:
            spans.append(Span(desktop=change.desktop, state=before.state, start=before.at, end=change.at))
        current[change.desktop] = change
    spans += [
        Span(desktop=last.desktop, state=last.state, start=last.at, end=latest)
        for last in current.values()
        if last.state not in _GONE and last.at < latest
    ]
    return spans
