"""Whatever bytes a model leaves behind, native getters give a value or say that they cannot be read."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import resource
import zipfile
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deskroll.envs.osworld.evaluate.native import bounded
from deskroll.envs.osworld.evaluate.native.metrics import METRICS
from deskroll.envs.osworld.evaluate.native.readers import READERS, read_file
from deskroll.envs.osworld.evaluate.native.values import File, Unreadable
from tests.envs.osworld_evaluate.making import docx, package, pdf, pdf_file, pptx, relations, xlsx

WHOLE: dict[str, bytes] = {
    "a.docx": docx("one", "two\tthree"),
    "a.xlsx": xlsx({"S": [["name", "n"], ["a", 1], ["b", 2.5]]}),
    "a.pptx": pptx(["Title"], ["A", "B"]),
    "a.pdf": pdf(["hello"], ["you"]),
    "a.json": b'{"a": {"b": [1, "two"]}, "n": 2.5, "on": true}',
    "a.txt": b"one\ntwo\n",
}


@st.composite
def damaged(draw: st.DrawFn) -> File:
    """A whole document with a few bytes changed, inserted or cut off; or any bytes at all."""
    name = draw(st.sampled_from(sorted(WHOLE)))
    data = bytearray(WHOLE[name])
    if draw(st.integers(0, 9)) == 0:
        return File(name=name, data=draw(st.binary(max_size=300)))
    if draw(st.booleans()) and data[:2] == b"PK":
        data = bytearray(_repacked(bytes(data), draw))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(data)))
        data[place : place + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return File(name=name, data=bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data))


def _repacked(data: bytes, draw: st.DrawFn) -> bytes:
    """The same archive, with a part of it damaged: its sums are right."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w") as sink:
        chosen = draw(st.sampled_from(source.namelist()))
        for name in source.namelist():
            part = bytearray(source.read(name))
            if name == chosen:
                for _ in range(draw(st.integers(1, 3))):
                    place = draw(st.integers(0, len(part)))
                    replacement = st.sampled_from(
                        [b"", b"<", b"/>", b'"', b"-1", b"9" * 30, "²".encode(), b"x", b"\xff"]
                    )
                    part[place : place + draw(st.integers(0, 4))] = draw(replacement)
            sink.writestr(name, bytes(part))
    return out.getvalue()


@settings(max_examples=400, deadline=None)
@pytest.mark.filterwarnings("ignore::UserWarning:openpyxl")
@given(file=damaged(), getter=st.sampled_from(sorted(READERS)), metric=st.sampled_from(sorted(METRICS)))
def test_natives_never_break_down(file: File, getter: str, metric: str) -> None:
    """In this process, where a call takes no time; but for PDFs, whose reader may never end."""
    found: object = file
    with contextlib.suppress(Unreadable):
        if "pdf" in getter:
            found = asyncio.run(bounded.read(getter, file, {}))
        else:
            found = read_file(getter, file, {})
            json.dumps(found)
    assert METRICS[metric](found, {"expected": [], "expected_play_and_exit": 1}) in (True, False)


def _stream(data: bytes, about: bytes = b"") -> bytes:
    return b"<<%b/Length %d>>stream\n%b\nendstream" % (about, len(data), data)


def _pdf(*objects: bytes, trailer: bytes = b"/Root 1 0 R") -> bytes:
    return pdf_file(objects, trailer)


_ROOT = b"<</Type/Catalog/Pages 2 0 R>>"
_PAGES = b"<</Type/Pages/Kids[3 0 R]/Count 1>>"
_PAGE = b"<</Type/Page/Contents 4 0 R/Resources<</XObject<</F 5 0 R>>/Font<</A 6 0 R>>>>>>"
_BIG = zlib.compress(b"(x) Tj " * 500_000, 9)
HOSTILE_PDFS = {
    "pages in a circle": _pdf(_ROOT, b"<</Kids[2 0 R 2 0 R]>>"),
    "references in a circle": _pdf(b"2 0 R", b"1 0 R"),
    "nested": _pdf(b"[" * 100_000),
    "comments": b"%PDF-1.7\n1 0 obj " + b"%" * 100_000,
    "strings that do not end": b"%PDF-1.7\n" + b"trailer <</A (" * 20_000,
    "objects in one place": _pdf(
        _stream(b"1 0 " * 50_000 + b"[" + b"1 " * 50_000 + b"]", b"/Type/ObjStm/N 50000/First 200000")
    ),
    "a bomb": _pdf(_ROOT, _PAGES, _PAGE, _stream(_BIG, b"/Filter/FlateDecode")),
    "drawings in drawings": _pdf(
        _ROOT, _PAGES, _PAGE, _stream(b"/F Do " * 1000), _stream(b"/F Do " * 1000, b"/Subtype/Form")
    ),
    "ranges": _pdf(
        _ROOT, _PAGES, _PAGE, _stream(b"BT /A 1 Tf (x) Tj ET"), b"null",
        b"<</Type/Font/Subtype/Type0/ToUnicode 7 0 R/DescendantFonts[<</W[%b]>>]>>" % (b"0 65535 1 " * 5000),
        _stream(b"<0000> <ffff> <0000> " * 5000 + b"endbfrange"),
    ),
    "encrypted": _pdf(_ROOT, _PAGES, _PAGE, _stream(b""), trailer=b"/Root 1 0 R/Encrypt 4 0 R"),
}  # fmt: skip


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", HOSTILE_PDFS)
async def test_no_pdf_takes_more_than_its_share(kind: str) -> None:
    """In this process; what it takes in that of its own is bounded by `limited`."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    with contextlib.suppress(Unreadable):
        await bounded.read("pdf_text", File(name="a.pdf", data=HOSTILE_PDFS[kind]), {})
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime - before.ru_utime < 5.0
    assert after.ru_maxrss - before.ru_maxrss < 200 * 1024


DEEP = {
    "a.docx": package(
        {"word/document.xml": f"<a>{'<c/>' * (4 << 20)}</a>"},
        "word/document.xml",
        {"word/document.xml": "wordprocessingml.document.main"},
    ),
    "a.xlsx": xlsx({"S": [["x"] * 20] * 2_000}),
    "a.json": b"[" + b"{}," * (8 << 20) + b"{}]",
}


@pytest.mark.parametrize("name", DEEP)
async def test_what_a_large_document_takes_is_not_taken_of_this_process(name: str) -> None:
    """Read here, each of them takes some hundreds of megabytes, and the loop stands still for seconds."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    getter = {"a.docx": "docx_paragraphs", "a.xlsx": "xlsx_styles", "a.json": "json_value"}[name]
    with contextlib.suppress(Unreadable):
        await bounded.read(getter, File(name=name, data=DEEP[name]), {"at": [0]})
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime - before.ru_utime < 1.0
    assert after.ru_maxrss - before.ru_maxrss < 200 * 1024


@pytest.mark.parametrize("sheet", [None, "s7"])
async def test_a_sheet_that_is_named_often_is_read(sheet: str | None) -> None:
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    office = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
    names = "".join(f'<sheet name="s{n}" sheetId="{n + 1}" r:id="r"/>' for n in range(500))
    parts = {
        "xl/workbook.xml": f"<workbook {main} {office}><sheets>{names}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": relations({"r": ("worksheet", "s.xml")}),
        "xl/s.xml": f'<worksheet {main}><sheetData><row r="99999"><c><v>1</v></c></row></sheetData></worksheet>',
    }
    kinds = {"xl/workbook.xml": "spreadsheetml.sheet.main", "xl/s.xml": "spreadsheetml.worksheet"}
    file = File(name="a.xlsx", data=package(parts, "xl/workbook.xml", kinds))
    config = {"at": [99998]} if sheet is None else {"at": [99998], "sheet": sheet}
    assert await bounded.read("xlsx_cells", file, config) == [1]
