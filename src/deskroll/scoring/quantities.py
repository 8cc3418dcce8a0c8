"""Quantities: the numbers in a text, read exactly, each with its sign, magnitude, percent and unit.

Guarantees: nothing is evaluated and nothing is rounded. What is no plain number is left out, never read as another: a
date, a time, a version, a part of `2√3`, `2*sqrt(3)`, `3x`, `x^2`, `4^0.5` or `± 0.1`, a division by 0, digits and
commas that are neither one number nor a list (`0,125,000`), more than `MOST_DIGITS` digits. No sign, power or unit
reaches over a line's end. Every pattern is bounded or possessive, so that no text makes it slow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from deskroll.scoring.units import MONEY_BEFORE, Unit, money, rate, read_unit

MOST_DIGITS = 400
"""Digits of a number, and its largest power of ten."""

_START = re.compile(r"\.?[0-9]|\\frac")
_NO_NUMBER = re.compile(
    r"""
    [0-9]{1,4}[-/][0-9]{1,2}[-/][0-9]{1,4}(?![0-9])            # a date
    | [0-9]{1,4}年[0-9]{1,2}月(?:[0-9]{1,2}[日号])?
    | [0-9]{1,30}(?:\.[0-9]{1,30})?[ ]?/[ ]?0++(?![.0-9])       # divided by nothing
    | 0[bBoOxX][0-9A-Fa-f]++(?![0-9A-Za-z])                    # binary, octal, hexadecimal
    | [0-9]{1,3}(?:[, '][0-9]{3}){41,}+                        # too long, or a list
    | [0-9]{1,9}:[0-9]{1,9}(?::[0-9]{1,9})*                    # a time, a ratio
    | (?!(?:[1-9][0-9]{0,2}(?:\.[0-9]{3}){2,9}(?![0-9.])))[0-9]{1,9}(?:\.[0-9]{1,9}){2,}+     # a version, an address
    | [0-9]{1,30}(?:[.,][0-9]{1,30}){0,12}+(?:[ ]?\^[ ]?|\*\*)  # a power: as a whole, or not at all
        (?:\{[^{}\n]{0,200}\}|\([^()\n]{0,200}\)|[+-]?[0-9]++(?:[.,][0-9]++)?)
    | (?<![0-9],)(?![0-9]{1,2}(?:,[0-9]{1,2}){2,40}+(?!,?[0-9]))   # no list of small numbers like 1,2,3, but
        [0-9]++(?:,[0-9]++)++(?:\.[0-9]++)?                    # commas: as a whole, or not at all
    | [0-9]{1,30}\.[0-9]{0,30}\\(?:dot|bar|overline)[ ]?(?:\{[^{}\n]{0,200}\}|[0-9])   # 0.\dot{3}, likewise
        (?:[0-9]{0,30}\\dot[ ]?(?:\{[^{}\n]{0,200}\}|[0-9]))?[0-9]*+
    | \\frac\s?\{[^{}]{0,200}\}\s?\{[^{}]{0,200}\}            # a fraction that could not be read
    | \\frac
    | \.?[0-9]++                                               # whatever else begins like a number
    """,
    re.VERBOSE,
)
_FRAC = re.compile(
    r"(?:([0-9]{1,30}) ?)?\\frac\s?(?:\{\s?(-?[0-9.,]{1,60})\s?\}\s?\{\s?(-?[0-9.,]{1,60})\s?\}|([0-9])\s?([0-9]))"
)
_RECURRING = re.compile(
    r"([0-9]{1,30})\.([0-9]{0,30})\\(?:(?:bar|overline) ?(?:\{([0-9]{1,30})\}|([0-9]))"
    r"|dot ?\{?([0-9])\}?(?:([0-9]{0,30})\\dot ?\{?([0-9])\}?)?)"
)
_MIXED = re.compile(r"([0-9]{1,15}) ([0-9]{1,15})/([0-9]{1,15})(?![0-9./])")
_DECIMAL = re.compile(
    rf"""
    (?: (?!0)(?P<comma> [0-9]{{1,3}}(?:,[0-9]{{3}}){{1,40}}+       # 1,234,567
            | [0-9]{{1,2}}(?:,[0-9]{{2}}){{1,9}},[0-9]{{3}}        # 12,34,567
            | [0-9]{{1,4}}(?:,[0-9]{{4}}){{2,30}}+                 # 1,2345,6789
        ) (?P<c> \.[0-9]{{1,{MOST_DIGITS}}}+ )? (?!,?[0-9])
      | (?P<other> [0-9]{{1,3}}(?:[ '][0-9]{{3}}){{1,40}}+         # 1 234 567, 1'234'567
            | [0-9]{{1,30}}(?:_[0-9]{{1,30}}){{1,20}}+             # 1_234
        ) (?P<o> [.,][0-9]{{1,{MOST_DIGITS}}}+ )? (?![0-9_])
      | (?!0)(?P<dot> [0-9]{{1,3}}(?:\.[0-9]{{3}}){{1,40}}+) (?P<d> ,[0-9]{{1,{MOST_DIGITS}}}+) (?![.,]?[0-9]) # 1.234,5
      | (?!0)(?P<dots> [0-9]{{1,3}}(?:\.[0-9]{{3}}){{2,40}}+) (?![.,]?[0-9])                                # 1.234.567
      | (?P<european> (?<![0-9],)[0-9]{{1,30}},[0-9]{{1,30}}+) (?![.,]?[0-9])            # 3,14; 0,125; 1234,567
      | (?P<plain> [0-9]{{1,{MOST_DIGITS}}}+(?:\.[0-9]{{1,{MOST_DIGITS}}}+)? | \.[0-9]{{1,{MOST_DIGITS}}}+ ) (?![0-9])
    )
    """,
    re.VERBOSE,
)
_OVER = re.compile(r" ?/ ?(?=[0-9])")
_INTEGER = re.compile(r"\{ ?([+-]?[0-9]{1,20}) ?\}|\( ?([+-]?[0-9]{1,20}) ?\)|([+-]?[0-9]{1,20}+)(?![.,]?[0-9])")
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]{1,20}+)(?!\.?[0-9]|[A-Za-z])")
_TIMES_TEN = re.compile(r" ?[×xX*·] ?10 ?(?:\^|\*\*) ?")
_POWER = re.compile(r" ?\^ ?|\*\*")
_MAGNITUDE = re.compile(r" ?(?:(thousand|million|billion|trillion|bn|mn)\b|([百千万萬亿億]{1,3}))|(k)(?![A-Za-z])")
_MAGNITUDES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12, "bn": 9, "mn": 6, "k": 3,
               "百": 2, "千": 3, "万": 4, "萬": 4, "亿": 8, "億": 8}  # fmt: skip
_MONEY_MAGNITUDE = re.compile(r"([kKMBT])(?![A-Za-z])")
_MONEY_MAGNITUDES = {"k": 3, "K": 3, "M": 6, "B": 9, "T": 12}
_GOES_ON = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?(?=[百千万萬])")
_PERCENT = re.compile(r" ?(?:(%|percent(?:age points?)?\b|per cent\b|pct\b)|(‰))", re.IGNORECASE)
_PART_BEFORE = re.compile(
    r"(?:[^\W\d_⺀-\U0003ffff]|[\u0304\u0305\u0307]|[_^] ?[{(]?|[π√±](?:\[[^\[\]]{0,9}\]?)? ?[{(/*·×]? ?)\Z"
)
_PART_AFTER = re.compile(r"[\u0304\u0305\u0307]| ?[*·×]? ?[π√∞]|[a-zABDEG-Z](?![A-Za-z])|\^|_[{0-9a-z]")
_SIGN = re.compile(r"(?:(?<![\w)\]}%])|(?<=[⺀-\U0003ffff]))([+-])\Z|[=:≈(] ?([+-]) \Z")
_SIGN_WORD = re.compile(r"(?<![0-9])(?<![0-9] )(?:(?:minus|negative) |(?:[负負]|零下) ?)\Z", re.IGNORECASE)


@dataclass(frozen=True)
class Quantity:
    """One number of a text."""

    value: Fraction
    """As it is written: 50 for `50%`."""
    hundredths: Fraction | None
    """What a percent or permille makes of 1; None where it is neither."""
    unit: Unit
    rate: Unit
    """The unit where a time that is named before the number counts (`每小时36公里`); empty where none is."""
    start: int
    end: int


def quantities(text: str) -> Iterator[Quantity]:
    """The plain numbers of a text in plain notation, in order."""
    at = 0
    while start := _START.search(text, at):
        quantity = _quantity(text, start.start())
        if isinstance(quantity, Quantity):
            yield quantity
            at = quantity.end
        else:
            at = quantity


def _quantity(text: str, start: int) -> Quantity | int:
    """The quantity that begins there; where it is none, the place after it."""
    skipped = _NO_NUMBER.match(text, start)
    after = skipped.end() if skipped else start + 1
    found = _number(text, start)
    if found is None or (skipped and after > found[1]):
        return after
    value, end = found
    negative, paid, before = _prefix(text[max(0, start - 24) : start].rpartition("\n")[2])
    value, end = _magnitude(text, value, end, paid=bool(paid))
    share: Fraction | None = Fraction(1, 100) if before.endswith("百分之") else None
    unit: Unit = ()
    if percent := _PERCENT.match(text, end):
        share, end = Fraction(1, 100 if percent[1] else 1000), percent.end()
    else:
        unit, unit_end = read_unit(text, end)
        if unit_end == end and _PART_AFTER.match(text, end):
            return end
        end = unit_end
    if _PART_BEFORE.search(before):
        return end
    if paid and not unit:
        unit = money(paid)
    return Quantity(-value if negative else value, share, unit, rate(before, unit), start, end)


def _prefix(before: str) -> tuple[bool, str, str]:
    """What stands before a number: whether it is negative, the sign of money, and what is left before those."""
    negative, paid = False, ""
    for _ in range(2):
        if found := _SIGN.search(before) or _SIGN_WORD.search(before):
            negative, before = "+" not in found[0], before[: found.start()]
        if not paid and (found := MONEY_BEFORE.search(before)):
            paid, before = found[1], before[: found.start()]
    return negative, paid, before


def _number(text: str, at: int) -> tuple[Fraction, int] | None:
    """The value that is written there, without sign and magnitude, and where it ends."""
    if found := _FRAC.match(text, at):
        above, below = _decimal(found[2] or found[4]), _decimal(found[3] or found[5])
        if above is None or not below:
            return None
        return Fraction(found[1] or 0) + above / below, found.end()
    if found := _RECURRING.match(text, at):
        return _recurring(found), found.end()
    if (found := _MIXED.match(text, at)) and 0 < int(found[2]) < int(found[3]):
        return int(found[1]) + Fraction(int(found[2]), int(found[3])), found.end()
    first = _scaled(text, at)
    if first is None:
        return None
    if (over := _OVER.match(text, first[1])) and (second := _scaled(text, over.end())) and second[0]:
        return first[0] / second[0], second[1]
    return first


def _scaled(text: str, at: int) -> tuple[Fraction, int] | None:
    """A decimal number with its power of ten, or to a power."""
    found = _DECIMAL.match(text, at)
    value = _value(found) if found else None
    if found is None or value is None:
        return None
    end = found.end()
    if exponent := _EXPONENT.match(text, end):
        return _times_ten(value, int(exponent[1]), exponent.end())
    if times := _TIMES_TEN.match(text, end):
        whole = _INTEGER.match(text, times.end())
        return _times_ten(value, _integer(whole), whole.end()) if whole else None
    if power_of := _POWER.match(text, end):
        whole = _INTEGER.match(text, power_of.end())
        return _to_the(value, _integer(whole), whole.end()) if whole else (value, end)
    return value, end


def _integer(found: re.Match[str]) -> int:
    return int(found[1] or found[2] or found[3])


def _times_ten(value: Fraction, power: int, end: int) -> tuple[Fraction, int] | None:
    return (value * Fraction(10) ** power, end) if abs(power) <= MOST_DIGITS else None


def _to_the(value: Fraction, power: int, end: int) -> tuple[Fraction, int] | None:
    digits = math.log10(max(value.numerator, value.denominator))
    if abs(power) * digits > MOST_DIGITS or (not value and power < 0):
        return None
    return value**power, end


def _recurring(found: re.Match[str]) -> Fraction:
    """`0.1\\dot{6}`: the digits before the mark, and those under it for ever."""
    whole, fixed, *again = (each or "" for each in found.groups())
    cycle = "".join(again)
    below = 10 ** len(fixed)
    return Fraction(int(whole + fixed), below) + Fraction(int(cycle), (10 ** len(cycle) - 1) * below)


def _value(found: re.Match[str]) -> Fraction | None:
    if whole := found["comma"]:
        return Fraction(whole.replace(",", "") + (found["c"] or ""))
    if whole := found["other"]:
        return Fraction(re.sub("[ '_]", "", whole) + (found["o"] or "").replace(",", "."))
    if whole := found["dot"] or found["dots"]:
        return Fraction(whole.replace(".", "") + (found["d"] or "").replace(",", "."))
    return Fraction((found["european"] or found["plain"]).replace(",", "."))


def _decimal(text: str) -> Fraction | None:
    """A whole text that is one decimal number."""
    bare = text.removeprefix("-")
    found = _DECIMAL.fullmatch(bare)
    value = _value(found) if found else None
    return -value if value is not None and bare != text else value


def _magnitude(text: str, value: Fraction, end: int, *, paid: bool) -> tuple[Fraction, int]:
    """A number times what the words or signs behind it say: `5 million`, `3万5千`, `$2B`."""
    if paid and (found := _MONEY_MAGNITUDE.match(text, end)):
        return value * 10 ** _MONEY_MAGNITUDES[found[1]], found.end()
    total, least = Fraction(0), 100
    while found := _MAGNITUDE.match(text, end):
        words = [found[1] or found[3]] if found[1] or found[3] else list(found[2])
        power = sum(_MAGNITUDES[each] for each in words)
        if power >= least:
            break
        total, least, end = total + value * 10**power, power, found.end()
        more = _GOES_ON.match(text, end)
        if more is None:
            return total, end
        value, end = Fraction(more[0]), more.end()
    return (total, end) if total else (value, end)
