"""What people and models write in formulas, as Python writes it: ^ × ÷ π √ ° ² ! and a single =.

What stands behind its operand (! !! ° deg ² ³) binds closest of all: 1/30° is 1/(30°), and 2^3! is 2^(3!). What can be
read in two ways (4!=25, 1,000) is refused with both of them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from deskroll.envs.calculator.refused import Refused

_SIGNS = str.maketrans(
    {"^": "**", "×": "*", "·": "*", "⋅": "*", "÷": "/", "−": "-", "–": "-", "π": " pi ", "∞": " oo ", "≤": "<=",
     "≥": ">=", "≠": " != ", "\n": " ", "\r": " ", "\t": " "}
)  # fmt: skip
_ROOT = re.compile(r"√\s*(\d+(?:\.\d+)?|[A-Za-z]\w*\b(?!\s*\())")
_THOUSANDS = re.compile(r"(?<![\w.])[1-9]\d{0,2}(?:,\d{3})*,0\d\d(?:,\d{3})*(?!\d)")
_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<number>0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|(?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)(?:[eE][+-]?\d+)?)
    |(?P<degrees>°|deg(?:rees?)?\b(?!\s*\())
    |(?P<name>[A-Za-z_]\w*)
    |(?P<unequal>!=(?!=))
    |(?P<behind>!!(?!=)|!|²|³)
    |(?P<sign>\*\*|//|<=|>=|==|:=|.)""",
    re.VERBOSE | re.ASCII,
)
_BEHIND = {"!": "factorial({})", "!!": "factorial2({})", "°": "deg({})", "²": "pow({}, 2)", "³": "pow({}, 3)"}
_WORDS = {"and", "or", "not", "in", "is", "if", "else", "for", "lambda"}


class _Part(NamedTuple):
    kind: str | None
    text: str


def pythonic(text: str) -> str:
    """The expression in Python's notation; what it means is for others to say."""
    source = text.strip().translate(_SIGNS)
    if found := _THOUSANDS.search(source):
        raise Refused(f"write {found[0].replace(',', '')} for {found[0]}: a number has no commas")
    source = _ROOT.sub(r"sqrt(\1)", source).replace("√", "sqrt")
    parts: list[_Part] = []
    for token in _TOKEN.finditer(source):
        _add(parts, _Part(token.lastgroup, token[0]))
    return "".join(part.text for part in parts).strip()


def _add(parts: list[_Part], part: _Part) -> None:
    match part.kind:
        case "behind" | "degrees" if (start := _operand(parts)) is not None:
            operand = "".join(each.text for each in parts[start:]).rstrip()
            form = _BEHIND.get(part.text, _BEHIND["°"])
            parts[start:] = [_Part("whole", form.format(operand))]
        case "unequal" if parts and parts[-1].kind != "space" and _operand(parts) is not None:
            raise Refused("'!=' can be a factorial or 'is not'; write '4! = 24' or '4 != 24', with the spaces")
        case "sign" if part.text == "=":
            parts.append(_Part("sign", "=="))
        case _:
            parts.append(part)


def _operand(parts: list[_Part]) -> int | None:
    """Where the operand begins that ends here; None: there is none."""
    at = _before(parts, len(parts))
    if at is None:
        return None
    if parts[at].text not in (")", "]"):
        return at if _is_operand(parts[at]) else None
    depth = 0
    for n in range(at, -1, -1):
        depth += (parts[n].text in (")", "]")) - (parts[n].text in ("(", "["))
        if depth == 0:
            name = _before(parts, n)
            return name if name is not None and parts[name].kind == "name" and _is_operand(parts[name]) else n
    return None


def _before(parts: list[_Part], end: int) -> int | None:
    return next((n for n in range(end - 1, -1, -1) if parts[n].kind != "space"), None)


def _is_operand(part: _Part) -> bool:
    return part.kind in ("number", "whole", "degrees") or (part.kind == "name" and part.text not in _WORDS)
