"""What PDF files say, by pypdf."""

from __future__ import annotations

import io

from pypdf import PdfReader

from deskroll.envs.osworld.evaluate.native.values import Config, File


def pdf_text(file: File, config: Config) -> str:
    """The text of all pages; a page ends with a form feed, but for the last one."""
    pages = [page.extract_text().splitlines() for page in PdfReader(io.BytesIO(file.data)).pages]
    return "\f".join("\n".join(" ".join(line.split()) for line in lines) for lines in pages)
