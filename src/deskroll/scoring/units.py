"""Units: reads what stands behind a number, and converts between units through pint.

Guarantees: only the words of `unit_names.py` are units (pint itself would take `cats` for a pressure and `a` for a
year), and only pint's own names ever reach pint, never a text that somebody wrote. Numbers stay exact fractions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

from deskroll.scoring.unit_names import CHINESE, MONEY, symbols_and_words

if TYPE_CHECKING:
    import pint

Unit = tuple[tuple[str, int], ...]
"""pint's names with their powers, sorted; empty: none. A currency is one name that begins with `CURRENCY`."""
CURRENCY = "currency "
_MOST_FACTORS = 6

_TABLE: Mapping[str, str] = symbols_and_words()
_LONGEST_FIRST = "|".join(sorted(CHINESE, key=len, reverse=True))
_WORD = re.compile(
    rf"(?P<pre>(?:square|cubic|sq\.?|cu\.?) )?(?P<word>{_LONGEST_FIRST}|° ?[CFK](?![a-zA-Z])|°|"
    r"[A-Za-zμΩÅ]{1,24}(?![A-Za-z]))"
    r"(?:\^ ?[{(]? ?(?P<power>[+-]?[0-9]) ?[)}]?(?![0-9.])|(?P<digit>[23])(?![0-9.,A-Za-z]))?",
    re.IGNORECASE,
)
_TIMES = re.compile(r" ?[·⋅*] ?|-(?=[A-Za-zμΩ])| (?=[A-ZΩμa-z])")
_OVER = re.compile(r" ?/ ?(?P<open>\()?| per |每(?=[秒小分天年米])", re.IGNORECASE)
_MONEY = "|".join(re.escape(each) for each in sorted(MONEY, key=len, reverse=True))
_MONEY_AFTER = re.compile(rf" ?({_MONEY})(?![A-Za-z])")
MONEY_BEFORE = re.compile(rf"(?<![A-Za-z])({_MONEY})\.? ?\Z")
"""Money that stands before a number; to be searched in what comes before it."""
_EVERY = re.compile(r"每(小时|分钟?|秒钟?|天|年)[\u4e00-\u9fff]{0,4}\Z")
_KELVIN: Unit = (("kelvin", 1),)
_PROSE = frozenset(("in", "A", "min", "mi", "au", "AU", "l", "pc", "d", "b", "mb", "hp", "deg"))
"""Symbols that, after another unit and a space, are more often words of the sentence."""
_TEMPERATURES = ("degree_Celsius", "degree_Fahrenheit")
_ONE_WORD = frozenset(
    frozenset((((one, 1),), ((other, 1),)))
    for one, other in (
        *(("degree", each) for each in (*_TEMPERATURES, "kelvin")),
        ("pound", CURRENCY + "GBP"),
    )
)
"""`20 degrees` and `5 pounds` do not say of what: they are whatever the other side says."""


def money(written: str) -> Unit:
    """The unit that a sign or word of money stands for."""
    code = MONEY[written]
    return ((CURRENCY + code, 1),) if code else ()


def rate(before: str, unit: Unit) -> Unit:
    """The unit by the time that is named before the number (`每小时36公里`: km/h); empty where none is."""
    found = _EVERY.search(before)
    if found is None or not unit:
        return ()
    factors = dict(unit)
    time = CHINESE.get(found[1]) or "minute"
    factors[time] = factors.get(time, 0) - 1
    return _tidy(factors)


def read_unit(text: str, at: int) -> tuple[Unit, int]:
    """The unit that begins at a place of a text, after a space or not, and where it ends; none: empty, that place.

    `5K`, without a space, is 5000 as often as a temperature: it ends behind the K and has no unit.
    """
    if found := _MONEY_AFTER.match(text, at):
        return money(found[1]), found.end()
    factors: dict[str, int] = {}
    sign, bracket = 1, False
    here = at + (text[at : at + 1] == " ")
    end = at
    for _ in range(_MOST_FACTORS):
        factor = _factor(text, here)
        if factor is None:
            break
        name, power, end = factor
        factors[name] = factors.get(name, 0) + sign * power
        if bracket and text[end : end + 1] == ")":
            bracket, end = False, end + 1
        if over := _OVER.match(text, end):
            sign, bracket, here = -1, bool(over["open"]), over.end()
        elif times := _TIMES.match(text, end):
            # Without brackets only what follows the stroke directly is below it.
            sign, here = sign if bracket else 1, times.end()
            if times[0] == " " and not _is_symbol(text, here):
                break
        else:
            break
    unit = _tidy(factors)
    return () if unit == _KELVIN and text[at:end] == "K" else unit, end


def _factor(text: str, at: int) -> tuple[str, int, int] | None:
    """One word with its power: pint's name, the power, where it ends."""
    found = _WORD.match(text, at)
    if found is None:
        return None
    word = re.sub(r"\s", "", found["word"])
    name = CHINESE.get(word) or _TABLE.get(word) or _TABLE.get(word.lower() if len(word) > 3 else "", "")
    if not name or (word == "in" and re.match(r"\s?\w", text[found.end() : found.end() + 2])):
        return None
    name, _, own = name.partition(" ")
    power = int(found["power"] or found["digit"] or own or 1)
    if found["pre"]:
        power *= 2 if found["pre"].lower().startswith("sq") else 3
    return name, power, found.end()


def _is_symbol(text: str, at: int) -> bool:
    """Whether a product goes on after a space (`N m`, `kg m/s^2`): with a symbol, not with a word of the sentence."""
    found = _WORD.match(text, at)
    return found is not None and found["word"] in _TABLE and len(found["word"]) <= 3 and found["word"] not in _PROSE


def _tidy(factors: Mapping[str, int]) -> Unit:
    return tuple(sorted((name, power) for name, power in factors.items() if power))


def converted(value: Fraction, unit: Unit, to: Unit) -> Fraction | None:
    """A value in another unit; None where the two are not of a kind."""
    if unit == to or frozenset((unit, to)) in _ONE_WORD:
        return value
    if any(name.startswith(CURRENCY) for name, _ in (*unit, *to)):
        return None
    registry = _registry()
    here, there = _in_pint(unit), _in_pint(to)
    if registry.get_base_units(here)[1] != registry.get_base_units(there)[1]:
        return None
    return Fraction(registry.convert(value, here, there))


def _in_pint(unit: Unit) -> pint.Unit:
    registry = _registry()
    product = registry.Unit("")
    for name, power in unit:
        # Inside a product a temperature is a difference: it has no zero.
        own = f"delta_{name}" if name in _TEMPERATURES and (power != 1 or len(unit) > 1) else name
        product *= registry.Unit(own) ** power
    return product


@cache
def _registry() -> pint.UnitRegistry[Fraction]:
    import pint  # noqa: PLC0415  (takes half a second, and is needed only where two units differ)

    return pint.UnitRegistry(non_int_type=Fraction)
