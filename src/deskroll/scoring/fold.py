"""Folding: what texts have to have in common to count as the same, and the words that they are made of.

Guarantees: time grows with the length of the text and no faster, whatever is in it. (Unicode's normal forms sort runs
of combining marks, which takes the square of their number: such runs are broken up first, as Unicode's "stream-safe
text" does.)
"""

from __future__ import annotations

import re
import string
import unicodedata
from typing import Literal

LONGEST_READ = 100_000
"""Characters of a text that are folded; what comes after them is not looked at."""

_RUN = 30
_JOINER = "\u034f"
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\0"))
_TYPOGRAPHIC = str.maketrans("\u2018\u2019\u201c\u201d\u2010\u2011\u2212", "''\"\"---")

_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
UNSPACED = rf"\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u312f\u31f0-\u31ff\uac00-\ud7af{_HAN}"
"""The inside of a character class: scripts without spaces between words, or (Hangul) with endings that stick."""
_MARKS = "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed"
_INDIC = "\u0900-\u0963\u0966-\u0dff"
_LETTER = rf"(?:[^\W_{UNSPACED}]|[{_MARKS}{_INDIC}])"
_PIECE = re.compile(
    rf"""
    (?: (?<![\w)\]]) - (?=\.?[0-9]) )? (?: (?<!\w) \.(?=[0-9]) )?    # a sign, a leading point: part of the number
    {_LETTER}++ (?: (?<=[0-9]) [.,] (?=[0-9]) {_LETTER}++ )*+
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_ALONE = re.compile(rf"([{UNSPACED}])")
_ARTICLES = frozenset(("a", "an", "the"))


def normalised(form: Literal["NFC", "NFKC"], text: str) -> str:
    """The normal form of a text, in linear time."""
    return text if text.isascii() else unicodedata.normalize(form, _stream_safe(text))


def folded(text: str) -> str:
    """A text without what seldom matters: case, width, kind of quotes, hyphens and minus, amount of white space."""
    # One character may become eighteen: it is cut again.
    text = normalised("NFKC", text[:LONGEST_READ])[:LONGEST_READ].casefold()
    text = normalised("NFKC", text[:LONGEST_READ]).translate(_INVISIBLE).translate(_TYPOGRAPHIC)
    return " ".join(text.split())


def pieces(text: str) -> list[str]:
    """Words, numbers as they are written (`-5`, `1,234.5`), and every other character by itself, in order."""
    return _PIECE.findall(folded(text))


def tokens(text: str) -> list[str]:
    """The words of a text as SQuAD's evaluation counts them: no punctuation, no English articles.

    Each character of a script without spaces is a word. A text that has nothing else keeps its articles, or else its
    punctuation: an answer may well be `A`, or `+`.
    """
    whole = folded(text)
    bare = "".join(each for each in whole if not _is_punctuation(each))
    words = _ALONE.sub(r" \1 ", bare).split()
    return [word for word in words if word not in _ARTICLES] or words or whole.split()


def _is_punctuation(char: str) -> bool:
    return char in string.punctuation if char.isascii() else unicodedata.category(char)[0] == "P"


def _stream_safe(text: str) -> str:
    parts: list[str] = []
    run = 0
    for char in text:
        run = run + 1 if unicodedata.combining(char) else 0
        if run > _RUN:
            parts.append(_JOINER)
            run = 1
        parts.append(char)
    return "".join(parts)
