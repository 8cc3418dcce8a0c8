"""What was found beside what was expected, in brief: for people who read why something was scored as it was.

Guarantees: both are texts of at most `LONGEST` characters; of long ones, the part is shown in which they first differ.
"""

from __future__ import annotations

from itertools import takewhile

import msgspec

LONGEST = 500
"""Characters that are kept of each."""
_BEFORE = 60
"""Characters that are shown of what two long texts have in common, before they differ."""
_MORE = "..."


def excerpts(found: object, expected: object) -> tuple[str | None, str | None]:
    """Both in brief; None stays None: there is nothing."""
    texts = [text_of(found), text_of(expected)]
    there = [text for text in texts if text is not None]
    start = 0
    if len(there) == 2 and max(map(len, there)) > LONGEST and there[0] != there[1]:
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*there, strict=False)))
        start = max(0, shared - _BEFORE)
    brief = [None if text is None else shorten(text, start) for text in texts]
    return brief[0], brief[1]


def shorten(text: str, start: int = 0) -> str:
    """Of a long text what begins at `start`, with marks where something is left out."""
    start = min(start, len(text))
    text = f"{_MORE} {text[start:]}" if start else text
    return text if len(text) <= LONGEST else f"{text[: LONGEST - len(_MORE) - 1]} {_MORE}"


def text_of(value: object) -> str | None:
    """A value as it is read: text as it is, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value, enc_hook=repr).decode()
    except (msgspec.MsgspecError, UnicodeError, TypeError, ValueError, RecursionError):
        return repr(value)
