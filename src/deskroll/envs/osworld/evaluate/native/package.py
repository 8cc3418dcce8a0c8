"""The parts of an office document (docx, xlsx, pptx), read with the standard library and within bounds.

Guarantees: no file takes more than `_MOST` bytes unpacked, no document type declaration is read (so no entity is ever
expanded), and whatever is wrong raises `Unreadable`.
"""

from __future__ import annotations

import io
import posixpath
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

from deskroll.envs.osworld.evaluate.native.values import File, Unreadable
from deskroll.types import Record

_MOST = 64 * 1024 * 1024
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""What office programs write; others can ask for any amount of memory."""
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
R = f"{{{OFFICE}}}"
W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
S = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
C = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"


class Relation(Record, frozen=True):
    """That a part names another one."""

    id: str
    kind: str
    """The last word of its type: `slideLayout`, `chart`, ..."""
    target: str


class Package:
    """The parts of one file."""

    def __init__(self, file: File) -> None:
        self._name = file.name
        self._left = _MOST
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(file.data))
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
            raise Unreadable(f"{file.name} is no office document: {error}") from None

    def xml(self, path: str, *, required: bool = True) -> ElementTree.Element | None:
        """One part; None where it may be missing, and is."""
        try:
            if self._zip.getinfo(path).compress_type not in _PACKED:
                raise Unreadable(f"{self._name}: {path} is packed in a way that office documents are not")
            with self._zip.open(path) as part:
                data = part.read(self._left + 1)
        except KeyError:
            if required:
                raise Unreadable(f"{self._name} has no {path}") from None
            return None
        except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, RuntimeError, NotImplementedError) as e:
            raise Unreadable(f"{self._name}: {path}: {e}") from None
        self._left -= len(data)
        if self._left < 0:
            raise Unreadable(f"{self._name} takes more than {_MOST} bytes unpacked")
        if b"\0" in data or b"<!DOCTYPE" in data:
            raise Unreadable(f"{self._name}: {path} is no plain XML")
        try:
            return ElementTree.fromstring(data)  # noqa: S314  (no declarations, so no entities; the size is bounded)
        except (ElementTree.ParseError, ValueError, LookupError) as error:
            raise Unreadable(f"{self._name}: {path}: {error}") from None

    def need(self, path: str) -> ElementTree.Element:
        """One part that must be there."""
        found = self.xml(path)
        if found is None:
            raise Unreadable(f"{self._name} has no {path}")
        return found

    def relations(self, part: str) -> Sequence[Relation]:
        """The parts of this file that a part names."""
        folder, name = posixpath.split(part)
        root = self.xml(f"{folder}/_rels/{name}.rels", required=False)
        found = []
        for each in root if root is not None else ():
            target = posixpath.normpath(posixpath.join("/", folder, each.get("Target", ""))).lstrip("/")
            kind = each.get("Type", "").rpartition("/")[2]
            if each.get("TargetMode") != "External":
                found.append(Relation(id=each.get("Id", ""), kind=kind, target=target))
        return found

    def targets(self, part: str) -> Mapping[str, str]:
        """The same, by their ids."""
        return {each.id: each.target for each in self.relations(part)}

    def related(self, part: str, kind: str) -> Sequence[str]:
        """Those of one kind."""
        return [each.target for each in self.relations(part) if each.kind == kind]
