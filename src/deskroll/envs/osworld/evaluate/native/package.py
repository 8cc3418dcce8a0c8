"""Office documents (docx, xlsx, pptx) as the archives that they are, looked through before a library opens one.

Guarantees: what is opened takes no more than `_MOST` bytes unpacked, and no part of it declares a document type, so
that no entity is ever expanded.
"""

from __future__ import annotations

import io
import zipfile

from deskroll.envs.osworld.evaluate.native.values import File, Unreadable

_MOST = 64 * 1024 * 1024
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""What office programs write; others can ask for any amount of memory."""


def open_package(file: File) -> io.BytesIO:
    """The file, for a library to read; `Unreadable` where it breaks a bound, any other error where it is no archive."""
    data, left = io.BytesIO(file.data), _MOST
    with zipfile.ZipFile(data) as archive:
        for part in archive.infolist():
            if part.compress_type not in _PACKED:
                raise Unreadable(f"{part.filename} is packed in a way that office documents are not")
            with archive.open(part) as stream:
                text = stream.read(left + 1)
            left -= len(text)
            if left < 0:
                raise Unreadable(f"it takes more than {_MOST} bytes unpacked")
            if part.filename.endswith((".xml", ".rels")) and (b"\0" in text or b"<!DOCTYPE" in text):
                raise Unreadable(f"{part.filename} is not plain XML")
    data.seek(0)
    return data
