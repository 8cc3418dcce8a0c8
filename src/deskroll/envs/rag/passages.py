"""Passages: documents cut between paragraphs, else sentences, else words, into texts of bounded length."""

from __future__ import annotations

import re
from collections.abc import Iterator

from deskroll.types import Record

_BORDERS = (re.compile(r"\n[ \t]*\n\s*"), re.compile(r"\n|(?<=[.!?])\s|(?<=[。！？])"), re.compile(r"\s"))
"""Where a text may be cut, the best first."""


class Document(Record, frozen=True):
    """One text with its name."""

    source: str
    """The file, relative to the corpus, or the document's own id."""
    title: str
    text: str
    has_lines: bool = False
    """Whether its lines are those of a file, so that a place in it can be told by them."""


class Passage(Record, frozen=True):
    """A part of a document, as a search finds it."""

    source: str
    place: str
    title: str
    text: str


def passages_of(document: Document, most: int) -> Iterator[Passage]:
    """The parts of a document, none longer than `most` characters, none empty."""
    whole = document.text
    spans = [span for span in _spans(whole, most) if whole[slice(*span)].strip()]
    line, counted = 1, 0
    for n, (start, end) in enumerate(spans, 1):
        text = whole[start:end].strip()
        if document.has_lines:
            begin = end - len(whole[start:end].lstrip())
            line += whole.count("\n", counted, begin)  # from where the last one began: each line is counted once
            counted = begin
            place = f"lines {line}-{line + text.count(chr(10))}"
        else:
            place = f"part {n} of {len(spans)}"
        yield Passage(source=document.source, place=place, title=document.title, text=text)


def _spans(text: str, most: int) -> Iterator[tuple[int, int]]:
    start = 0
    while len(text) - start > most:
        end = _cut(text, start, start + most)
        yield start, end
        start = end
    yield start, len(text)


def _cut(text: str, start: int, end: int) -> int:
    """The last good border before `end`; one that would leave less than a third is no good one."""
    for border in _BORDERS:
        places = [match.end() for match in border.finditer(text, start, end)]
        if places and places[-1] - start >= (end - start) // 3:
            return places[-1]
    return end
