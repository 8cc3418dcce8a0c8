"""What a file of the desktop says, for the getters that are ours alone: each takes a file and the getter's settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from deskroll.envs.osworld.evaluate.native.images import image_size
from deskroll.envs.osworld.evaluate.native.jsons import json_of
from deskroll.envs.osworld.evaluate.native.looks import docx_runs, xlsx_styles
from deskroll.envs.osworld.evaluate.native.office import docx_paragraphs, pptx_texts
from deskroll.envs.osworld.evaluate.native.pdf import pdf_text
from deskroll.envs.osworld.evaluate.native.slides import pptx_slides
from deskroll.envs.osworld.evaluate.native.values import File
from deskroll.envs.osworld.evaluate.native.workbook import Workbook

Config = Mapping[str, Any]
Read = Callable[[File, Config], object]


def _xlsx_cells(file: File, config: Config) -> object:
    """The rows of a sheet (`sheet`: its name; without one, the first), numbers without needless decimals."""
    book = Workbook(file)
    name = config.get("sheet", next(iter(book.names), ""))
    if name not in book.names:
        return None
    return [[_whole(cell) for cell in row] for row in book.rows(name)]


def _whole(cell: object) -> object:
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell


READERS: Mapping[str, Read] = {
    "docx_paragraphs": lambda file, config: docx_paragraphs(file),
    "docx_runs": lambda file, config: docx_runs(file),
    "pptx_texts": lambda file, config: pptx_texts(file),
    "pptx_slides": lambda file, config: pptx_slides(file),
    "xlsx_cells": _xlsx_cells,
    "xlsx_styles": lambda file, config: xlsx_styles(file, config.get("sheet")),
    "pdf_text": lambda file, config: pdf_text(file),
    "json_value": lambda file, config: json_of(file),
    "image_size": lambda file, config: image_size(file),
}
