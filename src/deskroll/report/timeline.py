"""What each desktop did when: the numbers behind the chart of desktops over time. Pure.

A run may be started several times. What a desktop was in when a start ended it is in no longer, whether or not the
journal says so: no bar reaches beyond the end of its start. Pauses between starts are cut out of the axis.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Sequence

import msgspec

from deskroll.errors import plain
from deskroll.store.journal import Closed, DesktopChanged, Opened
from deskroll.types import Episode, Record

MAX_DESKTOPS = 40
MAX_SPANS = 6_000
"""Bars of the timeline that a browser draws without pain."""
_GONE = frozenset({"stopped", "gone"})


class Start(Record, frozen=True):
    """One start of a run: from when to when a coordinator had it, in seconds since the epoch."""

    begun: float
    ended: float


class Span(Record, frozen=True):
    """A desktop was in a state, in seconds since the timeline's beginning, pauses left out."""

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
    cuts: list[float]
    """Where on the axis a pause between two starts was cut out."""


def starts_of(opened: Sequence[Opened], closed: Iterable[Closed], times: Sequence[float]) -> list[Start]:
    """The starts of a run; one that was not closed ends with the last of `times` (of any records) before the next."""
    ends = {each.epoch: each.at for each in closed}
    begins = sorted(opened, key=lambda each: each.at)
    starts = []
    for place, each in enumerate(begins):
        until = begins[place + 1].at if place + 1 < len(begins) else float("inf")
        end = ends.get(each.epoch)
        if end is None:
            end = max((time for time in times if each.at <= time < until), default=each.at)
        starts.append(Start(begun=each.at, ended=min(end, until)))
    return starts


def timeline(changes: Iterable[DesktopChanged], episodes: Sequence[Episode], starts: Sequence[Start] = ()) -> Timeline:
    """What each desktop did when: as the journal says, or else when episodes had them."""
    spans, cuts = _joined(spans_of(changes, starts) or _held(episodes), starts)
    if not spans:
        return Timeline(desktops=[], spans=[], seconds=0.0, left_out=0, cuts=[])
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
                start=round(span.start, 2),
                end=round(span.end, 2),
            )
            for span in kept
        ],
        seconds=max(span.end for span in spans),
        left_out=len(names) - len(shown),
        cuts=[round(cut, 2) for cut in cuts],
    )


def spans_of(changes: Iterable[DesktopChanged], starts: Sequence[Start]) -> list[Span]:
    """From each change to the next one of the same desktop in the same start, or to the start's end."""
    ordered = sorted(changes, key=lambda change: change.at)
    latest = ordered[-1].at if ordered else 0.0
    found: list[Span] = []
    current: dict[tuple[int, str], DesktopChanged] = {}
    for change in ordered:
        place = _place(change.at, starts)
        before = current.get((place, change.desktop))
        if before is not None and before.state not in _GONE:
            found.append(_span(before, change.at))
        current[place, change.desktop] = change
    for (place, _), last in current.items():
        end = starts[place].ended if starts else latest
        if last.state not in _GONE and last.at < end:
            found.append(_span(last, end))
    return found


def _span(change: DesktopChanged, end: float) -> Span:
    return Span(desktop=change.desktop, state=change.state, start=change.at, end=end)


def _held(episodes: Sequence[Episode]) -> list[Span]:
    """When episodes had desktops."""
    return [
        Span(desktop=each.desktop, state="leased", start=each.started_at, end=each.ended_at)
        for each in episodes
        if each.desktop and each.ended_at > each.started_at
    ]


def _place(at: float, starts: Sequence[Start]) -> int:
    """The start to which a moment belongs."""
    return max(0, bisect_right(starts, at, key=lambda start: start.begun) - 1)


def _joined(spans: Iterable[Span], starts: Sequence[Start]) -> tuple[list[Span], list[float]]:
    """The spans of all starts in order, on one axis, each start where the one before ends; and where they meet."""
    joined: list[Span] = []
    cuts: list[float] = []
    length = 0.0
    ordered = sorted(spans, key=lambda span: span.start)
    for _, group in itertools.groupby(ordered, key=lambda span: _place(span.start, starts)):
        part = list(group)
        begin, end = part[0].start, max(span.end for span in part)
        shift = length - begin
        joined += [msgspec.structs.replace(span, start=span.start + shift, end=span.end + shift) for span in part]
        length += end - begin
        cuts.append(length)
    return joined, cuts[:-1]
