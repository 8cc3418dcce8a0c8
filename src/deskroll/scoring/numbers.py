"""numeric_match: the number that an answer comes to, compared with the reference's.

Which number of a text counts, the same for both sides:

1. in the last `\\boxed{...}`: the last number there, and if it holds none, none at all;
2. behind the last `answer is`, `answer:`, `答案是`, `答案：` or `####`: the first number, or where it stands in a line
   that ends with `= number`, that one;
3. a number that ends the text behind `=` or `≈` (a remark in brackets may follow);
4. else the last number that stands in no brackets, else the last one.

A quantity in several units (`2 hours 30 minutes`) is one number (`compound.py`). Citations (`15 [1]`,
`[2, 3]`) are passed over, unless there is no number but those.

Guarantees: numbers are compared as exact fractions; units are converted (`units.py`), and two that are not of a kind
are never equal. A reference without a number gives no score, an answer without one gives 0.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from deskroll.errors import ConfigError
from deskroll.scoring.compound import compounds
from deskroll.scoring.notation import plain_notation
from deskroll.scoring.quantities import Quantity
from deskroll.scoring.units import CURRENCY, converted
from deskroll.types import Record, Score

_MARKER = re.compile(r"\banswer\**\s{0,3}(?:is|was|would be|=|:)|答案\s{0,3}(?:应?该?[是为為]|:)|####", re.IGNORECASE)
_MARKERS = 3
"""So many of them, the last ones, are looked at."""
_EQUALS = re.compile(r"[=≈]")
_REMARK = re.compile(r"[\s$*\\)\].。,!`}]{0,20}(?:\([^()]{0,200}\))?[\s$*\\)\].。!`}]{0,20}")
_CITATION = re.compile(
    r"(?<=[^\s=≈:(\[])(?<!\bis)(?<![是为]) ?\[{1,2}\^?[0-9]{1,3}(?: ?[,;-] ?[0-9]{1,3}){0,9}\]{1,2}"
    r"(?:\(https?://[^()\s]{0,300}\))?|【[0-9]{1,3}(?::[0-9]{1,3})?†[^【】\n]{0,60}】"
)
_DIGIT_NEXT = re.compile(r" ?[.,]?[0-9]")
_BOXED = re.compile(r"\\f?box(?:ed)?\s?\{")


class Tolerance(Record, frozen=True):
    """How far a number may be from the reference."""

    relative: float = 1e-6
    """Of the larger of the two."""
    absolute: float = 1e-9
    """Where one of the two is 0, of which no part can be taken; in the reference's unit."""

    def __post_init__(self) -> None:
        for name in ("relative", "absolute"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"tolerance.{name} is {value}; allowed: 0 or more, and finite")


DEFAULT_TOLERANCE = Tolerance()


def numeric_match(answer: str, reference: str, tolerance: Tolerance = DEFAULT_TOLERANCE) -> Score:
    """1 when both come to the same number, whatever its notation and unit."""
    wanted = number_of(reference)
    if wanted is None:
        return Score(value=None, reason="the reference answer holds no plain number: numeric_match does not fit it")
    given = number_of(answer)
    if given is None:
        return Score(value=0.0, reason="numeric_match: the answer holds no plain number")
    same = _same(given, wanted, tolerance)
    said = f"{_shown(given)} {'matches' if same else 'does not match'} {_shown(wanted)}"
    return Score(value=float(same), reason=f"numeric_match with the reference answer: {said}")


def number_of(text: str) -> Quantity | None:
    """The number that a text comes to, by the rules above; None where it comes to none."""
    text = plain_notation(text)
    return _number_of(_without_citations(text)) or _number_of(text)


def _without_citations(text: str) -> str:
    # Two spaces keep the digits on both sides apart: with one they would be groups of thousands.
    return _CITATION.sub(lambda found: "  " if _DIGIT_NEXT.match(text, found.end()) else "", text)


def _number_of(text: str) -> Quantity | None:
    if (boxed := _boxed(text)) is not None:
        return _last(boxed)
    for marker in list(_MARKER.finditer(text))[: -_MARKERS - 1 : -1]:
        # With its colon, behind which `- 5` is a sign and no dash.
        rest = text[marker.end() - marker[0].endswith((":", "=")) :]
        if (first := next(compounds(rest), None)) is not None:
            return _equation(_line(rest, first.start)) or first
    return _equation(text.rstrip().rpartition("\n")[2]) or _last(text)


def _line(text: str, at: int) -> str:
    end = text.find("\n", at)
    return text[text.rfind("\n", 0, at) + 1 : end if end >= 0 else len(text)]


def _boxed(text: str) -> str | None:
    """What the last box holds."""
    starts = list(_BOXED.finditer(text))
    if not starts:
        return None
    depth, begin = 1, starts[-1].end()
    for end in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[begin:end]
    return text[begin:]


def _equation(line: str) -> Quantity | None:
    """The number behind the last sign of equality, where the line ends with it."""
    signs = list(_EQUALS.finditer(line))
    if not signs:
        return None
    side = line[signs[-1].start() :]
    first = next(compounds(side), None)
    if first is None or re.search(r"\w", _unsigned(side[1 : first.start])):
        return None
    return first if _REMARK.fullmatch(side, first.end) else None


def _unsigned(text: str) -> str:
    return re.sub(r"(?i)minus|negative|[负負]|零下|百分之|(?:[A-Z]{2,3}\$?|[A-Z]\$)\s?\Z", "", text)


def _last(text: str) -> Quantity | None:
    depth, at = 0, 0
    last: Quantity | None = None
    outside: Quantity | None = None
    for each in compounds(text):
        depth += text.count("(", at, each.start) - text.count(")", at, each.start)
        at, last = each.start, each
        if depth <= 0:
            depth, outside = 0, each
    return outside or last


def _same(given: Quantity, wanted: Quantity, tolerance: Tolerance) -> bool:
    if given.unit and wanted.unit:
        return any(
            (value := converted(given.value, unit, to)) is not None and _close(value, wanted.value, tolerance)
            for unit in (given.unit, given.rate)
            for to in (wanted.unit, wanted.rate)
            if unit and to
        )
    shares = [each.hundredths for each in (given, wanted)]
    if all(shares) or not any(shares):
        return _close(_share(given), _share(wanted), tolerance)
    if given.unit or wanted.unit:
        return False
    # One says percent and the other nothing: 50% is 0.5, and is as often written 50.
    return _close(_share(given), _share(wanted), tolerance) or _close(given.value, wanted.value, tolerance)


def _share(quantity: Quantity) -> Fraction:
    return quantity.value * (quantity.hundredths or 1)


def _close(one: Fraction, other: Fraction, tolerance: Tolerance) -> bool:
    if not one or not other:
        return abs(one - other) <= Fraction(tolerance.absolute)
    return abs(one - other) <= Fraction(str(tolerance.relative)) * max(abs(one), abs(other))


def _shown(quantity: Quantity) -> str:
    try:
        value = f"{float(quantity.value):.12g}"
    except OverflowError:
        value = f"a number of {len(str(abs(quantity.value.numerator // quantity.value.denominator)))} digits"
    if quantity.hundredths:
        return value + ("%" if quantity.hundredths == Fraction(1, 100) else "‰")
    units = " ".join(name.removeprefix(CURRENCY) + (f"^{power}" if power != 1 else "") for name, power in quantity.unit)
    return f"{value} {units}".rstrip()
