"""Metrics that compare an answer with a reference as texts. Pure, and quick whatever the texts are.

`exact_match` reads all of both texts. The others fold them first (`fold.py`), and of an answer of more than
`LONGEST_READ` characters they read the beginning; the reason of the score says so. A reference of that length is for
`exact_match` and `similarity` only: the others give no score.
"""

from __future__ import annotations

from collections import Counter

from deskroll.scoring.fold import LONGEST_READ, folded, normalised, pieces, tokens
from deskroll.types import Score

LONGEST_COMPARED = 20_000
"""Characters of each text between which `similarity` counts edits: the time that takes grows with their product."""
_WORD = 6
"""For so many characters of an answer that are not read, `f1_score` counts a word that is not shared."""


def exact_match(answer: str, reference: str) -> Score:
    """1 when both are the same characters, but for white space around them and how accents are encoded."""
    same = normalised("NFC", answer.strip()) == normalised("NFC", reference.strip())
    return Score(value=float(same), reason=_reason("exact_match", "the same text" if same else "another text"))


def f1_score(answer: str, reference: str) -> Score:
    """The harmonic mean of precision and recall over words, as in SQuAD's evaluation."""
    if len(reference) > LONGEST_READ:
        return _too_long("f1_score", reference)
    given, wanted = tokens(answer), tokens(reference)
    shared = 0
    if given and wanted:
        shared = (Counter(given) & Counter(wanted)).total()
        unread = max(0, len(answer) - LONGEST_READ) // _WORD
        value = 2 * shared / (len(given) + unread + len(wanted))
    else:
        value = float(given == wanted)
    said = f"{shared} of {len(wanted)} words found, of {len(given)} given"
    return Score(value=value, reason=_reason("f1_score", said) + _cut(answer))


def similarity(answer: str, reference: str) -> Score:
    """1 less the edits (Levenshtein) that turn one text into the other, over the length of the longer one.

    What lies beyond the lengths that are read counts as different, so the value never flatters.
    """
    from rapidfuzz.distance import Levenshtein  # noqa: PLC0415  (a run with another metric does without)

    if answer == reference:
        return Score(value=1.0, reason=_reason("similarity", "the same text"))
    given, wanted = folded(answer), folded(reference)
    unread = max(0, max(len(answer), len(reference)) - LONGEST_READ)
    beyond = max(0, max(len(given), len(wanted)) - LONGEST_COMPARED) if given != wanted else 0
    edits = Levenshtein.distance(given[:LONGEST_COMPARED], wanted[:LONGEST_COMPARED]) + beyond + unread
    reason = _reason("similarity", f"{edits} edits apart")
    if unread or beyond:
        reason += f"; only the first {LONGEST_COMPARED} characters were compared, the rest counts as different"
    longest = max(len(given), len(wanted)) + unread
    return Score(value=1 - edits / longest if longest else 1.0, reason=reason)


def contains_answer(answer: str, reference: str) -> Score:
    """1 when the reference stands in the answer as whole words and whole numbers; an empty one never does."""
    if len(reference) > LONGEST_READ:
        return _too_long("contains_answer", reference)
    wanted = pieces(reference)
    value = bool(wanted) and _joined(wanted) in _joined(pieces(answer))
    said = _reason("contains_answer", "found" if value else "not found")
    return Score(value=float(value), reason=said + _cut(answer))


def _joined(parts: list[str]) -> str:
    """Pieces as one text, so that whole pieces are found by a search that takes linear time."""
    return "\0" + "\0".join(parts) + "\0"


def _reason(metric: str, said: str) -> str:
    return f"{metric} with the reference answer: {said}"


def _cut(answer: str) -> str:
    if len(answer) <= LONGEST_READ:
        return ""
    return f"; only the first {LONGEST_READ} of the answer's {len(answer)} characters were read"


def _too_long(metric: str, reference: str) -> Score:
    why = f"the reference answer has {len(reference)} characters, and {metric} takes {LONGEST_READ}"
    return Score(value=None, reason=f"{why}: use exact_match or similarity")
