"""Numbers as people read them: the same in the terminal and on the page."""

from __future__ import annotations

import math

from deskroll.errors import plain
from deskroll.report.summary import Estimate, Summary
from deskroll.types import Stage

NOTHING = "–"
"""Stands where there is no number."""
_GAP = " ... "
_STAGES = {str(Stage.MODEL): "agent, model"}


def both_ends(text: str, longest: int) -> str:
    """A text of bounded length, printable: of a long one its head and its end, which says what went wrong."""
    shown = plain(text, len(text) + 1)
    if len(shown) <= longest:
        return shown
    end = (longest - len(_GAP)) * 2 // 3
    return f"{shown[: longest - len(_GAP) - end].rstrip()}{_GAP}{shown[-end:].lstrip()}"


def percent(share: float | None) -> str:
    """A share as `62.5%`."""
    return NOTHING if share is None else f"{share * 100:.1f}%"


def interval(estimate: Estimate) -> str:
    """The 95% interval of a rate, `49–77%`."""
    if estimate.low is None or estimate.high is None:
        return NOTHING
    return f"{estimate.low * 100:.0f}–{estimate.high * 100:.0f}%"


def rate(estimate: Estimate) -> str:
    """A rate with its interval, `62.5% (49–77%)`."""
    return f"{percent(estimate.value)} ({interval(estimate)})" if estimate.low is not None else percent(estimate.value)


def number(value: float | None, digits: int = 2) -> str:
    """A number with so many digits after the point."""
    return NOTHING if value is None else f"{value:,.{digits}f}"


def score(estimate: Estimate) -> str:
    """A mean score with its interval, `0.64 (0.51–0.76)`."""
    if estimate.low is None or estimate.high is None:
        return number(estimate.value)
    return f"{number(estimate.value)} ({number(estimate.low)}–{number(estimate.high)})"


def duration(seconds: float) -> str:
    """A time: <1 ms, 12 ms, 3.4 s, 5 min 10 s, 2 h 5 min."""
    if seconds <= 0:
        return "0 s"
    if seconds < 0.0005:
        return "<1 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"


def amount(usd: float) -> str:
    """So much money: cents, and of less than a dollar two digits that say something."""
    if usd <= 0:
        return "0"
    digits = 2 if usd >= 1 else min(12, 1 - math.floor(math.log10(usd)))
    return f"{usd:,.{max(2, digits)}f}"


def money(usd: float, unknown: int, calls: int) -> str:
    """The cost of so many calls of a model, with how much of it is not known."""
    if not calls and not usd:
        return "nothing: no model answered"
    known = f"{amount(usd)} USD"
    if not unknown:
        return known
    of = counted(unknown, "attempt")
    return f"{known}, and {of} of unknown cost" if usd else f"unknown for {of}"


def speed(summary: Summary) -> str:
    """How many episodes a minute; empty where a single one, or a moment, says nothing about that."""
    if summary.episodes_per_minute is None or summary.overall.attempted < 2 or summary.wall_s < 1:
        return ""
    return f"{number(summary.episodes_per_minute, 1)} episodes a minute"


def stage(name: str) -> str:
    """What the time of a stage was spent on: an agent's own time and that of the model it asks are one stage."""
    return _STAGES.get(name, name)


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 attempt`, `2,000 attempts`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def tokens(count: int) -> str:
    """A number of tokens: 950, 12.3k, 4.5M."""
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f}k" if count < 999_950 else f"{count / 1e6:.1f}M"


def listed(counts: dict[str, int]) -> str:
    """`desktop 3, model 1`."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())
