"""Tasks with evaluators, and small office documents."""

from __future__ import annotations

import base64
import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from pptx import Presentation

from deskroll.tasks import parse_task
from deskroll.types import Task

_TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
_RELS = "http://schemas.openxmlformats.org/package/2006/relationships"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_KIND = "application/vnd.openxmlformats-officedocument"
_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_S = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


def judged(func: object, result: object = None, expected: object = None, **more: Any) -> Task:
    """A task with that evaluator."""
    evaluator = {"func": func, "result": result, "expected": expected, **more}
    return parse_task({"id": "t", "instruction": "do it", "evaluator": evaluator}, "here")


def inline(name: str, data: bytes) -> dict[str, Any]:
    """A file that stands in the task."""
    return {"type": "inline_file", "dest": name, "base64": base64.b64encode(data).decode()}


def rule(**rules: Any) -> dict[str, Any]:
    """Expected by rules."""
    return {"type": "rule", "rules": rules}


def package(parts: Mapping[str, str], main: str, kinds: Mapping[str, str]) -> bytes:
    """An office document of these parts."""
    overrides = "".join(f'<Override PartName="/{p}" ContentType="{_KIND}.{k}+xml"/>' for p, k in kinds.items())
    whole = {
        "[Content_Types].xml": f'<Types xmlns="{_TYPES}"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Default Extension="xml" ContentType="application/xml"/>{overrides}</Types>',
        "_rels/.rels": relations({"rId1": ("officeDocument", main)}),
        **parts,
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in whole.items():
            file.writestr(name, text)
    return out.getvalue()


def relations(targets: Mapping[str, tuple[str, str]]) -> str:
    """A part that names others."""
    each = "".join(f'<Relationship Id="{i}" Type="{_OFFICE}/{k}" Target="{t}"/>' for i, (k, t) in targets.items())
    return f'<Relationships xmlns="{_RELS}">{each}</Relationships>'


def docx(*paragraphs: str) -> bytes:
    """A document of these paragraphs; a tab and a line's end within one are kept."""
    marks = {"\t": "<w:tab/>", "\n": "<w:br/>"}
    body = ""
    for text in paragraphs:
        runs = "".join(marks.get(c) or f'<w:t xml:space="preserve">{escape(c)}</w:t>' for c in text)
        body += f"<w:p><w:r>{runs}</w:r></w:p>"
    main = "word/document.xml"
    xml = f'<w:document xmlns:w="{_W}"><w:body>{body}<w:tbl/><w:sectPr/></w:body></w:document>'
    return package({main: xml}, main, {main: "wordprocessingml.document.main"})


def xlsx(sheets: Mapping[str, Sequence[Sequence[object]]]) -> bytes:
    """A workbook of these sheets."""
    parts, kinds, targets, names = {}, {"xl/workbook.xml": "spreadsheetml.sheet.main"}, {}, ""
    for n, (name, rows) in enumerate(sheets.items(), start=1):
        body = ""
        for y, row in enumerate(rows, start=1):
            cells = "".join(_cell(f"{chr(64 + x)}{y}", value) for x, value in enumerate(row, start=1))
            body += f'<row r="{y}">{cells}</row>'
        path = f"xl/worksheets/sheet{n}.xml"
        parts[path] = f'<worksheet xmlns="{_S}"><sheetData>{body}</sheetData></worksheet>'
        kinds[path] = "spreadsheetml.worksheet"
        targets[f"rId{n}"] = ("worksheet", f"worksheets/sheet{n}.xml")
        names += f'<sheet name="{escape(name)}" sheetId="{n}" r:id="rId{n}"/>'
    parts["xl/workbook.xml"] = f'<workbook xmlns="{_S}" xmlns:r="{_OFFICE}"><sheets>{names}</sheets></workbook>'
    parts["xl/_rels/workbook.xml.rels"] = relations(targets)
    return package(parts, "xl/workbook.xml", kinds)


class Raw(str):
    """A cell as it stands in the file, between its place and its end: ` t="b"><v/>`."""

    __slots__ = ()


def _cell(place: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, Raw):
        return f'<c r="{place}"{value}</c>'
    if isinstance(value, bool):
        return f'<c r="{place}" t="b"><v>{int(value)}</v></c>'
    if isinstance(value, int | float):
        return f'<c r="{place}"><v>{value}</v></c>'
    return f'<c r="{place}" t="inlineStr"><is><t>{escape(str(value))}</t></is></c>'


def pptx(*slides: Sequence[str]) -> bytes:
    """Slides of these paragraphs."""
    deck, out = Presentation(), io.BytesIO()
    for texts in slides:
        box = deck.slides.add_slide(deck.slide_layouts[6]).shapes.add_textbox(0, 0, 99, 99)
        box.text_frame.text = "\n".join(texts)
    deck.save(out)
    return out.getvalue()


def pdf(*pages: Sequence[str]) -> bytes:
    """Pages of these lines."""
    kids = " ".join(f"{3 + 2 * n} 0 R" for n in range(len(pages)))
    objects = ["<</Type/Catalog/Pages 2 0 R>>", f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>"]
    font = "<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>>>>>"
    for n, lines in enumerate(pages):
        said = " ".join(f"({line}) Tj T*" for line in lines)
        content = f"BT /F1 12 Tf 14 TL 72 720 Td {said} ET"
        objects.append(f"<</Type/Page/Parent 2 0 R/Resources{font}/Contents {4 + 2 * n} 0 R>>")
        objects.append(f"<</Length {len(content)}>>stream\n{content}\nendstream")
    return pdf_file(each.encode("cp1252") for each in objects)


def pdf_file(objects: Iterable[bytes], trailer: bytes = b"/Root 1 0 R") -> bytes:
    """A PDF of these objects, numbered from 1, with its table of places."""
    data, places = b"%PDF-1.7\n", []
    for n, each in enumerate(objects, start=1):
        places.append(len(data))
        data += b"%d 0 obj\n%b\nendobj\n" % (n, each)
    table = b"0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(places) + 1
    return data + b"xref\n0 %d\n%btrailer <</Size %d%b>>\nstartxref\n%d\n%%%%EOF" % (
        size, table, size, trailer, len(data)
    )  # fmt: skip
