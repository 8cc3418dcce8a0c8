"""The words by which texts and queries are compared: NFKC, case folded, CJK as single and paired characters."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

_CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_RUN = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")
_IS_CJK = re.compile(rf"[{_CJK}]")
_ASCII = re.compile(r"[a-z0-9]+")
_LONGEST_WORD = 64


def words(text: str, *, stem: bool) -> list[str]:
    """Every word in order; CJK writing has no spaces, so each of its characters counts, and each pair of neighbours."""
    if text.isascii():  # several times as fast, and most texts are
        found = _ASCII.findall(text.lower())
    else:
        found = []
        for run in _RUN.findall(unicodedata.normalize("NFKC", text).casefold()):
            if _IS_CJK.match(run):
                found += run
                found += (first + second for first, second in pairwise(run))
            else:
                found.append(run)
    return [_singular(word[:_LONGEST_WORD]) if stem and word[-1] == "s" else word[:_LONGEST_WORD] for word in found]


def _singular(word: str) -> str:
    """An English plural's singular, nearly by Harman's rules; other words as they are."""
    if len(word) < 4 or not word.isascii():
        return word
    if word.endswith("ies") and word[-4] not in "ae":
        return word[:-3] + "y"
    if word.endswith("es") and word[-3] not in "ao":
        return word[:-1]
    return word if word.endswith(("us", "ss", "es")) else word[:-1]
