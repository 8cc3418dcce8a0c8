"""What people and models write in formulas, as Python writes it: ^ × ÷ π √ ° ! and a single =."""

from __future__ import annotations

import re

_SIGNS = str.maketrans(
    {"^": "**", "×": "*", "·": "*", "⋅": "*", "÷": "/", "−": "-", "–": "-", "π": " pi ", "∞": " oo ", "²": "**2",
     "³": "**3", "≤": "<=", "≥": ">=", "≠": "!="}
)  # fmt: skip
_DEGREES = re.compile(r"(?<=[\d.)\w])\s*(?:°|(?<![A-Za-z_])deg(?:rees?)?\b(?!\s*\())")
_ROOT = re.compile(r"√\s*(\d+(?:\.\d+)?|[A-Za-z]\w*\b(?!\s*\())")
_FACTORIAL = re.compile(r"(\b\d+|\b[A-Za-z]\w*|\([^()]*\))\s*!(?!=)")
_EQUALS = re.compile(r"(?<![=<>!:])=(?!=)")


def pythonic(text: str) -> str:
    """The expression in Python's notation; what it means is for others to say."""
    source = text.strip().translate(_SIGNS)
    source = _ROOT.sub(r"sqrt(\1)", source).replace("√", "sqrt")
    source = _DEGREES.sub("*deg", source)
    source = _FACTORIAL.sub(r"factorial(\1)", source)
    return _EQUALS.sub("==", source).strip()
