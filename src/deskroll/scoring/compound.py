"""Compounds: quantities in several units that are one: `2 hours 30 minutes`, `5 ft 11 in`, `5小时30分钟`.

Two that follow each other are one where nothing but a space, a comma, `and`, `又` or `零` stands between them, the
first is a whole number, and the second, in a smaller unit of the same kind, comes to less than one of the first. So
`3 m, 2 m` stays a list, and `2 hours, 120 minutes` the same thing twice. `1 inch, 2.5 cm` is no compound either:
but for times, the larger unit must be a whole number of the smaller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from deskroll.scoring.quantities import MOST_DIGITS, Quantity, quantities
from deskroll.scoring.units import Unit, converted

_BETWEEN = re.compile(r" ?(?:, ?)?(?:and |[又零] ?)?(?=[.0-9])", re.IGNORECASE)
_REACH = 2 * MOST_DIGITS
"""Characters that are looked at for the next part."""
_SECOND: Unit = (("second", 1),)


def compounds(text: str) -> Iterator[Quantity]:
    """The plain numbers of a text in plain notation, in order; those of several units as one, in the first unit."""
    end = 0
    for each in quantities(text):
        if each.start >= end:
            whole = _whole(text, each)
            end = whole.end
            yield whole


def _whole(text: str, first: Quantity) -> Quantity:
    """The quantity with all that follows and belongs to it."""
    total, part, end, of_first = abs(first.value), first, first.end, Fraction(1)
    while part.unit and part.value.denominator == 1 and (between := _BETWEEN.match(text, end)):
        here = between.end()
        following = next(quantities(text[here : here + _REACH]), None)
        if following is None or following.start or not following.unit:
            break
        size = _part_of(following.unit, part.unit)
        if not size or following.value * size >= 1:
            break
        of_first *= size
        total, part, end = total + following.value * of_first, following, here + following.end
    return first if part is first else replace(first, value=-total if first.value < 0 else total, end=end)


@lru_cache(maxsize=1024)
def _part_of(unit: Unit, larger: Unit) -> Fraction | None:
    """What one of a unit is of the larger one; None where the two make no compound."""
    size = converted(Fraction(1), unit, larger)
    if size is None or not 0 < size < 1 or converted(Fraction(0), unit, larger) != 0:  # a scale with another zero
        return None
    return size if size.numerator == 1 or converted(Fraction(1), unit, _SECOND) is not None else None
