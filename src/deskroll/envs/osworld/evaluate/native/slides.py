"""What the slides of pptx files say, and how they are laid out, by python-pptx."""

from __future__ import annotations

from typing import Any

from pptx import Presentation
from pptx.oxml.ns import qn
from pptx.slide import Slide

from deskroll.envs.osworld.evaluate.native.package import open_package
from deskroll.envs.osworld.evaluate.native.values import Config, File

_HEADINGS = './/p:sp[p:nvSpPr/p:nvPr/p:ph[@type="title" or @type="ctrTitle"]]//a:p'
_COLOUR = "./p:cSld/p:bg/p:bgPr/a:solidFill/a:srgbClr/@val"


def pptx_texts(file: File, config: Config) -> list[list[str]]:
    """The paragraphs of each slide, in the order of the slides and of the file; empty ones left out."""
    slides = Presentation(open_package(file)).slides
    every = [[_words(each) for each in slide.element.iter(qn("a:p"))] for slide in slides]
    return [[text for text in texts if text.strip()] for texts in every]


def _words(paragraph: Any) -> str:
    return "".join(each.text or "" for each in paragraph.iter(qn("a:t")))


def pptx_slides(file: File, config: Config) -> list[dict[str, object]]:
    """Each slide as `{title, texts, bold, layout, notes, background}`: paragraphs as text, empty ones left out."""
    return [_slide(each) for each in Presentation(open_package(file)).slides]


def _slide(slide: Slide) -> dict[str, object]:
    root: Any = slide.element
    headings = set(root.xpath(_HEADINGS))
    every = [each for each in root.iter(qn("a:p")) if each.text.strip()]
    return {
        "title": "\n".join(each.text for each in every if each in headings),
        "texts": [each.text for each in every if each not in headings],
        "bold": [each.text for each in every if _is_bold(each)],
        "layout": slide.slide_layout.name,
        "notes": _notes(slide),
        "background": "".join(root.xpath(_COLOUR)).upper(),
    }


def _is_bold(paragraph: Any) -> bool:
    runs = [run for run in paragraph.iter(qn("a:r")) if run.text.strip()]
    return bool(runs) and all(run.rPr is not None and run.rPr.b for run in runs)


def _notes(slide: Slide) -> str:
    frame = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
    return "" if frame is None else frame.text
