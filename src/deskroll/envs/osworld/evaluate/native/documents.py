"""What docx files say and look like, by python-docx.

What is set on a run or a paragraph itself counts; what a style brings with it does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from docx import Document
from docx.text.paragraph import Paragraph
from docx.text.run import Run

from deskroll.envs.osworld.evaluate.native.package import open_package
from deskroll.envs.osworld.evaluate.native.values import Config, File

_ALIGNED = {"": "left", "start": "left", "end": "right", "both": "justify"}


def docx_paragraphs(file: File, config: Config) -> list[str]:
    """The text of each paragraph of the body, tables left out."""
    return [each.text for each in Document(open_package(file)).paragraphs]


def docx_runs(file: File, config: Config) -> list[list[object]]:
    """Each paragraph of the body as `[style, alignment, [[text, marks], ...]]`; marks are letters of `bius`."""
    return [_paragraph(each) for each in Document(open_package(file)).paragraphs]


def _paragraph(paragraph: Paragraph) -> list[object]:
    # As text: python-docx does not know all words for an alignment that programs write.
    side = "".join(map(str, paragraph._p.xpath("./w:pPr/w:jc/@w:val")))
    runs = [(run.text, _marks(run)) for run in _runs(paragraph) if run.text]
    joined = groupby(runs, key=lambda run: run[1])
    texts = [["".join(text for text, _ in group), marks] for marks, group in joined]
    style = paragraph.style
    return [style.name if style is not None else "Normal", _ALIGNED.get(side, side), texts]


def _runs(paragraph: Paragraph) -> Iterator[Run]:
    for each in paragraph.iter_inner_content():
        yield from [each] if isinstance(each, Run) else each.runs


def _marks(run: Run) -> str:
    font = run.font
    marks = {"b": font.bold, "i": font.italic, "u": font.underline, "s": font.strike}
    return "".join(letter for letter, on in marks.items() if on)
