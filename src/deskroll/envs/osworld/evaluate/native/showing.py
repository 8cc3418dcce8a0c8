"""What getters gave, as people read it: texts, what documents say, rules without their wrapping.

Guarantees: nothing here fails, whatever a file holds; it is read within the same bounds as for judging.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from deskroll.envs.osworld.evaluate.native import bounded
from deskroll.envs.osworld.evaluate.native.values import File, Unreadable
from deskroll.errors import EvaluatorError

_BY_ENDING = {".docx": "docx_paragraphs", ".xlsx": "xlsx_cells", ".pptx": "pptx_texts", ".pdf": "pdf_text"}
"""Which reader says what is in a file, by the ending of its name."""


async def show(value: object, *, read: bool = True) -> object:
    """A getter's value; of documents what they say or, without `read`, their names and sizes."""
    match value:
        case File():
            return await _contents(value, read=read)
        case Mapping() if set(value) == {"expected"}:
            return value["expected"]
    return value


async def _contents(file: File, *, read: bool) -> object:
    named = f"{file.name}, {len(file.data)} bytes"
    reader = _BY_ENDING.get(posixpath.splitext(file.name)[1].lower())
    try:
        if reader is None:
            return file.data.decode()
        return await bounded.read(reader, file, {}) if read else named
    except (Unreadable, UnicodeDecodeError, EvaluatorError):
        return named
