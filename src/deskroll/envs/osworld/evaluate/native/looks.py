"""Reads what docx and xlsx files look like: for tasks on bold, headings, alignment, number formats, charts.

What is set on a run, a paragraph or a cell itself counts; what a style brings with it does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, islice
from xml.etree import ElementTree

from deskroll.envs.osworld.evaluate.native.office import run_text
from deskroll.envs.osworld.evaluate.native.package import C, Package, R, S, W
from deskroll.envs.osworld.evaluate.native.values import File

Look = list[object]
_ALIGNED = {"start": "left", "end": "right", "both": "justify"}
_MARKS = {"b": "b", "i": "i", "u": "u", "strike": "s"}
_OFF = ("0", "false", "off", "none")
_FORMATS = {
    1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 9: "0%", 10: "0.00%", 11: "0.00E+00", 14: "mm-dd-yy",
    20: "h:mm", 21: "h:mm:ss", 22: "m/d/yy h:mm", 49: "@",
}  # fmt: skip
"""Number formats that files name by number alone."""


def docx_runs(file: File) -> list[Look]:
    """Each paragraph of the body as `[style, alignment, [[text, marks], ...]]`; marks are letters of `bius`."""
    package = Package(file)
    names = _style_names(package)
    body = package.need("word/document.xml").find(f"{W}body")
    return [_paragraph(each, names) for each in (body if body is not None else ()) if each.tag == f"{W}p"]


def _style_names(package: Package) -> Mapping[str, str]:
    """By ids; the default one is that of no id."""
    names = {"": "Normal"}
    root = package.xml("word/styles.xml", required=False)
    for style in root.iter(f"{W}style") if root is not None else ():
        if style.get(f"{W}type") != "paragraph":
            continue
        name = _val(style.find(f"{W}name"))
        name = name.capitalize() if name.startswith("heading ") else name
        names[style.get(f"{W}styleId", "")] = name
        if style.get(f"{W}default") in ("1", "true"):
            names[""] = name
    return names


def _val(element: ElementTree.Element | None, default: str = "") -> str:
    return default if element is None else element.get(f"{W}val", default)


def _paragraph(paragraph: ElementTree.Element, names: Mapping[str, str]) -> Look:
    style = _val(paragraph.find(f"{W}pPr/{W}pStyle"))
    side = _val(paragraph.find(f"{W}pPr/{W}jc"), "left")
    runs = [(run_text(run), _marks(run)) for run in _runs(paragraph)]
    joined = groupby((run for run in runs if run[0]), key=lambda run: run[1])
    texts = [["".join(text for text, _ in group), marks] for marks, group in joined]
    return [names.get(style, style), _ALIGNED.get(side, side), texts]


def _runs(paragraph: ElementTree.Element) -> Iterator[ElementTree.Element]:
    for each in paragraph:
        if each.tag == f"{W}r":
            yield each
        elif each.tag == f"{W}hyperlink":
            yield from (run for run in each if run.tag == f"{W}r")


def _marks(run: ElementTree.Element) -> str:
    found = ((mark, run.find(f"{W}rPr/{W}{tag}")) for tag, mark in _MARKS.items())
    return "".join(mark for mark, element in found if element is not None and _val(element) not in _OFF)


def xlsx_styles(file: File, sheet: str | None) -> dict[str, object] | None:
    """What a sheet (the first, unless told) looks like; None where there is none of that name."""
    package = Package(file)
    targets = package.targets("xl/workbook.xml")
    ids = {each.get("name", ""): each.get(f"{R}id", "") for each in package.need("xl/workbook.xml").iter(f"{S}sheet")}
    chosen = next(iter(ids), "") if sheet is None else sheet
    if chosen not in ids:
        return None
    part = targets.get(ids[chosen], "")
    root = package.need(part)
    cells = [(cell.get("r", ""), cell.get("s", "0")) for cell in root.iter(f"{S}c") if len(cell)]
    bold, formats = _cell_styles(package)
    charts = [chart for drawing in package.related(part, "drawing") for chart in _charts(package, drawing)]
    return {
        "bold": [place for place, style in cells if style in bold],
        "formats": {place: formats[style] for place, style in cells if style in formats},
        "merged": [each.get("ref", "") for each in root.iter(f"{S}mergeCell")],
        "charts": [_kind(each) for each in charts],
        "chart_ranges": [_ranges(each) for each in charts],
    }


def _cell_styles(package: Package) -> tuple[set[str], Mapping[str, str]]:
    """Which of the cells' styles are bold, and the number formats of those that have one."""
    root = package.xml("xl/styles.xml", required=False)
    if root is None:
        return set(), {}
    named = {each.get("numFmtId", ""): each.get("formatCode", "") for each in root.iter(f"{S}numFmt")}
    known = {**{str(n): code for n, code in _FORMATS.items()}, **named}
    heavy = {str(n) for n, font in enumerate(root.iterfind(f"{S}fonts/{S}font")) if _is_on(font.find(f"{S}b"))}
    styles: Sequence[ElementTree.Element] = root.findall(f"{S}cellXfs/{S}xf")
    bold = {str(n) for n, style in enumerate(styles) if style.get("fontId") in heavy}
    formats = {str(n): known.get(style.get("numFmtId", "0"), "General") for n, style in enumerate(styles)}
    return bold, {n: code for n, code in formats.items() if code.lower() != "general"}


def _is_on(element: ElementTree.Element | None) -> bool:
    return element is not None and element.get("val", "1") not in _OFF


def _charts(package: Package, drawing: str) -> Iterator[ElementTree.Element]:
    """What each chart plots: the first plot of each."""
    for part in package.related(drawing, "chart"):
        area = package.need(part).find(f"{C}chart/{C}plotArea")
        plots = (each for each in (area if area is not None else ()) if _kind(each))
        yield from islice(plots, 1)


def _kind(plot: ElementTree.Element) -> str:
    """`column`, `bar`, `line`, `pie`, ..., as flat ones are called; empty: it is no plot."""
    if not plot.tag.startswith(C) or not plot.tag.endswith("Chart"):
        return ""
    direction = plot.find(f"{C}barDir")
    upright = direction is not None and direction.get("val") == "col"
    return "column" if upright else plot.tag.removeprefix(C).removesuffix("Chart").removesuffix("3D")


def _ranges(plot: ElementTree.Element) -> list[str]:
    """Where the values of each of its series stand: `Sheet1!$B$2:$B$5`; empty where they stand in no cells."""
    values = ((series.find(f"{C}val"), series.find(f"{C}yVal")) for series in plot.iterfind(f"{C}ser"))
    held = (flat if flat is not None else scattered for flat, scattered in values)
    return [("" if each is None else each.findtext(f".//{C}f") or "").strip() for each in held]
