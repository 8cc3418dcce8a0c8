"""Reads the text of docx and pptx files. Whatever is wrong with one raises `Unreadable`."""

from __future__ import annotations

from xml.etree import ElementTree

from deskroll.envs.osworld.evaluate.native.package import A, P, Package, R, W
from deskroll.envs.osworld.evaluate.native.values import File

_BREAKS = {f"{W}tab": "\t", f"{W}br": "\n", f"{W}cr": "\n", f"{W}noBreakHyphen": "-"}


def docx_paragraphs(file: File) -> list[str]:
    """The text of each paragraph of the body, tables left out, as python-docx gives it."""
    body = Package(file).need("word/document.xml").find(f"{W}body")
    return [_paragraph(each) for each in (body if body is not None else ()) if each.tag == f"{W}p"]


def _paragraph(paragraph: ElementTree.Element) -> str:
    runs = []
    for each in paragraph:
        if each.tag == f"{W}r":
            runs.append(run_text(each))
        elif each.tag == f"{W}hyperlink":
            runs.extend(run_text(run) for run in each if run.tag == f"{W}r")
    return "".join(runs)


def run_text(run: ElementTree.Element) -> str:
    """The text of a run of a docx."""
    parts = []
    for each in run:
        if each.tag == f"{W}t":
            parts.append(each.text or "")
        elif each.tag in _BREAKS and each.get(f"{W}type", "textWrapping") == "textWrapping":
            parts.append(_BREAKS[each.tag])
    return "".join(parts)


def pptx_texts(file: File) -> list[list[str]]:
    """The paragraphs of each slide, in the order of the slides and of the file; empty ones left out."""
    package = Package(file)
    targets = package.targets("ppt/presentation.xml")
    shown = package.need("ppt/presentation.xml").iter(f"{P}sldId")
    slides = []
    for each in shown:
        slide = package.need(targets.get(each.get(f"{R}id", ""), ""))
        texts = ("".join(t.text or "" for t in p.iter(f"{A}t")) for p in slide.iter(f"{A}p"))
        slides.append([text for text in texts if text.strip()])
    return slides
