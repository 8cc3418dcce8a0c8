"""PDF files: the text of their pages, by pypdf (of the extra `local`).

A PDF can ask for any amount of time and memory: it is to be read within limits (`bounded`). What cannot be read is
`Unreadable`.
"""

from __future__ import annotations

import io
from importlib.util import find_spec

from deskroll.envs.osworld.evaluate.native.values import File, NotComparable, Unreadable


def pdf_text(file: File) -> str:
    """The text of all pages; a page ends with a form feed, but for the last one."""
    return "\f".join(_pages(file))


def pdf_pages(file: File) -> int:
    """How many pages it has."""
    return len(_pages(file))


def _pages(file: File) -> list[str]:
    if find_spec("pypdf") is None:
        raise NotComparable("a PDF is to be judged, and pypdf is not installed: pip install 'deskroll[local]'")
    from pypdf import PdfReader  # noqa: PLC0415  (of an extra)

    try:
        texts = [page.extract_text() for page in PdfReader(io.BytesIO(file.data)).pages]
    except Exception as error:  # noqa: BLE001  (pypdf raises whatever it stumbles over)
        raise Unreadable(f"{file.name} is no PDF that can be read: {type(error).__name__}: {error}") from None
    return ["\n".join(" ".join(line.split()) for line in text.splitlines()) for text in texts]
