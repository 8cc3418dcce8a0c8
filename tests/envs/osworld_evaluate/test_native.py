"""Native getters and metrics, on files of a desktop and files that stand in the task."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest
from PIL import Image, ImageOps

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.providers.local.provider import LocalProvider
from deskroll.envs.base import Ending
from deskroll.envs.osworld.evaluate import evaluate
from deskroll.envs.osworld.evaluate.native import engine
from deskroll.envs.osworld.evaluate.parts import evaluation_of
from deskroll.errors import EvaluatorError
from deskroll.types import StopReason
from tests.envs.osworld_evaluate.agreed import PIC
from tests.envs.osworld_evaluate.making import Raw, docx, inline, judged, package, pdf, pptx, relations, rule, xlsx

DONE = Ending(stop=StopReason.DONE)
OUT = "/home/user/out"
VM = {"type": "vm_file", "path": OUT, "dest": "out.txt"}
DATA = {"type": "sheet_data", "sheet_idx0": 0, "sheet_idx1": "EI0"}


async def score(
    desktop: GuestDesktop, func: str, data: bytes | None, expected: Any, name: str, **options: Any
) -> float:
    if data is not None:
        await desktop.write_file(OUT, data)
    task = judged(func, {**VM, "dest": name}, expected, options=options)
    found = await evaluate(task, desktop, DONE, evaluators="native")
    assert found.value is not None
    return found.value


@pytest.mark.parametrize(
    ("func", "data", "expected", "options", "value"),
    [
        ("exact_match", b" 42\n", rule(expected="42"), {}, 1.0),
        ("exact_match", b"\xff", rule(expected="42"), {}, 0.0),
        ("check_include_exclude", b"a b", rule(include=["a"], exclude=["c"]), {}, 1.0),
        ("check_include_exclude", b"a c", rule(include=["a"], exclude=["c"]), {}, 0.0),
        ("check_include_exclude", b"b", rule(include=["a"]), {}, 0.0),
        ("compare_text_file", b"A\r\n", inline("g", b"A\n"), {}, 1.0),
        ("compare_text_file", b"a  b", inline("g", b"A b"), {"ignore_case": True, "ignore_blanks": True}, 1.0),
        ("compare_text_file", b"a  b", inline("g", b"A b"), {"ignore_case": True}, 0.0),
        ("check_list", b"one\ntwo\n", rule(expect=["^one$", "tw"], unexpect=["three"]), {}, 1.0),
        ("check_list", b"one\nthree\n", rule(expect=["^one$"], unexpect=["three"]), {}, 0.0),
        ("file_contains", b"one two", rule(expected=["one", "two"]), {}, 1.0),
        ("file_contains", b"one", rule(expected=["one", "two"]), {}, 0.0),
        ("compare_csv", b"a,b\n1,2 \n", inline("g", b"a,b\n1,2\n"), {"strict": False}, 1.0),
        ("compare_csv", b"a,b\n1,2 \n", inline("g", b"a,b\n1,2\n"), {}, 0.0),
        ("compare_text_file", b"\xff\xfe", inline("g", b"A\n"), {}, 0.0),
    ],
)
async def test_texts(func: str, data: bytes, expected: Any, options: Any, value: float, desktop: GuestDesktop) -> None:
    assert await score(desktop, func, data, expected, "out.txt", **options) == value


@pytest.mark.parametrize(
    ("one", "two", "options", "value"),
    [
        (("Hello", "you"), ("Hello", "you"), {}, 1.0),
        (("Hello", "you"), ("Hello", "", "you "), {}, 1.0),
        (("Hello", "you"), ("Hello", "", "you "), {"ignore_blanks": False}, 0.0),
        (("a\tb\nc",), ("a\tb\nc",), {"ignore_blanks": False}, 1.0),
        (("a", "b"), ("b", "a"), {}, 0.0),
        (("a", "b"), ("b", "a"), {"ignore_order": True}, 1.0),
        (("A",), ("a",), {"ignore_case": True}, 1.0),
    ],
)
async def test_documents(one: Any, two: Any, options: Any, value: float, desktop: GuestDesktop) -> None:
    gold = inline("gold.docx", docx(*two))
    assert await score(desktop, "compare_docx_files", docx(*one), gold, "out.docx", **options) == value


ROWS: list[list[object]] = [["name", "n"], ["a", 1], ["b", 2.5]]


@pytest.mark.parametrize(
    ("sheets", "rules", "value"),
    [
        ({"S": ROWS}, [DATA, {"type": "sheet_name"}], 1.0),
        ({"T": ROWS}, [DATA], 1.0),
        ({"T": ROWS}, [DATA, {"type": "sheet_name"}], 0.0),
        ({"S": [*ROWS[:2], ["b", 2.50001]]}, [DATA], 1.0),
        ({"S": [*ROWS[:2], ["b", 2.51]]}, [DATA], 0.0),
        ({"S": [*ROWS, ["c", None]]}, [DATA], 0.0),
        ({"S": [*ROWS, [None, None]]}, [DATA], 1.0),
        ({"A": [["x"]], "S": ROWS}, [{**DATA, "sheet_idx0": "RNS"}], 1.0),
        ({"A": [["x"]]}, [{**DATA, "sheet_idx0": "RNS"}], 0.0),
    ],
)
async def test_tables(sheets: Any, rules: Any, value: float, desktop: GuestDesktop) -> None:
    gold = inline("gold.xlsx", xlsx({"S": ROWS}))
    assert await score(desktop, "compare_table", xlsx(sheets), gold, "out.xlsx", rules=rules) == value


_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_S = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
FORMATTED = package(
    {
        "word/document.xml": f"<w:document {_W}><w:body><w:p>"
        '<w:pPr><w:pStyle w:val="H1"/><w:jc w:val="center"/></w:pPr>'
        '<w:r><w:t>pla</w:t></w:r><w:r><w:rPr><w:b w:val="0"/></w:rPr><w:t xml:space="preserve">in </w:t></w:r>'
        "<w:r><w:rPr><w:b/></w:rPr><w:t>bold</w:t></w:r></w:p><w:p/></w:body></w:document>",
        "word/styles.xml": f'<w:styles {_W}><w:style w:type="paragraph" w:styleId="H1"><w:name w:val="heading 1"/>'
        "</w:style></w:styles>",
    },
    "word/document.xml",
    {},
)


def _styled() -> bytes:
    """A1 is bold, B1 a percentage, C1:D2 one cell."""
    styles = (
        f'<styleSheet {_S}><fonts><font/><font><b/></font></fonts><cellXfs><xf numFmtId="0" fontId="0"/>'
        '<xf numFmtId="0" fontId="1"/><xf numFmtId="10" fontId="0"/></cellXfs></styleSheet>'
    )
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(xlsx({"S": [["x", 0.5]]}))) as source, zipfile.ZipFile(out, "w") as sink:
        for name in source.namelist():
            data = source.read(name).replace(b'<c r="A1"', b'<c r="A1" s="1"').replace(b'<c r="B1"', b'<c r="B1" s="2"')
            merged = b'</sheetData><mergeCells><mergeCell ref="C1:D2"/></mergeCells>'
            sink.writestr(name, data.replace(b"</sheetData>", merged))
        sink.writestr("xl/styles.xml", styles)
    return out.getvalue()


STYLED = _styled()
LOOKS = {"bold": ["A1"], "formats": {"B1": "0.00%"}, "merged": ["C1:D2"], "charts": [], "chart_ranges": []}
SLIDE = {"title": "", "bold": [], "layout": "", "notes": "", "background": ""}


async def test_what_documents_say_can_be_compared_with_rules(desktop: GuestDesktop) -> None:
    cases = [
        ("docx_paragraphs", docx("one", "two"), ["one", "two"]),
        ("pptx_texts", pptx(["Title", " "], ["A", "B"]), [["Title"], ["A", "B"]]),
        ("xlsx_cells", xlsx({"S": ROWS}), [["name", "n"], ["a", 1], ["b", 2.5]]),
        ("docx_runs", FORMATTED, [["Heading 1", "center", [["plain ", ""], ["bold", "b"]]], ["Normal", "left", []]]),
        (
            "xlsx_styles",
            STYLED,
            {"bold": ["A1"], "formats": {"B1": "0.00%"}, "merged": ["C1:D2"], "charts": [], "chart_ranges": []},
        ),
        ("pptx_slides", pptx(["A", "B"]), [{**SLIDE, "texts": ["A", "B"]}]),
        ("pdf_text", pdf(["Total:  3", "x"], ["end"]), "Total: 3\nx\fend"),
        ("json_value", b'{"a": [1, null]}', {"a": [1, None]}),
        ("image_size", PIC, [64, 48]),
    ]
    for getter, data, said in cases:
        await desktop.write_file(OUT, data)
        task = judged("exact_match", {"type": getter, "path": OUT}, rule(expected=said))
        assert (await evaluate(task, desktop, DONE)).value == 1.0, getter


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


@pytest.mark.parametrize(
    ("func", "options", "expected", "judge"),
    [
        ("compare_pptx_files", {}, inline("g.pptx", b""), True),
        ("compare_pptx_files", {"examine_shape": False}, inline("g.pptx", b""), True),
        ("compare_pptx_files", {"examine_modify_height": True}, inline("g.pptx", b""), False),
        ("check_json", {}, rule(expect=[{"key": ["a"], "method": "eq", "ref": 1}]), True),
        ("check_json", {"is_yaml": True}, rule(expect=[]), False),
        ("check_json", {}, rule(expect=[{"key": ["a"], "method": "spreadsheet_range", "ref": []}]), False),
        ("compare_docx_files", {"fuzzy_match": True}, inline("g.docx", b""), False),
        ("compare_table", {"rules": [{"type": "chart"}]}, inline("g.xlsx", b""), False),
    ],
)
def test_what_is_not_judged_as_upstream_does_is_left_to_upstream(
    func: str, options: Any, expected: Any, judge: bool
) -> None:
    (part,) = evaluation_of(judged(func, VM, expected, options=options).evaluator).parts
    assert engine.has_part(part) is judge


def _bomb() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("word/document.xml", b" " * (65 * 1024 * 1024))
    return out.getvalue()


_LAUGHS = '<!DOCTYPE a [<!ENTITY b "c"><!ENTITY d "&b;&b;">]><a>&d;</a>'
HOSTILE = {
    "no zip": b"MZ",
    "empty": b"",
    "half": docx("one")[:200],
    "bomb": _bomb(),
    "laughs": package({"word/document.xml": _LAUGHS}, "word/document.xml", {}),
    "other encoding": package({"word/document.xml": "<a/>\0"}, "word/document.xml", {}),
    "nothing inside": package({}, "word/document.xml", {}),
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_document_that_cannot_be_read_is_0(kind: str, desktop: GuestDesktop) -> None:
    gold = inline("gold.docx", docx("one"))
    assert await score(desktop, "compare_docx_files", HOSTILE[kind], gold, "out.docx") == 0.0


async def test_far_away_cells_are_no_way_to_use_up_memory(desktop: GuestDesktop) -> None:
    far = xlsx({"S": [["x"]]})
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(far)) as source, zipfile.ZipFile(out, "w") as sink:
        for name in source.namelist():
            data = source.read(name).replace(b'<row r="1">', b'<row r="99999999999">')
            sink.writestr(name, data)
    gold = inline("gold.xlsx", far)
    assert await score(desktop, "compare_table", out.getvalue(), gold, "out.xlsx", rules=[DATA]) == 0.0


async def test_a_broken_document_of_the_task_itself_is_the_evaluators_failure(desktop: GuestDesktop) -> None:
    with pytest.raises(EvaluatorError, match="task 't': compare_docx_files: what is expected cannot be read"):
        await score(desktop, "compare_docx_files", docx("one"), inline("gold.docx", b"MZ"), "out.docx")


@pytest.mark.parametrize(
    ("func", "name", "data", "gold", "found", "expected"),
    [
        ("exact_match", "o.txt", b"41", rule(expected="42"), "41", "42"),
        ("exact_match", "o.txt", b"42", rule(expected="42"), "42", "42"),
        ("check_list", "o.txt", b"one", rule(expect=["two"]), "one", '{"expect":["two"]}'),
        ("compare_text_file", "o.txt", b"a", inline("g.txt", b"b"), "a", "b"),
        ("compare_text_file", "o.txt", b"\xff", inline("g.txt", b"b"), "o.txt, 1 bytes", "b"),
        ("compare_docx_files", "o.docx", docx("x"), inline("g.docx", docx("y", "z")), '["x"]', '["y","z"]'),
        ("compare_docx_files", "o.docx", b"MZ", inline("g.docx", docx("y")), "o.docx, 2 bytes", '["y"]'),
        ("check_image_size", "o.png", PIC, rule(width=1, height=2), None, '{"width":1,"height":2}'),
        ("compare_text_file", "o.txt", None, inline("g.txt", b"b"), None, "b"),
    ],
)
async def test_a_verdict_says_what_was_found_and_what_was_expected(
    func: str, name: str, data: bytes | None, gold: Any, found: str | None, expected: str, desktop: GuestDesktop
) -> None:
    if data is not None:
        await desktop.write_file(OUT, data)
    score = await evaluate(judged(func, {**VM, "dest": name}, gold), desktop, DONE, evaluators="native")
    assert score.expected == expected
    if data == PIC:
        with Image.open(io.BytesIO(PIC)) as image:
            found = f"[{image.width},{image.height}]"
    assert score.found == found


async def test_of_several_parts_each_says_it_by_its_name(desktop: GuestDesktop) -> None:
    await desktop.write_file(OUT, b"one")
    task = judged(["exact_match", "file_contains"], [VM, VM], [rule(expected="one"), rule(expected=["two"])])
    score = await evaluate(task, desktop, DONE)
    assert (score.found, score.expected) == (
        "exact_match: one\nfile_contains: one", 'exact_match: one\nfile_contains: ["two"]',
    )  # fmt: skip
    task = judged("infeasible")
    score = await evaluate(task, desktop, DONE)
    assert (score.value, score.found, score.expected) == (0.0, "done", "fail")


@pytest.mark.parametrize("func", ["compare_text_file", "check_list", "compare_docx_files", "compare_csv"])
async def test_a_file_that_is_not_there_is_0(func: str, desktop: GuestDesktop) -> None:
    expected = rule(expect=[]) if func == "check_list" else inline("gold.docx", docx("x"))
    task = judged(func, {**VM, "path": "/home/user/nowhere", "dest": "out.docx"}, expected)
    found = await evaluate(task, desktop, DONE)
    assert (found.value, found.reason) == (0.0, "the file that was to be judged is not there")


@pytest.mark.parametrize(
    ("func", "expected"),
    [("exact_match", inline("g", b"")), ("compare_text_file", rule(expected="x")), ("check_list", inline("g", b""))],
)  # fmt: skip
async def test_what_does_not_go_together_is_the_evaluators_failure(
    func: str, expected: Any, desktop: GuestDesktop
) -> None:
    with pytest.raises(EvaluatorError, match=f"task 't': {func}: evaluator.expected must|no object"):
        await score(desktop, func, b"x", expected, "out.txt")


async def test_on_a_real_desktop() -> None:
    preferences = {"browser": {"theme": {"color_scheme2": 1}}}
    cases: list[tuple[str, Any, Any, float]] = [
        ("exact_match", {"type": "vm_command_line", "command": "echo hi | tr h H"}, rule(expected="Hi"), 1.0),
        ("exact_match", {"type": "vm_command_line", "command": ["echo hi"], "shell": "true"}, rule(expected="hi"), 1.0),
        ("check_include_exclude", {"type": "vm_command_error", "command": "ls /none"}, rule(include=["none"]), 1.0),
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
                odd = {"type": "vm_file", "path": ODD, "dest": "odd.txt"}
                for result, gold in ((odd, inline("g", b"hello")), (odd, odd)):
                    task = judged("compare_text_file", result, gold)
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


@pytest.mark.parametrize(
    ("mine", "gold", "rule_", "value"),
    [
        (None, Raw(' t="n"><v/>'), {}, 1.0),
        (None, Raw(' t="b"><v/>'), {}, 1.0),
        (False, Raw(' t="b"><v/>'), {}, 0.0),
        (Raw(' t="s"><v/>'), None, {}, 1.0),
        (1, Raw("><v>x</v>"), {}, None),
        (1, Raw(' t="b"><v>true</v>'), {}, None),
        (Raw("><v>x</v>"), Raw("><v>x</v>"), {}, 0.0),
        (1, 1, {"sheet_idx0": "ENZ"}, 0.0),
        (1, 1, {"sheet_idx0": "RNZ", "sheet_idx1": "EI5"}, 0.0),
        (1, 1, {"sheet_idx1": "EI5"}, None),
        (1, 1, {"sheet_idx0": "RI-1", "sheet_idx1": "EI-1"}, 1.0),
    ],
)
async def test_cells_without_a_value_and_sheets_that_are_not_there_count_as_upstreams_library_has_them(
    mine: object, gold: object, rule_: dict[str, Any], value: float | None, desktop: GuestDesktop
) -> None:
    """None: what the task brings cannot be read, so the evaluator has failed; upstream's code breaks down."""
    books = [xlsx({"S": [["k"], [each]]}) for each in (mine, gold)]
    judge = score(desktop, "compare_table", books[0], inline("g.xlsx", books[1]), "o.xlsx", rules=[{**DATA, **rule_}])
    if value is not None:
        assert await judge == value
        return
    with pytest.raises(EvaluatorError, match="what is expected cannot be read"):
        await judge


@pytest.mark.parametrize(
    ("func", "name", "mine", "gold", "options"),
    [
        ("compare_table", "out.xlsx", xlsx({"S": ROWS}), b"garbage", {"rules": [DATA]}),
        ("compare_table", "out.xlsx", xlsx({"S": ROWS}), xlsx({"S": ROWS}), {"rules": [{**DATA, "sheet_idx1": "EI1"}]}),
        ("compare_text_file", "out.txt", b"x", b"\xff", {}),
        ("compare_docx_files", "out.docx", docx("x"), b"garbage", {}),
    ],
)
async def test_what_was_to_be_compared_with_and_lies_on_the_desktop_is_no_way_to_remain_unscored(
    func: str, name: str, mine: bytes, gold: bytes, options: Any, desktop: GuestDesktop
) -> None:
    await desktop.write_file("/home/user/gold", gold)
    theirs = {"type": "vm_file", "path": "/home/user/gold", "dest": name}
    assert await score(desktop, func, mine, theirs, name, **options) == 0.0
    if "rules" in options:
        with pytest.raises(EvaluatorError, match="what is expected cannot be read"):
            await score(desktop, func, mine, inline(name, gold), name, **options)
        assert await score(desktop, func, b"garbage", inline(name, gold), name, **options) == 0.0


async def test_no_value_is_below_0(desktop: GuestDesktop) -> None:
    """Images that are each other's opposites have less than nothing in common."""
    noise = Image.effect_noise((64, 64), 90)
    mine, gold = io.BytesIO(), io.BytesIO()
    ImageOps.invert(noise).save(mine, "png")
    noise.save(gold, "png")
    assert await score(desktop, "compare_images", mine.getvalue(), inline("g.png", gold.getvalue()), "o.png") == 0.0


async def test_a_value_that_is_no_number_is_the_evaluators_failure(desktop: GuestDesktop) -> None:
    base = float("-inf")
    with pytest.raises(EvaluatorError, match="task 't': compare_images gave nan, which is no score"):
        await score(desktop, "compare_images", PIC, inline("g.png", PIC), "o.png", reference_base_result=base)


_C = 'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart"'


def _charted(*plots: str) -> bytes:
    """A sheet with a chart of each of these plots."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(xlsx({"S": ROWS}))) as source, zipfile.ZipFile(out, "w") as sink:
        for name in source.namelist():
            sink.writestr(name, source.read(name))
        sink.writestr("xl/worksheets/_rels/sheet1.xml.rels", relations({"d": ("drawing", "../drawings/d.xml")}))
        charts = {f"c{n}": ("chart", f"../charts/c{n}.xml") for n, _ in enumerate(plots)}
        sink.writestr("xl/drawings/_rels/d.xml.rels", relations(charts))
        for n, plot in enumerate(plots):
            area = f"<c:plotArea><c:layout/>{plot}</c:plotArea>"
            sink.writestr(f"xl/charts/c{n}.xml", f"<c:chartSpace {_C}><c:chart>{area}</c:chart></c:chartSpace>")
    return out.getvalue()


def _series(reference: str, values: str = "val") -> str:
    names = "<c:cat><c:strRef><c:f>S!$A$2:$A$3</c:f></c:strRef></c:cat>"
    return f"<c:ser>{names}<c:{values}><c:numRef><c:f>{reference}</c:f></c:numRef></c:{values}></c:ser>"


async def test_charts_have_kinds_and_ranges(desktop: GuestDesktop) -> None:
    column, bar = (f'<c:bar3DChart><c:barDir val="{side}"/></c:bar3DChart>' for side in ("col", "bar"))
    two = _series("S!$B$2:$B$3") + _series("S!$C$2:$C$3")
    plots = [f"<c:pie3DChart>{_series('S!$B$2:$B$3')}</c:pie3DChart>", f"<c:line3DChart>{two}</c:line3DChart>",
             column, bar, f"<c:scatterChart>{_series('S!$B$2', 'yVal')}</c:scatterChart>"]  # fmt: skip
    await desktop.write_file(OUT, _charted(*plots))
    for at, said in (
        ("charts", ["pie", "line", "column", "bar", "scatter"]),
        ("chart_ranges", [["S!$B$2:$B$3"], ["S!$B$2:$B$3", "S!$C$2:$C$3"], [], [], ["S!$B$2"]]),
    ):
        task = judged("exact_match", {"type": "xlsx_styles", "path": OUT, "at": [at]}, rule(expected=said))
        assert (await evaluate(task, desktop, DONE)).value == 1.0, at


@pytest.mark.parametrize(
    ("result", "gold", "judge"),
    [
        ({"path": "/a.docx"}, {"path": "/b.docx", "dest": "b.docx"}, True),
        ({"path": "/a.odt"}, {"path": "/b.docx"}, False),
        ({"path": "/a.docx", "dest": "a.txt"}, {"path": "/b.docx"}, False),
        ({"path": "/a", "dest": "a"}, {"path": "/b"}, False),
    ],
)
def test_documents_are_told_by_the_names_that_files_get(result: Any, gold: Any, judge: bool) -> None:
    task = judged("compare_docx_files", {"type": "vm_file", **result}, {"type": "vm_file", **gold})
    (part,) = evaluation_of(task.evaluator).parts
    assert engine.has_part(part) is judge


@pytest.mark.parametrize(("func", "said"), [("is_in_list", b"5"), ("check_include_exclude", b"5")])
async def test_a_value_that_is_no_text_or_list_is_0(func: str, said: bytes, desktop: GuestDesktop) -> None:
    await desktop.write_file(OUT, said)
    task = judged(func, {"type": "json_value", "path": OUT}, rule(expected="5", include=["5"]))
    assert (await evaluate(task, desktop, DONE)).value == 0.0


async def test_a_file_to_compare_with_that_was_removed_is_0(desktop: GuestDesktop) -> None:
    gone = {**VM, "path": "/home/user/nowhere"}
    assert await score(desktop, "compare_text_file", b"x", gone, "out.txt") == 0.0
