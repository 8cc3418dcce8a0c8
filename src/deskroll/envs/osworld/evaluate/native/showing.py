"""What getters gave, as people read it: texts, what documents say, rules without their wrapping.

Guarantees: nothing here fails, whatever a file holds; it is read within the same bounds as for judging.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from deskroll.envs.osworld.evaluate.native import bounded
from deskroll.envs.osworld.evaluate.native.values import File, NotComparable, Unreadable
from deskroll.errors import EvaluatorError

_BY_ENDING = {
    ".docx": "docx_paragraphs", ".xlsx": "xlsx_cells", ".pptx": "pptx_texts", ".pdf": "pdf_text",
    ".png": "image_size", ".jpg": "image_size", ".jpeg": "image_size",
}  # fmt: skip
"""Which reader says what is in a file, by the ending of its name."""


async def show(value: object, *, read: bool = True) -> object:
    """A getter's value; of documents what they say or, without `read`, their names and sizes."""
    match value:
        case File():
            return await _contents(value, read=read)
        case list():
            return [await show(each, read=read) for each in value]
        case Mapping() if set(value) == {"expected"}:
            return value["expected"]
    return value


async def is_broken(value: object) -> bool:
    """Whether a file cannot be read at all, whatever it is compared with."""
    if not isinstance(value, File):
        return False
    reader = _reader(value)
    try:
        if reader is None:
            value.text()
        else:
            await bounded.read(reader, value, {})
    except Unreadable:
        return True
    return False


def _reader(file: File) -> str | None:
    return _BY_ENDING.get(posixpath.splitext(file.name)[1].lower())


async def _contents(file: File, *, read: bool) -> object:
    named = f"{file.name}, {len(file.data)} bytes"
    reader = _reader(file)
    try:
        if reader is None:
            return file.text()
        return await bounded.read(reader, file, {}) if read else named
    except (Unreadable, NotComparable, EvaluatorError):
        return named
