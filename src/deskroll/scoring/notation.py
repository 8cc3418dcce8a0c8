"""Notation: brings the many ways of writing numbers and units (Unicode, LaTeX, full width) down to a few.

Nothing is evaluated and no value changes: `½` becomes `1/2`, `10⁻³` becomes `10^-3`, `5\\,\\text{km}` becomes `5 km`.
Whatever ends a line (`\\r\\n`, U+2028, a form feed) becomes `\\n`.
"""

from __future__ import annotations

import re
import unicodedata

from deskroll.scoring.fold import normalised

LONGEST_READ = 10_000
"""Characters of a text that are read: the last ones, since that is where an answer comes to its result."""

_LINE_END = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_SUPER = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_SUPERSCRIPT = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+")
_VULGAR = re.compile(r"([0-9]?)([¼½¾⅐-⅞↉])")
_CHARACTERS = str.maketrans(
    {"º": "°", "˚": "°", "㎡": "m^2", "㎥": "m^3", "㎠": "cm^2", "㎢": "km^2", "\u2010": "-", "\u2011": "-",
     "\u2012": "-", "\u2013": "-", "\u2212": "-", "\u2044": "/", "\u2215": "/", "\u2019": "'", "٫": ".", "٬": ",",
     "~": " ", "✕": "×", "⋅": "·"}
)  # fmt: skip
_LATEX: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), plain)
    for pattern, plain in (
        # LaTeX between dollars, told from money as pandoc does: no space inside, no digit behind.
        (r"(?<!\\)\${1,2}(?=[^\s$])([^$\n]{1,300})(?<=[^\s\\])\${1,2}(?![0-9])", r"\1"),
        (r"\\(?:text|textbf|mathrm|mathbf|mathit|operatorname|mbox|rm)\s?\{([^{}]*)\}", r" \1"),
        (r"\^\s?\{?\s?\\circ\s?\}?|\\degree\b", "°"),
        (r"\\([%$])|\{(,)\}", r"\1\2"),
        (r"\\[,;:! ]|\\q?quad\b", " "),
        (r"\\(?:left|right)\b", ""),
        (r"\\(?:[cdt]|nice)frac(?![A-Za-z])", r"\\frac"),
        (r"\\times\b", "×"),
        (r"\\cdot\b", "·"),
        (r"\\approx\b", "≈"),
        (r"\\mu\b", "μ"),
        (r"\\Omega\b", "Ω"),
        (r"\\pi\b", "π"),
        (r"\\pm\b", "±"),
        (r"\\sqrt\b", "√"),
        (r"(?<![A-Za-z])sqrt ?(?=[({0-9])", "√"),
        (r"(?<=[0-9*·×]) ?pi(?![A-Za-z])|(?<![A-Za-z])pi(?= ?[*/·×])", "π"),
        (r"(?i)(?:°|\bdegrees?) ?(?:celsius|centigrade|c)\b", "°C"),
        (r"(?i)(?:°|\bdegrees?) ?(?:fahrenheit|f)\b", "°F"),
        (r" {2,}", " "),
    )
)


def plain_notation(text: str) -> str:
    """A text with Unicode's and LaTeX's ways of writing numbers brought down to a few."""
    text = _LINE_END.sub("\n", text[-LONGEST_READ:]).translate(_CHARACTERS)
    text = _SUPERSCRIPT.sub(lambda found: f"^{found[0].translate(_SUPER)}", text)
    text = _VULGAR.sub(lambda found: f"{found[1]}{' ' if found[1] else ''}{_ascii(found[2])}", text)
    text = normalised("NFKC", text)[-2 * LONGEST_READ :].translate(_CHARACTERS)
    text = re.sub(r"(?![0-9])\d", lambda found: str(unicodedata.decimal(found[0])), text)
    for pattern, plain in _LATEX:
        text = pattern.sub(plain, text)
    return text


def _ascii(char: str) -> str:
    return unicodedata.normalize("NFKC", char).replace("\u2044", "/")
