"""What a file of the desktop says, for the getters that are ours alone.

A document can ask for any amount of time and memory: it is to be read within limits (`bounded`). Whatever is wrong with
one raises `Unreadable`. A library is imported by the module that reads with it, and that one when it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from deskroll.envs.osworld.evaluate.native.values import File, Unreadable

READERS = {
    "docx_paragraphs": "documents",
    "docx_runs": "documents",
    "pptx_texts": "slides",
    "pptx_slides": "slides",
    "xlsx_cells": "sheets",
    "xlsx_styles": "sheets",
    "pdf_text": "pdfs",
    "json_value": "jsons",
}
"""The getters, each with the module beside this one that has a function of that name."""
LIBRARIES = {"documents": "docx", "slides": "pptx", "sheets": "openpyxl", "pdfs": "pypdf"}
"""What those modules import, all of the extra `local`."""


def read_file(getter: str, file: File, config: Mapping[str, Any]) -> object:
    """What a file says, by that getter; `at` and `default` in its settings pick a part of it."""
    module = import_module(f"{__package__}.{READERS[getter]}")
    try:
        found = getattr(module, getter)(file, config)
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # noqa: BLE001  (libraries raise whatever they stumble over)
        words = error if isinstance(error, Unreadable) else f"{type(error).__name__}: {error}"
        raise Unreadable(f"{file.name} cannot be read ({getter}): {words}") from None
    return value_at(found, config.get("at", ()), config.get("default"))


def value_at(value: object, path: Sequence[object], default: object = None) -> object:
    """The value at a path of names and numbers; the default where there is none."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step) if isinstance(step, str) else None
        elif isinstance(value, list) and type(step) is int:
            value = value[step] if -len(value) <= step < len(value) else None
        else:
            return default
    return default if value is None else value
