"""Makes documents with the libraries of upstream's environment, whose Python runs this: `{name: base64}` on stdout."""

from __future__ import annotations

import base64
import datetime
import io
import json
import sys
from collections.abc import Callable
from typing import Any

import pymupdf
from docx import Document
from openpyxl import Workbook
from pptx import Presentation
from pptx.dml.color import RGBColor
from pptx.enum.dml import MSO_THEME_COLOR
from pptx.enum.text import PP_ALIGN
from pptx.util import Emu, Pt


def saved(document: Any) -> bytes:
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def deck(change: Callable[[Any], object] = lambda deck: None) -> bytes:
    """Two slides: a list with notes; a box, a table and a group."""
    made = Presentation()
    first = made.slides.add_slide(made.slide_layouts[1])
    first.shapes.title.text = "Plan"
    first.placeholders[1].text = "one\ntwo"
    first.notes_slide.notes_text_frame.text = "say hello"
    second = made.slides.add_slide(made.slide_layouts[5])
    second.shapes.title.text = "Figures"
    second.shapes.add_textbox(Emu(914400), Emu(1828800), Emu(2743200), Emu(914400)).text_frame.text = "in a box"
    table = second.shapes.add_table(2, 2, Emu(914400), Emu(3657600), Emu(3657600), Emu(914400)).table
    for n, text in enumerate(("a", "b", "c", "d")):
        table.cell(n // 2, n % 2).text = text
    group = second.shapes.add_group_shape()
    group.shapes.add_textbox(Emu(100), Emu(100), Emu(900000), Emu(300000)).text_frame.text = "in a group"
    change(made)
    return saved(made)


def run(deck: Any) -> Any:
    return deck.slides[0].placeholders[1].text_frame.paragraphs[0].runs[0]


def paragraph(deck: Any) -> Any:
    return deck.slides[0].placeholders[1].text_frame.paragraphs[1]


def box(deck: Any) -> Any:
    return deck.slides[1].shapes[1]


def cell(deck: Any) -> Any:
    return deck.slides[1].shapes[2].table.cell(0, 0)


def put(thing: Any, **values: Any) -> None:
    for name, value in values.items():
        setattr(thing, name, value)


def fill(thing: Any, colour: str) -> None:
    thing.background.fill.solid()
    thing.background.fill.fore_color.rgb = RGBColor.from_string(colour)


def bullet(deck: Any, char: str) -> None:
    about = paragraph(deck)._p.get_or_add_pPr()
    about.append(about.makeelement("{http://schemas.openxmlformats.org/drawingml/2006/main}buChar", {"char": char}))


DECKS: dict[str, Callable[[Any], object]] = {
    "same": lambda d: None,
    "text": lambda d: put(run(d), text="ones"),
    "blank": lambda d: put(paragraph(d), text="two "),
    "case": lambda d: put(paragraph(d), text="Two"),
    "break": lambda d: put(run(d), text="o\vne"),
    "paragraph": lambda d: d.slides[0].placeholders[1].text_frame.add_paragraph(),
    "split": lambda d: put(paragraph(d).add_run(), text=""),
    "bold": lambda d: put(run(d).font, bold=True),
    "not_bold": lambda d: put(run(d).font, bold=False),
    "italic": lambda d: put(run(d).font, italic=True),
    "underline": lambda d: put(run(d).font, underline=True),
    "no_underline": lambda d: put(run(d).font, underline=False),
    "strike": lambda d: run(d).font._element.set("strike", "sngStrike"),
    "size": lambda d: put(run(d).font, size=Pt(20)),
    "name": lambda d: put(run(d).font, name="Arial"),
    "red": lambda d: put(run(d).font.color, rgb=RGBColor(255, 0, 0)),
    "blue": lambda d: put(run(d).font.color, rgb=RGBColor(0, 0, 255)),
    "theme": lambda d: put(run(d).font.color, theme_color=MSO_THEME_COLOR.ACCENT_1),
    "left": lambda d: put(paragraph(d), alignment=PP_ALIGN.LEFT),
    "centre": lambda d: put(paragraph(d), alignment=PP_ALIGN.CENTER),
    "level": lambda d: put(paragraph(d), level=1),
    "about": lambda d: paragraph(d)._p.get_or_add_pPr(),
    "bullet": lambda d: bullet(d, "*"),
    "notes": lambda d: put(d.slides[0].notes_slide.notes_text_frame, text="say goodbye"),
    "notes_blank": lambda d: put(d.slides[0].notes_slide.notes_text_frame, text=" say hello\n"),
    "more_notes": lambda d: put(d.slides[1].notes_slide.notes_text_frame, text="more"),
    "ground": lambda d: fill(d.slides[0], "00FF00"),
    "other_ground": lambda d: fill(d.slides[0], "00FE00"),
    "master_ground": lambda d: fill(d.slide_master, "00FF00"),
    "near": lambda d: put(box(d), left=Emu(916000)),
    "far": lambda d: put(box(d), left=Emu(990000)),
    "wide": lambda d: put(box(d), width=Emu(3743200)),
    "placed": lambda d: put(d.slides[0].shapes[0], **{n: getattr(d.slides[0].shapes[0], n) for n in PLACE}),
    "title_far": lambda d: put(d.slides[0].shapes[0], left=Emu(1), top=Emu(1), width=Emu(99), height=Emu(99)),
    "shape": lambda d: d.slides[0].shapes.add_textbox(Emu(1), Emu(1), Emu(1), Emu(1)),
    "slide": lambda d: d.slides.add_slide(d.slide_layouts[6]),
    "layout": lambda d: d.slides.add_slide(d.slide_layouts[0]),
    "group": lambda d: put(d.slides[1].shapes[3].shapes[0].text_frame, text="in the group"),
    "group_centre": lambda d: put(d.slides[1].shapes[3].shapes[0].text_frame.paragraphs[0], alignment=PP_ALIGN.CENTER),
    "group_more": lambda d: d.slides[1].shapes[3].shapes.add_textbox(Emu(1), Emu(1), Emu(1), Emu(1)),
    "cell": lambda d: put(cell(d), text="A"),
    "cell_bold": lambda d: put(cell(d).text_frame.paragraphs[0].runs[0].font, bold=True),
    "cell_red": lambda d: put(cell(d).text_frame.paragraphs[0].runs[0].font.color, rgb=RGBColor(255, 0, 0)),
    "cell_empty": lambda d: put(cell(d), text=""),
    "cell_more": lambda d: cell(d).text_frame.add_paragraph(),
    "swapped": lambda d: d.slides[1].shapes[2]._element.addnext(box(d)._element),
    "unicode": lambda d: put(run(d), text="ünï 漢字 \U0001f600"),
    "empty": lambda d: put(run(d), text=""),
}
PLACE = ("left", "top", "width", "height")


def letter(*paragraphs: tuple[str, str]) -> bytes:
    made = Document()
    for text, style in paragraphs:
        made.add_paragraph(text, style or None)
    return saved(made)


def book(rows: list[list[object]], title: str = "S") -> bytes:
    made = Workbook()
    made.active.title = title
    for row in rows:
        made.active.append(row)
    return saved(made)


def print_(*pages: str, **how: Any) -> bytes:
    made = pymupdf.open()
    for text in pages:
        made.new_page().insert_text((72, 72), text)
    return made.tobytes(**how)


ROWS: list[list[object]] = [["name", "n"], ["a", 1], ["b", 2.5]]
FILES: dict[str, Callable[[], bytes]] = {
    "letter.docx": lambda: letter(("Title", "Heading 1"), ("one two", ""), ("", ""), ("three", "List Bullet")),
    "letter-text.docx": lambda: letter(("Title", "Heading 1"), ("one twos", ""), ("", ""), ("three", "List Bullet")),
    "letter-style.docx": lambda: letter(("Title", ""), ("one  two", ""), ("three", "")),
    "book.xlsx": lambda: book(ROWS),
    "book-near.xlsx": lambda: book([*ROWS[:2], ["b", 2.50001]]),
    "book-other.xlsx": lambda: book([*ROWS[:2], ["b", 2.6]]),
    "book-title.xlsx": lambda: book(ROWS, "T"),
    "book-text.xlsx": lambda: book([*ROWS[:2], ["b", "2.5"]]),
    "book-day.xlsx": lambda: book([["day"], [datetime.datetime(2024, 1, 1)]]),
    "one.pdf": lambda: print_("hello"),
    "three.pdf": lambda: print_("a", "b", "c"),
    "packed.pdf": lambda: print_("a", "b", "c", deflate=True, use_objstms=1, garbage=3),
    **{f"{name}.pptx": lambda change=change: deck(change) for name, change in DECKS.items()},
}

if __name__ == "__main__":
    json.dump({name: base64.b64encode(make()).decode() for name, make in FILES.items()}, sys.stdout)
