"""Texts that are made to be slow or to break: a million characters each."""

from __future__ import annotations

SIZE = 1_000_000

HUGE = {
    name: (unit * (SIZE // len(unit) + 1))[:SIZE]
    for name, unit in {
        "letters": "a", "words": "a ", "digits": "1", "groups": ",234", "numbers": "1 ", "dots": ".", "signs": "-",
        "brackets": "(", "boxes": "\\boxed{", "fractions": "\\frac{", "equals": "=5", "markers": "answer is ",
        "units": "5 km", "strokes": "km/", "exponents": "1e", "versions": "1.2.", "chinese": "中文", "myriads": "5万",
        "spaces": " ", "halves": "1½", "marks": "\u0315\u0300", "ligatures": "\ufdfa", "surrogates": "\ud800",
        "nulls": "\0", "lists": "1,", "citations": "5 [1", "dots over": "0.\\dot{3}", "stars": "9**",
        "commas": "1234,567,", "dollars": "$5", "powers": "9^9", "texts": "\\text{", "json": '{"verdict": ',
        "compounds": "1 h 1 min 1 s ",
    }.items()
}  # fmt: skip
