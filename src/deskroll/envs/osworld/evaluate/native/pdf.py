"""PDF files: the text of their pages, read by pypdf in a process of its own.

Guarantees: whatever the file holds, its reader takes no more than `CPU_S` seconds and `MEMORY` bytes, has none of this
process' variables, and ends with the call; what it cannot read is `Unreadable`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from deskroll.envs.osworld.evaluate.native.values import File, Unreadable
from deskroll.errors import EvaluatorError, plain

CPU_S = 20
MEMORY = 1024**3
_WALL_S = 300.0
_READER = Path(__file__).with_name("pdf_reader.py")


def pdf_text(file: File) -> str:
    """The text of all pages; a page ends with a form feed, but for the last one."""
    return "\f".join(_pages(file))


def pdf_pages(file: File) -> int:
    """How many pages it has."""
    return len(_pages(file))


def _pages(file: File) -> list[str]:
    try:
        ended = subprocess.run(
            [sys.executable, "-I", str(_READER), str(CPU_S), str(MEMORY)],
            input=file.data, capture_output=True, timeout=_WALL_S, env={}, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Unreadable(f"{file.name} could not be read within {_WALL_S:g} s") from None
    said = ended.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    if "No module named 'pypdf'" in said:
        raise EvaluatorError("a PDF is to be judged, and pypdf is not installed: pip install 'deskroll[local]'")
    if ended.returncode != 0:
        raise Unreadable(f"{file.name} is no PDF that can be read: {plain(said or f'exit code {ended.returncode}')}")
    return msgspec.json.decode(ended.stdout, type=list[str])
