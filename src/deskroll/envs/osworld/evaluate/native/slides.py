"""Reads the slides of a pptx file: what each says, and how it is laid out."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

from deskroll.envs.osworld.evaluate.native.package import A, P, Package, R
from deskroll.envs.osworld.evaluate.native.values import File

_TITLES = ("title", "ctrTitle")


def slide_parts(package: Package) -> list[str]:
    """The slides' parts, in the order of the show."""
    main = "ppt/presentation.xml"
    targets = package.targets(main)
    return [targets.get(each.get(f"{R}id", ""), "") for each in package.need(main).iter(f"{P}sldId")]


def pptx_slides(file: File) -> list[dict[str, object]]:
    """Each slide as `{title, texts, bold, layout, notes, background}`: paragraphs as text, empty ones left out."""
    package = Package(file)
    return [_slide(package, part) for part in slide_parts(package)]


def _slide(package: Package, part: str) -> dict[str, object]:
    root = package.need(part)
    titles = [shape for shape in root.iter(f"{P}sp") if placeholder(shape) in _TITLES]
    headings = {paragraph for title in titles for paragraph in title.iter(f"{A}p")}
    every = [each for each in root.iter(f"{A}p") if paragraph_text(each).strip()]
    colour = root.find(f"{P}cSld/{P}bg/{P}bgPr/{A}solidFill/{A}srgbClr")
    layouts = (package.need(each).find(f"{P}cSld") for each in package.related(part, "slideLayout")[:1])
    return {
        "title": "\n".join(paragraph_text(each) for each in every if each in headings),
        "texts": [paragraph_text(each) for each in every if each not in headings],
        "bold": [paragraph_text(each) for each in every if _is_bold(each)],
        "layout": "".join(each.get("name", "") for each in layouts if each is not None),
        "notes": "\n".join(_notes(package, part)),
        "background": "" if colour is None else colour.get("val", "").upper(),
    }


def placeholder(shape: ElementTree.Element) -> str | None:
    """What a shape is a placeholder for: `title`, `body`, ...; None where it is none."""
    found = shape.find(f"./*/{P}nvPr/{P}ph")
    return None if found is None else found.get("type", "obj")


def paragraph_text(paragraph: ElementTree.Element) -> str:
    """Its text, as python-pptx gives it: a line's end within it is a vertical tab."""
    parts = []
    for each in paragraph:
        if each.tag in (f"{A}r", f"{A}fld"):
            parts.append(each.findtext(f"{A}t") or "")
        elif each.tag == f"{A}br":
            parts.append("\v")
    return "".join(parts)


def _is_bold(paragraph: ElementTree.Element) -> bool:
    runs = [run for run in paragraph.iter(f"{A}r") if (run.findtext(f"{A}t") or "").strip()]
    marks = (run.find(f"{A}rPr") for run in runs)
    return bool(runs) and all(mark is not None and mark.get("b") in ("1", "true") for mark in marks)


def _notes(package: Package, part: str) -> Iterator[str]:
    for notes in package.related(part, "notesSlide")[:1]:
        for shape in package.need(notes).iter(f"{P}sp"):
            if placeholder(shape) == "body":
                yield from (paragraph_text(each) for each in shape.iter(f"{A}p"))
