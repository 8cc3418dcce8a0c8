"""Reading typed values out of what a model wrote: the checks that every codec shares.

Each reader returns its value in the one type that Actions use, or raises `ActionError` with the field, what
stood there and what is allowed. A boolean is never a number here, although Python says so, and a value that
is too long to print is shortened in the message.
"""

from __future__ import annotations

import difflib
import math
import reprlib
from collections.abc import Collection, Iterable, Mapping, Sequence

from deskroll.actions.noting import note
from deskroll.errors import ActionError

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def shown(value: object) -> str:
    """Return `value` for a message: its `repr`, shortened where it is long."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python refuses to print integers beyond some thousands of digits
        return "a huge number"


def near(word: str, known: Iterable[str]) -> str:
    """Return "did you mean …? " for a message, or nothing when no known word is near."""
    close = difflib.get_close_matches(word, sorted(known), n=3)
    return f"did you mean {' or '.join(close)}? " if close else ""


def integer(value: object, field: str) -> int:
    """Read a whole number; `3.0` is one, `3.5` and `True` are not."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise ActionError(f"{field} is {shown(value)}; allowed: a whole number")


def number(value: object, field: str) -> float:
    """Read a finite number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            if math.isfinite(value):
                return float(value)
        except OverflowError:  # an integer beyond the largest float
            pass
    raise ActionError(f"{field} is {shown(value)}; allowed: a number")


def pixel(value: object, field: str) -> int:
    """Read a coordinate. Fractions are rounded down, as pyautogui does; the range is `check`'s business."""
    return value if type(value) is int else math.floor(number(value, field))


def text(value: object, field: str) -> str:
    """Read a string."""
    if isinstance(value, str):
        return value
    raise ActionError(f"{field} is {shown(value)}; allowed: a string")


def choice(value: object, field: str, allowed: Collection[str]) -> str:
    """Read one of the `allowed` words, in any case."""
    words = {candidate.lower(): candidate for candidate in allowed}
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in words:
        return words[word]
    hint = near(word, words)
    raise ActionError(f"{field} is {shown(value)}; {hint}allowed: {', '.join(allowed)}")


def sequence(value: object, field: str, what: str, length: int | None = None) -> Sequence[object]:
    """Read a list, of `length` items where that is given; `what` describes it in the message."""
    if isinstance(value, list | tuple) and (length is None or len(value) == length):
        return value
    raise ActionError(f"{field} is {shown(value)}; allowed: {what}")


def given(
    raw: Mapping[str, object], name: str, required: Collection[str], optional: Collection[str], *, whose: str = ""
) -> dict[str, object]:
    """Return the parameters that are there (null counts as absent), and refuse a set that lacks some.

    One that is not known is left out, and noted, unless it looks like one that is and that is not there: models that
    misspell a parameter mean it. `whose` is the name in notes, where that in messages is another.
    """
    known = [*required, *optional]
    allowed = f"allowed: {', '.join(known)}" if known else "it takes no parameters"
    for field in raw:
        if field in known:
            continue
        if hint := near(str(field), [each for each in known if raw.get(each) is None]):
            raise ActionError(f"{name} has the unknown parameter {shown(field)}; {hint}{allowed}")
        note(f"{whose or name} has the unknown parameter {shown(field)}, which was ignored")
    there = {field: value for field, value in raw.items() if field in known and value is not None}
    if missing := [field for field in required if field not in there]:
        raise ActionError(f"{name} lacks {' and '.join(missing)}; {allowed}")
    return there
