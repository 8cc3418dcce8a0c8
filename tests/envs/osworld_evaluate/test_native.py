"""Native getters and metrics, on files of a desktop and files that stand in the task."""

from __future__ import annotations

import datetime
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from openpyxl import Workbook
from openpyxl.chart import BarChart3D, LineChart3D, PieChart3D, Reference, ScatterChart, Series
from openpyxl.styles import Font
from pptx import Presentation
from pptx.dml.color import RGBColor

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.providers.local.provider import LocalProvider
from deskroll.envs.base import Ending
from deskroll.envs.osworld.evaluate import evaluate
from deskroll.envs.osworld.evaluate.native import bounded
from deskroll.envs.osworld.evaluate.native.values import File, Unreadable
from deskroll.errors import EvaluatorError
from deskroll.types import StopReason
from tests.envs.osworld_evaluate.making import Raw, docx, inline, judged, package, pdf, pptx, relations, rule, xlsx

DONE = Ending(stop=StopReason.DONE)
OUT = "/home/user/out"
VM = {"type": "vm_file", "path": OUT, "dest": "out.txt"}
ROWS: list[list[object]] = [["name", "n"], ["a", 1], ["b", 2.5]]


async def score(
    desktop: GuestDesktop,
    data: bytes,
    expected: object,
    getter: str = "vm_file",
    func: str = "exact_match",
    **more: Any,
) -> float | None:
    """What comes of a file of the desktop, read by that getter."""
    await desktop.write_file(OUT, data)
    task = judged(func, {"type": getter, "path": OUT, **more}, rule(expected=expected))
    return (await evaluate(task, desktop, DONE)).value


@pytest.mark.parametrize(
    ("func", "data", "expected", "value"),
    [
        ("exact_match", b" 42\n", "42", 1.0),
        ("exact_match", b"42", " 42 ", 1.0),
        ("exact_match", b"4 2", "42", 0.0),
        ("exact_match", b"\xff", "42", 0.0),
        ("exact_match", b"42", 42, 1.0),
        ("match_in_list", b"42", ["42"], 0.0),
    ],
)
async def test_texts(func: str, data: bytes, expected: object, value: float, desktop: GuestDesktop) -> None:
    assert await score(desktop, data, expected, func=func) == value


@pytest.mark.parametrize(
    ("settings", "value"),
    [
        (b"play-and-exit=1\n", 1.0),
        (b"#play-and-exit=0\nplay-and-exit=1\r\n# other=0", 1.0),
        (b"play-and-exit=1\nplay-and-exit=0", 0.0),
        (b"", 0.0),
        (b"\xffplay-and-exit=1", 1.0),
    ],
)
async def test_the_metric_that_the_package_lacks(settings: bytes, value: float, desktop: GuestDesktop) -> None:
    await desktop.write_file(OUT, settings)
    for wanted, found in ((1, value), (0, 1.0 - value)):
        task = judged("check_play_and_exit", VM, rule(expected_play_and_exit=wanted))
        assert (await evaluate(task, desktop, DONE)).value == found


_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_S = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
FORMATTED = package(
    {
        "word/document.xml": f"<w:document {_W}><w:body><w:p>"
        '<w:pPr><w:pStyle w:val="H1"/><w:jc w:val="center"/></w:pPr>'
        '<w:r><w:t>pla</w:t></w:r><w:r><w:rPr><w:b w:val="0"/></w:rPr><w:t xml:space="preserve">in </w:t></w:r>'
        "<w:r><w:rPr><w:b/></w:rPr><w:t>bold</w:t></w:r>"
        '<w:hyperlink><w:r><w:rPr><w:i/><w:u w:val="single"/><w:strike/></w:rPr><w:t>link</w:t></w:r></w:hyperlink>'
        '</w:p><w:p/><w:p><w:pPr><w:jc w:val="end"/></w:pPr></w:p></w:body></w:document>',
        "word/styles.xml": f'<w:styles {_W}><w:style w:type="paragraph" w:styleId="H1"><w:name w:val="heading 1"/>'
        "</w:style></w:styles>",
        "word/_rels/document.xml.rels": relations({"s": ("styles", "styles.xml")}),
    },
    "word/document.xml",
    {"word/document.xml": "wordprocessingml.document.main", "word/styles.xml": "wordprocessingml.styles"},
)
LOOKS = [
    ["Heading 1", "center", [["plain ", ""], ["bold", "b"], ["link", "ius"]]], ["Normal", "left", []],
    ["Normal", "right", []],
]  # fmt: skip


def changed(data: bytes, parts: Mapping[str, str] | None = None, *, old: str = "", new: str = "") -> bytes:
    """An archive with more parts, and with some of its text replaced."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as sink:
        for name in source.namelist():
            text = source.read(name).decode()
            sink.writestr(name, text.replace(old, new) if old else text)
        for name, text in (parts or {}).items():
            sink.writestr(name, text)
    return out.getvalue()


def saved(document: Any) -> bytes:
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


MERGED = ["C1:D2", "F1:F3", "A3:B3", "C3:D3", "A10:B10"]


def _styled() -> bytes:
    """A1 is bold, B1 a percentage, some cells are one."""
    book = Workbook()
    sheet = book.active
    sheet.append(["x", 0.5])
    sheet["A1"].font = Font(bold=True)
    sheet["A1"].number_format = "GENERAL"
    sheet["B1"].number_format = "0.00%"
    for each in MERGED:
        sheet.merge_cells(each)
    return saved(book)


def _deck() -> bytes:
    deck = Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "Hi"
    slide.placeholders[1].text = "A\vB\nC"
    slide.placeholders[1].text_frame.paragraphs[1].runs[0].font.bold = True
    slide.notes_slide.notes_text_frame.text = "say\nhello"
    slide.background.fill.solid()
    slide.background.fill.fore_color.rgb = RGBColor(255, 0, 0)
    return saved(deck)


STYLES = {"bold": ["A1"], "formats": {"B1": "0.00%"}, "merged": MERGED, "charts": [], "chart_ranges": []}
SLIDE = {"title": "", "bold": [], "layout": "Blank", "notes": "", "background": ""}
DECK = {"title": "Hi", "texts": ["A\vB", "C"], "bold": ["C"], "layout": "Title and Content", "notes": "say\nhello",
        "background": "FF0000"}  # fmt: skip


@pytest.mark.parametrize(
    ("getter", "data", "said"),
    [
        ("docx_paragraphs", docx("one", "two\tthree\nfour"), ["one", "two\tthree\nfour"]),
        ("docx_runs", FORMATTED, LOOKS),
        ("pptx_texts", pptx(["Title", " "], ["A", "B"]), [["Title"], ["A", "B"]]),
        ("pptx_slides", pptx(["A", "B"]), [{**SLIDE, "texts": ["A", "B"]}]),
        ("pptx_slides", _deck(), [DECK]),
        ("xlsx_cells", xlsx({"S": ROWS}), [["name", "n"], ["a", 1], ["b", 2.5]]),
        ("xlsx_cells", xlsx({"S": [*ROWS, [None, ""], []]}), [["name", "n"], ["a", 1], ["b", 2.5]]),
        ("xlsx_cells", xlsx({"S": [[1.0, True], [], ["x"]]}), [[1, True], [None, None], ["x", None]]),
        ("xlsx_cells", xlsx({"S": []}), []),
        ("xlsx_styles", _styled(), STYLES),
        ("pdf_text", pdf(["Total:  3", "x"], ["end"]), "Total: 3\nx\fend"),
        ("json_value", b'{"a": [1, null]}', {"a": [1, None]}),
    ],
)
async def test_what_documents_say(getter: str, data: bytes, said: object, desktop: GuestDesktop) -> None:
    assert await bounded.read(getter, File(name="a", data=data), {}) == said
    assert await score(desktop, data, said, getter) == 1.0
    assert await score(desktop, data, "another", getter) == 0.0


async def test_a_sheet_by_its_name() -> None:
    file = File(name="a.xlsx", data=xlsx({"A": [["x"]], "B": ROWS}))
    for getter in ("xlsx_cells", "xlsx_styles"):
        whole = [await bounded.read(getter, file, {"sheet": name}) for name in ("B", "A", "C")]
        assert whole[0] != whole[2] is None
    assert await bounded.read("xlsx_cells", file, {"sheet": "B", "at": [2, 1]}) == 2.5


async def test_dates_are_the_numbers_that_files_keep() -> None:
    book = Workbook()
    book.active.append([datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, 12), datetime.time(6)])
    book.active.append([datetime.timedelta(days=2), "#DIV/0!", "=1+1"])
    said = await bounded.read("xlsx_cells", File(name="a.xlsx", data=saved(book)), {})
    assert said == [[45292, 45292.5, 0.25], [2, "#DIV/0!", None]], "a formula has no value until it is computed"


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        (' t="n"><v/>', None), (' t="b"><v/>', None), (' t="s"><v/>', None), (' t="inlineStr"><is><t/></is>', None),
        (' t="e"><v>#DIV/0!</v>', "#DIV/0!"), (' t="str"><v>x</v>', "x"), ("><v>3.0</v>", 3), (' t="b"><v>1</v>', True),
    ],
)  # fmt: skip
async def test_cells_with_and_without_a_value(cell: str, said: object) -> None:
    file = File(name="a.xlsx", data=xlsx({"S": [[Raw(cell), "end"]]}))
    assert await bounded.read("xlsx_cells", file, {}) == [[said, "end"]]


@pytest.mark.parametrize(
    ("settings", "expected", "value"),
    [
        ({"at": ["a", "b", 1]}, 3, 1.0),
        ({"at": ["a", "b", -1]}, 3, 1.0),
        ({"at": ["a", "b", 2]}, 3, 0.0),
        ({"at": ["a", "x"], "default": False}, False, 1.0),
        ({"at": ["none"], "default": "system"}, "system", 1.0),
        ({"at": ["a", "b", "c"]}, 3, 0.0),
    ],
)
async def test_a_part_of_what_a_file_says(settings: Any, expected: Any, value: float, desktop: GuestDesktop) -> None:
    await desktop.write_file(OUT, b'{"a": {"b": [2, 3]}, "none": null}')
    task = judged("exact_match", {"type": "json_value", "path": OUT, **settings}, rule(expected=expected))
    assert (await evaluate(task, desktop, DONE)).value == value


def _bomb(name: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, b" " * (65 * 1024 * 1024))
    return out.getvalue()


def _squeezed() -> bytes:
    """Packed in a way that can ask for any amount of memory."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(docx("one"))) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_LZMA) as sink:
        for name in source.namelist():
            sink.writestr(name, source.read(name))
    return out.getvalue()


_MAIN = "word/document.xml"
_KINDS = {_MAIN: "wordprocessingml.document.main"}
_LAUGHS = '<!DOCTYPE a [<!ENTITY b "c"><!ENTITY d "&b;&b;">]><a>&d;</a>'
HOSTILE = {
    "no zip": (b"MZ", "BadZipFile"),
    "empty": (b"", "BadZipFile"),
    "half": (docx("one")[:200], "BadZipFile"),
    "a bomb": (_bomb(_MAIN), "it takes more than 67108864 bytes unpacked"),
    "a bomb beside it": (changed(docx("one"), {"word/a.png": " " * (65 << 20)}), "more than 67108864 bytes unpacked"),
    "squeezed": (_squeezed(), "packed in a way that office documents are not"),
    "laughs": (package({_MAIN: _LAUGHS}, _MAIN, _KINDS), "document.xml is not plain XML"),
    "laughs in relations": (changed(docx("one"), {"word/_rels/document.xml.rels": _LAUGHS}), "is not plain XML"),
    "other encoding": (package({_MAIN: "<a/>\0"}, _MAIN, _KINDS), "document.xml is not plain XML"),
    "nothing inside": (package({}, _MAIN, _KINDS), "cannot be read"),
    "another document": (xlsx({"S": ROWS}), "cannot be read"),
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_document_that_cannot_be_read_is_0(kind: str, desktop: GuestDesktop) -> None:
    data, words = HOSTILE[kind]
    await desktop.write_file(OUT, data)
    for getter in ("docx_paragraphs", "pptx_texts", *(() if "another" in kind else ("xlsx_cells", "xlsx_styles"))):
        task = judged("exact_match", {"type": getter, "path": OUT, "default": []}, rule(expected=[]))
        found = await evaluate(task, desktop, DONE)
        assert found.value == 0.0, getter
        assert words in found.reason


FAR = {
    "rows": changed(xlsx({"S": [["x"]]}), old='<row r="1">', new='<row r="99999999999">'),
    "columns": changed(xlsx({"S": [["x"]] * 200}), old='<c r="A', new='<c r="XFD'),
}


@pytest.mark.parametrize("kind", FAR)
async def test_far_away_cells_are_no_way_to_use_up_memory(kind: str) -> None:
    with pytest.raises(Unreadable, match="more than 2000000 cells"):
        await bounded.read("xlsx_cells", File(name="a.xlsx", data=FAR[kind]), {})


async def test_what_a_sheet_says_of_its_size_does_not_count() -> None:
    huge = '<dimension ref="A1:XFD1048576"/><sheetData>'
    data = changed(xlsx({"S": [["x"], ["y"]]}), old="<sheetData>", new=huge)
    assert await bounded.read("xlsx_cells", File(name="a.xlsx", data=data), {}) == [["x"], ["y"]]


async def test_a_verdict_says_what_was_found_and_what_was_expected(desktop: GuestDesktop) -> None:
    for name, data, found in (
        ("o.txt", b"41", "41"),
        ("o.txt", b"\xff", "o.txt, 1 bytes"),
        ("o.docx", docx("x"), '["x"]'),
        ("o.docx", b"MZ", "o.docx, 2 bytes"),
        ("o.xlsx", xlsx({"S": [["a", 1]]}), '[["a",1]]'),
        ("o.pptx", pptx(["a"]), '[["a"]]'),
        ("o.pdf", pdf(["a"]), "a"),
        ("o.png", b"\xff", "o.png, 1 bytes"),
    ):
        await desktop.write_file(OUT, data)
        said = await evaluate(judged("exact_match", {**VM, "dest": name}, rule(expected="42")), desktop, DONE)
        assert (said.value, said.found, said.expected) == (0.0, found, "42"), name


async def test_of_several_parts_each_says_it_by_its_name(desktop: GuestDesktop) -> None:
    await desktop.write_file(OUT, b"one")
    wanted = [rule(expected="one"), rule(expected=["two"])]
    said = await evaluate(judged(["exact_match", "match_in_list"], [VM, VM], wanted), desktop, DONE)
    assert (said.found, said.expected) == (
        "exact_match: one\nmatch_in_list: one", 'exact_match: one\nmatch_in_list: ["two"]',
    )  # fmt: skip
    said = await evaluate(judged("infeasible"), desktop, DONE)
    assert (said.value, said.found, said.expected) == (0.0, "done", "fail")


@pytest.mark.parametrize("getter", ["vm_file", "docx_runs", "json_value"])
async def test_a_file_that_is_not_there_is_0(getter: str, desktop: GuestDesktop) -> None:
    task = judged("exact_match", {"type": getter, "path": "/home/user/nowhere"}, rule(expected=""))
    found = await evaluate(task, desktop, DONE)
    assert (found.value, found.reason) == (0.0, "the file that was to be judged is not there")


@pytest.mark.parametrize("expected", [inline("g", b""), VM, {"type": "rule", "rules": "x"}, {"type": "rule"}])
async def test_what_is_no_rule_is_the_evaluators_failure(expected: Any, desktop: GuestDesktop) -> None:
    with pytest.raises(EvaluatorError, match=r"task 't': exact_match: evaluator\.expected must be of type rule, with"):
        await evaluate(judged("exact_match", VM, expected), desktop, DONE)


async def test_on_a_real_desktop() -> None:
    preferences = {"browser": {"theme": {"color_scheme2": 1}}}
    cases: list[tuple[str, Any, Any, float]] = [
        ("exact_match", {"type": "vm_command_line", "command": "echo hi | tr h H"}, rule(expected="Hi"), 1.0),
        ("exact_match", {"type": "vm_command_line", "command": ["echo hi"], "shell": "true"}, rule(expected="hi"), 1.0),
        ("match_in_list", {"type": "chrome_appearance_mode_ui"}, rule(expected=["light", "system"]), 1.0),
        ("match_in_list", {"type": "chrome_appearance_mode_ui"}, rule(expected=["dark", "system"]), 0.0),
        ("check_play_and_exit", {"type": "vlc_config", "dest": "vlcrc"}, rule(expected_play_and_exit=1), 1.0),
        ("check_play_and_exit", {"type": "vlc_config", "dest": "vlcrc"}, rule(expected_play_and_exit=0), 0.0),
    ]  # fmt: skip
    async with LocalProvider() as provider:
        address = await provider.boot(DesktopSpec(width=320, height=240))
        async with GuestDesktop(address) as desktop:
            home = (await desktop.run('printf %s "$HOME"')).output
            profile = f"{home}/.config/chromium/Default/Preferences"
            await desktop.write_file(profile, json.dumps(preferences).encode())
            await desktop.write_file(f"{home}/.config/vlc/vlcrc", b"#play-and-exit=0\nplay-and-exit=1\n")
            for func, result, expected, value in cases:
                assert (await evaluate(judged(func, result, expected), desktop, DONE)).value == value, (func, result)
            missing = judged("exact_match", {"type": "vm_command_line", "command": ["/no/such"]}, rule(expected=""))
            found = await evaluate(missing, desktop, DONE)
            assert (found.value, found.reason.partition(":")[0]) == (0.0, "vm_command_line")
            for command in (["sh", "-c", "kill -KILL $$"], "sh -c 'kill -KILL $$'; exit $?"):
                killed = judged("exact_match", {"type": "vm_command_line", "command": command}, rule(expected=""))
                with pytest.raises(EvaluatorError, match=r"kill -KILL .* was ended by SIGKILL"):
                    await evaluate(killed, desktop, DONE)
            for name, command in REFUSED.items():
                done = await desktop.run(f"rm -rf {ODD}; {command}")
                assert done.returncode == 0, (name, done.error)
                for getter in ("vm_file", "pdf_text"):
                    task = judged("exact_match", {"type": getter, "path": ODD}, rule(expected="x"))
                    assert (await evaluate(task, desktop, DONE)).value == 0.0, name


ODD = "/tmp/odd"
REFUSED = {
    "a folder": f"mkdir {ODD}",
    "a pipe": f"mkfifo {ODD}",
    "a link to itself": f"ln -s {ODD} {ODD}",
    "for nobody": f"printf x > {ODD} && printf y >> {ODD}; chmod 000 {ODD}; test -r {ODD} && rm {ODD}; true",
    "large": f"truncate -s 65M {ODD}",
    "larger than any": f"truncate -s 1100M {ODD}",
}
"""What an agent may leave in the place of a file; the guest reads none of it, or too much."""


def _charted() -> bytes:
    """A sheet with five charts."""
    book = Workbook()
    sheet = book.active
    for row in ROWS:
        sheet.append([*row, 7])
    sheet.title = "S"
    for make, columns in CHARTS:
        chart = make()
        for column in columns:
            values = Reference(sheet, min_col=column, min_row=2, max_row=3)
            scattered = {"xvalues": Reference(sheet, min_col=1, min_row=2, max_row=3)} if make is ScatterChart else {}
            chart.series.append(Series(values, **scattered))
        sheet.add_chart(chart)
    return saved(book)


def _bars(direction: str) -> Callable[[], Any]:
    def make() -> Any:
        chart = BarChart3D()
        chart.barDir = direction
        return chart

    return make


CHARTS: list[tuple[Any, list[int]]] = [
    (PieChart3D, [2]), (LineChart3D, [2, 3]), (_bars("col"), [2]), (_bars("bar"), []), (ScatterChart, [3]),
]  # fmt: skip


async def test_charts_have_kinds_and_ranges() -> None:
    said = await bounded.read("xlsx_styles", File(name="a.xlsx", data=_charted()), {})
    assert isinstance(said, dict)
    assert said["charts"] == ["pie", "line", "column", "bar", "scatter"]
    b, c = "'S'!$B$2:$B$3", "'S'!$C$2:$C$3"
    assert said["chart_ranges"] == [[b], [b, c], [b], [], [c]]
