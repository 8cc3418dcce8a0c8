"""`compare_pptx_files`: whether two presentations say and look the same, as upstream's metric of that name finds it.

Options that ask for a shape to have been moved or resized (`_MOVES`) are upstream's to judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deskroll.envs.osworld.evaluate.native.package import A, P
from deskroll.envs.osworld.evaluate.native.slide_shapes import (
    Element,
    Place,
    Slide,
    cells_of,
    paragraphs_of,
    run_colour,
    shape_text,
    slides_of,
)
from deskroll.envs.osworld.evaluate.native.slides import paragraph_text
from deskroll.envs.osworld.evaluate.native.values import file_of

Options = Mapping[str, Any]
_MOVES = (
    "examine_title_bottom_position",
    "examine_table_bottom_position",
    "examine_right_position",
    "examine_top_position",
    "examine_shape_for_shift_size",
    "examine_image_size",
    "examine_modify_height",
)
_ON = ("1", "true")


def is_supported(options: Options) -> bool:
    """Whether these options are judged here."""
    return not any(options.get(name) for name in _MOVES)


def compare_pptx_files(result: Any, expected: Any, options: Options) -> float:
    """Whether two presentations are the same in all that `examine_...` does not leave out."""
    slides = [slides_of(file_of(each, what)) for each, what in ((result, "result"), (expected, "expected"))]
    if len(slides[0]) != len(slides[1]) and _examines(options, "number_of_slides"):
        return 0.0
    return float(all(_Pair(one, two, options).is_same() for one, two in zip(*slides, strict=False)))


def _examines(options: Options, what: str) -> bool:
    return bool(options.get(f"examine_{what}", True))


class _Pair:
    """Two slides side by side."""

    def __init__(self, one: Slide, two: Slide, options: Options) -> None:
        self._slides = (one, two)
        self._options = options
        self._tolerance = options.get("approximately_tolerance", 0.005)
        self._seen: set[Element] = set()
        self._bullets_are_compared = False

    def is_same(self) -> bool:
        """Whether they are."""
        one, two = self._slides
        if self._examines("background_color") and one.background() != two.background():
            return False
        if self._examines("note") and one.notes() != two.notes():
            return False
        if len(one.shapes) != len(two.shapes) or len(one.texts()) != len(two.texts()):
            return False
        shapes = zip(one.shapes, two.shapes, strict=True)
        return all(self._are_same(*each) for each in shapes) and self._texts_are_same()

    def _examines(self, what: str) -> bool:
        return _examines(self._options, what)

    def _are_same(self, one: Element, two: Element) -> bool:
        if self._examines("shape") and not self._are_near(self._slides[0].place(one), self._slides[1].place(two)):
            return False
        cells = cells_of(one)
        if cells is not None and not self._tables_are_same(cells, cells_of(two)):
            return False
        return one.tag != f"{P}sp" or two.tag != f"{P}sp" or self._paragraphs_are_same(one, two)

    def _are_near(self, one: Place, two: Place) -> bool:
        for a, b in zip(one, two, strict=True):
            if a == b:
                continue
            if not a or not b or abs(a - b) / max(abs(a), abs(b)) > self._tolerance:
                return False
        return True

    def _tables_are_same(self, one: list[list[Element]], two: list[list[Element]] | None) -> bool:
        """How their texts are written; what they say is compared with the bullets."""
        if two is None or [len(row) for row in one] != [len(row) for row in two]:
            return False
        pairs = (cells for rows in zip(one, two, strict=True) for cells in zip(*rows, strict=True))
        return all(self._cells_are_same(*each) for each in pairs)

    def _cells_are_same(self, one: Element, two: Element) -> bool:
        paragraphs = [[each.findall(f"{A}r") for each in paragraphs_of(cell)] for cell in (one, two)]
        if [len(runs) for runs in paragraphs[0]] != [len(runs) for runs in paragraphs[1]]:
            return False
        pairs = [pair for runs in zip(*paragraphs, strict=True) for pair in zip(*runs, strict=True)]
        return all(self._colours_agree(*each) and _marks_agree(*each) and _lines_agree(*each) for each in pairs)

    def _paragraphs_are_same(self, one: Element, two: Element) -> bool:
        if self._examines("text") and shape_text(one).strip() != shape_text(two).strip():
            return False
        paragraphs = (paragraphs_of(one), paragraphs_of(two))
        return len(paragraphs[0]) == len(paragraphs[1]) and all(map(self._paragraph_is_same, *paragraphs))

    def _paragraph_is_same(self, one: Element, two: Element) -> bool:
        if self._examines("alignment") and _alignment(one) != _alignment(two):
            return False
        if self._examines("text") and paragraph_text(one) != paragraph_text(two):
            return False
        if self._examines("indent") and _about(one, "lvl", "0") != _about(two, "lvl", "0"):
            return False
        self._seen.update((one, two))
        runs = (one.findall(f"{A}r"), two.findall(f"{A}r"))
        return len(runs[0]) == len(runs[1]) and all(map(self._run_is_same, *runs))

    def _run_is_same(self, one: Element, two: Element) -> bool:
        typefaces = [run.find(f"{A}rPr/{A}latin") for run in (one, two)]
        names = [None if each is None else each.get("typeface") for each in typefaces]
        return (
            (names[0] == names[1] or not self._examines("font_name"))
            and (_mark(one, "sz") == _mark(two, "sz") or not self._examines("font_size"))
            and (_is_on(one, "b") == _is_on(two, "b") or not self._examines("font_bold"))
            and (_is_on(one, "i") == _is_on(two, "i") or not self._examines("font_italic"))
            and self._colours_agree(one, two)
            and (_lines_agree(one, two) or not self._examines("font_underline"))
            and (_struck(one) == _struck(two) or not self._examines("strike_through"))
            and self._bullets_agree()
        )

    def _colours_agree(self, one: Element, two: Element) -> bool:
        """A colour of the theme agrees with any."""
        colours = (run_colour(one), run_colour(two))
        return None in colours or colours[0] == colours[1] or not self._examines("color_rgb")

    def _bullets_agree(self) -> bool:
        """Those of the whole slides, once, at the first run: as long as no run has been seen, none is compared."""
        if self._bullets_are_compared or not self._examines("bullets"):
            return True
        self._bullets_are_compared = True
        found = [_bullets(slide.root, self._seen) for slide in self._slides]
        return None in found or found[0] == found[1]

    def _texts_are_same(self) -> bool:
        """All texts again, with those in groups."""
        if not self._examines("alignment"):
            return True
        for one, two in zip(self._slides[0].texts(), self._slides[1].texts(), strict=True):
            if self._examines("text") and shape_text(one).strip() != shape_text(two).strip():
                return False
            if [_alignment(each) for each in paragraphs_of(one)] != [_alignment(each) for each in paragraphs_of(two)]:
                return False
        return True


def _about(paragraph: Element, name: str, default: str) -> str:
    about = paragraph.find(f"{A}pPr")
    return default if about is None else about.get(name, default)


def _alignment(paragraph: Element) -> str:
    return _about(paragraph, "algn", "l")


def _mark(run: Element, name: str) -> str | None:
    about = run.find(f"{A}rPr")
    return None if about is None else about.get(name)


def _is_on(run: Element, name: str) -> bool:
    return _mark(run, name) in _ON


def _marks_agree(one: Element, two: Element) -> bool:
    return all(_is_on(one, name) == _is_on(two, name) for name in ("b", "i"))


def _lines_agree(one: Element, two: Element) -> bool:
    """Underlines: none given is as good as any but a single line."""
    lines = (_mark(one, "u"), _mark(two, "u"))
    return lines[0] == lines[1] or (None in lines and "sng" not in lines)


def _struck(run: Element) -> str:
    return _mark(run, "strike") or "noStrike"


def _bullets(root: Element, seen: set[Element]) -> list[tuple[str, str, str]] | None:
    """Level, bullet and text of each paragraph that says something; None where upstream's cannot tell.

    A paragraph that nothing is said about is on no level, unless it has been looked at before: python-pptx writes
    down then that it is on the first one.
    """
    found = []
    for paragraph in root.iter(f"{A}p"):
        texts = [each.text for each in paragraph.iter(f"{A}t")]
        if None in texts:
            return None
        text = "".join(each or "" for each in texts)
        about = paragraph.find(f"{A}pPr")
        bullet = None if about is None else about.find(f"{A}buChar")
        level = "no level" if about is None and paragraph not in seen else _about(paragraph, "lvl", "0")
        if text.strip():
            found.append((level, "" if bullet is None else bullet.get("char", ""), text))
    return found
