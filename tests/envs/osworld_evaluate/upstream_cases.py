"""The table on which OSWorld's metrics are to give in our sandbox what they give by themselves: `CASES`.

Each is `(metric, result, expected, options)`.

A result or an expected value is bytes (a file of the desktop), a `Made` one (by the libraries of upstream's
environment), `GONE` (a file that is not there), or a getter's settings as they are.
"""

from __future__ import annotations

import io
import json
from typing import Any, NamedTuple

from PIL import Image, ImageDraw

from tests.envs.osworld_evaluate.making import Raw, docx, rule, xlsx

ROWS: list[list[object]] = [["name", "n"], ["a", 1], ["b", 2.5]]
DATA = {"type": "sheet_data", "sheet_idx0": 0, "sheet_idx1": "EI0"}
NAMES = {"type": "sheet_name"}
BROKEN = b"MZ\x90\x00"
GONE = None


class Made(NamedTuple):
    """One of `generate.py`'s."""

    name: str


Case = tuple[str, Any, Any, dict[str, Any]]


def found(value: Any) -> dict[str, Any]:
    """A value as a getter would find it."""
    return {"type": "rule", "rules": value}


def picture(
    kind: str = "png", size: tuple[int, int] = (64, 48), mode: str = "RGB", mark: int = 8, shade: int = 90
) -> bytes:
    """A drawing without symmetry."""
    image = Image.new("RGBA", size, (shade, 120, 200, 255))
    draw = ImageDraw.Draw(image)
    draw.rectangle((mark, 5, mark + 20, 30), fill=(250, 250, 250, 255))
    draw.ellipse((size[0] // 2, size[1] // 3, size[0] - 2, size[1] - 2), fill=(30, 200, 60, 255))
    draw.line((0, 0, size[0], size[1] // 2), fill=(0, 0, 0, 255))
    out = io.BytesIO()
    image.convert(mode).save(out, kind)
    return out.getvalue()


def turned(data: bytes) -> bytes:
    """In a mirror."""
    out = io.BytesIO()
    Image.open(io.BytesIO(data)).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(out, "png")
    return out.getvalue()


def clear(size: tuple[int, int] = (64, 48), box: tuple[int, int, int, int] | None = (10, 10, 30, 40)) -> bytes:
    """Transparent, besides a box."""
    image = Image.new("RGBA", size, (0, 0, 0, 0))
    if box:
        image.paste((255, 0, 0, 255), box)
    out = io.BytesIO()
    image.save(out, "png")
    return out.getvalue()


def cases(func: str, *each: tuple[Any, ...]) -> list[Case]:
    """Those of one metric; options may be left out."""
    return [(func, *one, {}) if len(one) == 2 else (func, *one) for one in each]  # type: ignore[misc]


def _typed(cell: object) -> bytes:
    return xlsx({"S": [["k"], [cell]]})


TYPED = [
    Raw('><v/>'), Raw(' t="n"><v></v>'), Raw(' t="b"><v/>'), Raw(' t="s"><v/>'), Raw(' t="inlineStr"><is><t/></is>'),
    Raw('><v>x</v>'), Raw(' t="b"><v>true</v>'), Raw('><v>inf</v>'), Raw(' t="d"><v>x</v>'),
]  # fmt: skip
"""Cells without a value of their kind: some are empty to upstream's library, over the others it breaks down."""
SHEETS = [
    {"sheet_idx0": "ENZ"}, {"sheet_idx0": "EI5"}, {"sheet_idx0": 5, "sheet_idx1": "EI5"}, {"sheet_idx0": -1},
    {"sheet_idx0": "RIx"},
]  # fmt: skip
"""Sheets that are not there, or are counted from the last."""
PIC = picture()
MARKS = {
    "bookmark_bar": {
        "children": [
            {"type": "folder", "name": "Liked Authors", "children": [{"type": "url", "url": "https://a.example/"}]},
            {"type": "url", "name": "b", "url": "https://b.example/"},
        ]
    }
}
SETTINGS = json.dumps({"a": {"b": [1, "two"]}, "n": 2.5, "on": True, "list": "x,y"}).encode()


def at(*key: object, method: str = "eq", ref: Any = None) -> dict[str, Any]:
    """A rule of check_json."""
    return {"key": list(key), "method": method, "ref": ref}


TEXTS: list[Case] = [
    *cases(
        "exact_match",
        (found("a"), rule(expected="a")),
        (found("a"), rule(expected="A")),
        (found("a b"), rule(expected="a  b")),
        (found(["a", 1]), rule(expected=["a", 1])),
        (found(["a", 1]), rule(expected=["a", 2])),
        (found({"a": None}), rule(expected={"a": None})),
        (found(""), rule(expected="")),
    ),
    *cases(
        "match_in_list",
        (found("a"), rule(expected=["a", "b"])),
        (found("c"), rule(expected=["a", "b"])),
        (found("A"), rule(expected=["a", "b"])),
        (found(1), rule(expected=[1.0])),
        (found(["a"]), rule(expected=[["a"]])),
        (found("a"), rule(expected=[])),
    ),
    *cases(
        "is_in_list",
        (found(["a", "b"]), rule(expected="a")),
        (found(["a", "b"]), rule(expected="c")),
        (found(["a b"]), rule(expected="a")),
        (found("a b"), rule(expected="a")),
        (found({"a": 1}), rule(expected="a")),
        (found([["a"]]), rule(expected=["a"])),
    ),
    *cases(
        "literal_match",
        (found("a"), found("a")),
        (found("a"), found("A")),
        (found("a"), found("A"), {"ignore_case": True}),
        (found(["a", 1]), found(["a", "1"]), {"type": "list"}),
        (found(["a"]), found(["a", "b"]), {"type": "list"}),
        (found(["a", "B"]), found(["A", "b"]), {"type": "list", "ignore_case": True}),
        (found("a"), found(["a"]), {"type": "list"}),
    ),
    *cases(
        "check_include_exclude",
        (found("a b"), rule(include=["a"], exclude=["c"])),
        (found("a c"), rule(include=["a"], exclude=["c"])),
        (found("b"), rule(include=["a"], exclude=[])),
        (found("A"), rule(include=["a"])),
        (found("a"), rule(exclude=["b"])),
        (found(""), rule(include=[""], exclude=["x"])),
    ),
    *cases(
        "compare_text_file",
        (b"a\n", b"a\n"),
        (b"a\r\n", b"a\n"),
        (b"a", b"b"),
        (b"A  b\n", b"a b", {"ignore_case": True, "ignore_blanks": True}),
        (b"A  b\n", b"a b", {"ignore_blanks": True}),
        (b"\xff\xfe", b"a"),
        (GONE, b"a"),
        ("ünï 漢字".encode(), "ünï 漢字".encode()),
    ),
    *cases(
        "diff_text_file",
        (b"a\nb\n", b"a\nb\n"),
        (b"a\nb\nc\nx\n", b"a\nb\nc\nd\n"),
        (b"", b"a\n"),
        (b"\xff", b"a\n"),
        (GONE, b"a\n"),
        (b"a\x0cb\x1cc", b"a\nb\nc"),
    ),
    *cases(
        "check_list",
        (b"one\ntwo\n", rule(expect=["^one$"], unexpect=["three"])),
        (b"one\nthree\n", rule(expect=["^one$"], unexpect=["three"])),
        (b"on\ntwo\n", rule(expect=["^one$"])),
        (b"", rule(expect=["x"])),
        (b"\xff", rule(expect=["x"])),
        (GONE, rule(expect=["x"])),
        (b"a", rule(unexpect=["b"])),
        (b"foo\x0cbar\n", rule(expect=["foo.bar"])),
        ("a\u2028b\x1cc\r\nd\n".encode(), rule(expect=["a.b.c$"], unexpect=["^b", "c.d"])),
    ),
    *cases(
        "file_contains",
        (b'{"a": 1}', rule(expected=['"a"', "1"])),
        (b"{}", rule(expected=['"a"'])),
        (b"A", rule(expected=["a"])),
        (b"\xff", rule(expected=["a"])),
        (GONE, rule(expected=["a"])),
        (b"", rule(expected=[])),
    ),
    *cases(
        "compare_csv",
        (b"a,b\n1,2\n", b"a,b\n1,2\n"),
        (b"a,b\n1,2\n", b"a,b\n1,3\n"),
        (b"a,b\n1,2 \n", b"a,b\n1,2\n", {"strict": False}),
        (b"a,b\n1,2 \n", b"a,b\n1,2\n"),
        (b"A,b\n1,2\n", b"a,b\n1,2\n", {"ignore_case": True}),
        (b"a,b\r\n1,2\r\n", b"a,b\n1,2"),
        (b"\xff\xfe", b"a,b\n"),
        (GONE, b"a,b\n"),
    ),
]
OFFICE: list[Case] = [
    *cases(
        "compare_docx_files",
        (docx("Hello", "you"), docx("Hello", "you")),
        (docx("Hello", "you"), docx("Hello", "", "you ")),
        (docx("Hello", "you"), docx("Hello", "", "you "), {"ignore_blanks": False}),
        (docx("a\tb\nc"), docx("a\tb\nc"), {"ignore_blanks": False}),
        (docx("a\tb"), docx("a b"), {"ignore_blanks": False}),
        (docx("a", "b"), docx("b", "a"), {"ignore_order": True}),
        (docx("a", "", "b"), docx("a", "b"), {"ignore_blanks": False, "delete_empty_lines": True}),
        (Made("letter.docx"), Made("letter.docx")),
        (Made("letter.docx"), Made("letter-text.docx")),
        (Made("letter.docx"), Made("letter-style.docx")),
        (Made("letter.docx"), Made("letter-style.docx"), {"ignore_blanks": False}),
        (BROKEN, docx("a")),
        (GONE, docx("a")),
    ),
    *cases(
        "compare_table",
        (xlsx({"S": ROWS}), xlsx({"S": ROWS}), {"rules": [DATA]}),
        (xlsx({"T": ROWS}), xlsx({"S": ROWS}), {"rules": [DATA, NAMES]}),
        (xlsx({"S": [*ROWS[:2], ["b", None]]}), xlsx({"S": ROWS}), {"rules": [DATA]}),
        (xlsx({"S": [*ROWS, ["c", 3]]}), xlsx({"S": ROWS}), {"rules": [DATA]}),
        (xlsx({"S": [*ROWS, [None, None]]}), xlsx({"S": ROWS}), {"rules": [DATA]}),
        (xlsx({"S": [["name", "n", None], *ROWS[1:]]}), xlsx({"S": ROWS}), {"rules": [DATA]}),
        (xlsx({"S": [["n", "name"], [1, "a"], [2.5, "b"]]}), xlsx({"S": ROWS}), {"rules": [DATA]}),
        (Made("book.xlsx"), xlsx({"S": ROWS}), {"rules": [DATA, NAMES]}),
        (Made("book-near.xlsx"), Made("book.xlsx"), {"rules": [DATA]}),
        (Made("book-near.xlsx"), Made("book.xlsx"), {"rules": [{**DATA, "precision": 6}]}),
        (Made("book-other.xlsx"), Made("book.xlsx"), {"rules": [DATA]}),
        (Made("book-title.xlsx"), Made("book.xlsx"), {"rules": [NAMES]}),
        (Made("book-text.xlsx"), Made("book.xlsx"), {"rules": [DATA]}),
        (xlsx({"S": [["k"], ["1"], ["2"]]}), xlsx({"S": [["k"], [1], [2]]}), {"rules": [DATA]}),
        (xlsx({"S": [["k"], ["1"], ["x"]]}), xlsx({"S": [["k"], [1], ["x"]]}), {"rules": [DATA]}),
        (xlsx({"S": [["k"], [2.51234], ["x"]]}), xlsx({"S": [["k"], [2.51233], ["x"]]}), {"rules": [DATA]}),
        (xlsx({"S": [["k"], ["NA"], [1]]}), xlsx({"S": [["k"], [None], [1]]}), {"rules": [DATA]}),
        (xlsx({"S": [["k"], [True]]}), xlsx({"S": [["k"], [True]]}), {"rules": [DATA]}),
        (xlsx({"S": [["k"], [True], [False]]}), xlsx({"S": [["k"], [1], [0]]}), {"rules": [DATA]}),
        (xlsx({"S": [["k"], [True], [None]]}), xlsx({"S": [["k"], [1], [None]]}), {"rules": [DATA]}),
        (xlsx({"S": [["k"], ["TRUE"]]}), xlsx({"S": [["k"], [True]]}), {"rules": [DATA]}),
        (xlsx({"S": [["k"], [29.999999999999996]]}), xlsx({"S": [["k"], [30]]}), {"rules": [DATA]}),
        (xlsx({"S": [["k"], [29.999999999999996], [1.5]]}), xlsx({"S": [["k"], [30], [1.5]]}), {"rules": [DATA]}),
        (xlsx({"S": [["k"], [" 1"]]}), xlsx({"S": [["k"], [1.0]]}), {"rules": [DATA]}),
        (xlsx({"S": [["NA"], [1]]}), xlsx({"S": [[None], [1]]}), {"rules": [DATA]}),
        (xlsx({"S": [["day"], [45292]]}), Made("book-day.xlsx"), {"rules": [DATA]}),
        (Made("book-day.xlsx"), Made("book-day.xlsx"), {"rules": [DATA]}),
        (xlsx({"S": [["k"]]}), xlsx({"S": [["k"]]}), {"rules": [DATA]}),
        *((_typed(cell), _typed(None), {"rules": [DATA]}) for cell in TYPED),
        *((_typed(other), _typed(cell), {"rules": [DATA]}) for cell in TYPED for other in (None, 1)),
        *((xlsx({"S": ROWS}), xlsx({"S": ROWS, "T": ROWS}), {"rules": [{**DATA, **sheets}]}) for sheets in SHEETS),
        *((xlsx({"S": ROWS, "T": ROWS}), xlsx({"S": ROWS}), {"rules": [{**DATA, **sheets}]}) for sheets in SHEETS),
        (BROKEN, xlsx({"S": ROWS}), {"rules": [DATA]}),
        (GONE, xlsx({"S": ROWS}), {"rules": [DATA]}),
    ),
    *cases(
        "check_pdf_pages",
        (Made("one.pdf"), rule(relation="eq", ref_value=1)),
        (Made("three.pdf"), rule(relation="eq", ref_value=1)),
        (Made("three.pdf"), rule(relation="le", ref_value=3)),
        (Made("packed.pdf"), rule(relation="eq", ref_value=3)),
        (Made("packed.pdf"), rule(relation="gt", ref_value=3)),
        (BROKEN, rule(relation="ge", ref_value=0)),
        (b"%PDF-1.4\n%%EOF", rule(relation="ge", ref_value=0)),
        (GONE, rule(relation="ge", ref_value=0)),
    ),
]
IMAGES: list[Case] = [
    *cases(
        "check_image_size",
        (PIC, rule(width=64, height=48)),
        (PIC, rule(width=64, height=47)),
        (PIC, rule(height=48)),
        (clear(), rule(width=20, height=30, ignore_transparent=True)),
        (clear(), rule(width=64, height=48)),
        (clear(box=None), rule(width=0, height=0, ignore_transparent=True)),
        (picture("gif", mode="P"), rule(width=64)),
        (picture(mode="P"), rule(width=64)),
        (PIC[:60], rule(width=64, height=48)),
        (BROKEN, rule(width=64)),
        (GONE, rule(width=64)),
    ),
    *cases(
        "check_image_file_size",
        (PIC, rule(max_size=100000)),
        (PIC, rule(max_size=len(PIC))),
        (PIC, rule(max_size=len(PIC) + 1)),
        (b"", rule(max_size=1)),
        (b"", rule(max_size=0)),
        (BROKEN, rule(max_size=10)),
        (GONE, rule(max_size=10)),
    ),
    *cases(
        "check_structure_sim",
        (PIC, PIC),
        (picture("jpeg"), PIC),
        (picture(mode="L"), PIC),
        (picture(mark=30), PIC),
        (picture(shade=100), PIC),
        (picture(size=(65, 48)), PIC),
        (picture(size=(6, 48)), picture(size=(6, 48))),
        (picture(mode="RGBA"), PIC),
        (PIC[:-40], PIC),
        (BROKEN, PIC),
        (GONE, PIC),
    ),
    *cases(
        "check_image_mirror",
        (turned(PIC), PIC),
        (PIC, PIC),
        (turned(picture(mark=9)), PIC),
        (turned(picture("jpeg")), PIC),
        (turned(picture(size=(65, 48))), PIC),
        (BROKEN, PIC),
        (GONE, PIC),
    ),
    *cases(
        "compare_images",
        (PIC, PIC),
        (picture(mark=9), PIC),
        (picture(mark=30, shade=10), PIC),
        (turned(PIC), PIC),
        (picture(size=(128, 96)), PIC),
        (picture(size=(500, 300)), picture(size=(300, 600))),
        (picture("jpeg"), PIC, {"reference_base_result": 0.5}),
        (picture(mark=30), PIC, {"reference_base_result": 0.95}),
        (picture(mode="P"), picture(mode="1")),
        (picture(size=(6, 6)), PIC),
        (BROKEN, PIC),
        (GONE, PIC),
    ),
    *cases(
        "compare_image_list",
        (PIC, PIC),
        (picture("bmp"), PIC),
        (picture("jpeg"), PIC),
        (picture(mark=9), PIC),
        (picture(size=(65, 48)), PIC),
        (picture(mode="L"), picture(mode="L")),
        (picture(mode="RGBA", mark=9), picture(mode="RGBA")),
        (BROKEN, PIC),
        (GONE, PIC),
    ),
]
JSONS: list[Case] = [
    *cases(
        "check_json",
        (SETTINGS, rule(expect=[at("a", "b", 0, ref=1), at("on", ref=True)])),
        (SETTINGS, rule(expect=[at("a", "b", 0, ref=2)])),
        (SETTINGS, rule(expect=[at("a", "c", ref=None)])),
        (SETTINGS, rule(expect=[at("a", "b", 7, ref=1)])),
        (SETTINGS, rule(unexpect=[at("a", "c", ref=1)])),
        (SETTINGS, rule(unexpect=[at("n", ref=2.5)])),
        (SETTINGS, rule(unexpect=[at("a", "b", 7, ref=1)])),
        (SETTINGS, rule(unexpect=[at("x", method="re", ref="y")])),
        (SETTINGS, rule(expect=[at("a", "b", 1, method="re.I", ref="^TW")])),
        (SETTINGS, rule(expect=[at("n", method="re", ref="2")])),
        (SETTINGS, rule(expect=[at("n", method="approx:0.1", ref=2.45)])),
        (SETTINGS, rule(expect=[at("a", method="approx:0.1", ref=2.45)])),
        (SETTINGS, rule(expect=[at("n", method="range.te", ref=[2.5, 3])])),
        (SETTINGS, rule(expect=[at("n", method="range.et", ref=[2.5, 3])])),
        (SETTINGS, rule(expect=[at("list", method="str_set_eq", ref=["y", "x"])])),
        (SETTINGS, rule(expect=[at("list", method="str_list_eq", ref=["y", "x"])])),
        (SETTINGS, rule(expect=[at("n", method="nonsense", ref=0)])),
        (SETTINGS, rule(expect=[at("a", "b", method="lt", ref=3)])),
        (b"[1]", rule(expect=[at("a", ref=1)])),
        (b"{", rule(expect=[])),
        (b"\xef\xbb\xbf{}", rule(expect=[])),
        (b"[" * 100000, rule(expect=[])),
        (b'{"a": NaN}', rule(expect=[at("a", method="ne", ref=0)])),
        (BROKEN, rule(expect=[])),
        (GONE, rule(expect=[])),
    ),
    *cases(
        "check_json_settings",
        (SETTINGS, rule(expected={"n": 2.5})),
        (SETTINGS, rule(expected={"n": 2.5, "on": False})),
        (SETTINGS, rule(expected={"m": None})),
        (SETTINGS, rule(expected={"a": {"b": [1, "two"]}})),
        (SETTINGS, rule(expected={})),
        (b"[]", rule(expected={"n": 1})),
        (b"// comment\n{}", rule(expected={})),
        (b"3", rule(expected={"n": 1})),
        (BROKEN, rule(expected={})),
        (GONE, rule(expected={})),
    ),
    *cases(
        "check_json_keybindings",
        (b'[{"key": "a"}]', rule(expected={"key": "a"})),
        (b'// comment\n[{"key": "a"}]', rule(expected={"key": "a"})),
        (b'[{"key": "a", "when": "b"}]', rule(expected={"key": "a"})),
        (b"[]", rule(expected={"key": "a"})),
        (b"{}\n[1]", rule(expected=1)),
        (b"{}", rule(expected={})),
        (BROKEN, rule(expected={})),
        (GONE, rule(expected={})),
    ),
    *cases(
        "check_direct_json_object",
        (found({"a": 1, "b": 2}), rule(expected={"a": 1})),
        (found({"a": 1}), rule(expected={"a": 1, "b": 2})),
        (found("{'a': 1}"), rule(expected={"a": 1})),
        (found("{"), rule(expected={})),
        (found([1]), rule(expected={"a": 1})),
        (found([1]), rule(expected={})),
        (found({"a": 1}), rule(expected={"a": "__EVALUATION_FAILED__"})),
        (found({"a": [2, 1]}), rule(expected={"a": [1, 2]})),
        (found({"a": [2, 1]}), rule(expected={"a": [1, 2], "ignore_list_order": True})),
        (found({"a": ["x", "y"]}), rule(expected={"a": ["y", "z"]}, expect_in_result=True)),
        (found({"a": "y"}), rule(expected={"a": ["y", "z"]}, expect_in_result=True)),
        (found({"a": "xyz"}), rule(expected={"a": "y"}, expect_in_result=True)),
        (found({"a": "xyz"}), rule(expected={"a": 1}, expect_in_result=True)),
        (found({}), rule(expected={"a": "y"}, expect_in_result=True)),
    ),
    *cases(
        "is_expected_bookmarks",
        (found(MARKS), rule(type="bookmark_bar_folders_names", names=["Liked Authors"])),
        (found(MARKS), rule(type="bookmark_bar_folders_names", names=["Liked Authors", "more"])),
        (found(MARKS), rule(type="bookmark_bar_websites_urls", urls=["https://b.example/"])),
        (found(MARKS), rule(type="bookmark_bar_websites_urls", urls=["https://b.example"])),
        (found(MARKS), rule(type="liked_authors_websites_urls", urls=[["https://x.example/", "https://a.example/"]])),
        (found(MARKS), rule(type="liked_authors_websites_urls", urls=["https://x.example/"])),
        (found({"bookmark_bar": {"children": []}}), rule(type="liked_authors_websites_urls", urls=["x"])),
        (found({"bookmark_bar": {"children": []}}), rule(type="bookmark_bar_folders_names", names=[])),
        (found({"odd": 1}), rule(type="bookmark_bar_folders_names", names=[])),
        (found({}), rule(type="bookmark_bar_folders_names", names=[])),
        (found(MARKS), rule(type="nonsense")),
    ),
]
RELAXED = {
    "text": "text", "blank": "text", "case": "text", "break": "text", "bold": "font_bold", "italic": "font_italic",
    "underline": "font_underline", "strike": "strike_through", "size": "font_size", "name": "font_name",
    "centre": "alignment", "level": "indent", "about": "bullets", "bullet": "bullets", "notes": "note",
    "more_notes": "note", "ground": "background_color", "master_ground": "background_color", "far": "shape",
    "wide": "shape", "title_far": "shape", "slide": "number_of_slides", "group": "text", "group_centre": "alignment",
    "cell": "bullets", "empty": "text", "unicode": "text",
}  # fmt: skip
"""Decks that differ from `same`, and what has to be left out for them not to."""
PLAIN = ("same", "not_bold", "no_underline", "red", "theme", "left", "notes_blank", "near", "placed", "shape", "split",
         "paragraph", "group_more", "cell_bold", "cell_red", "cell_empty", "cell_more", "swapped")  # fmt: skip


def _decks() -> list[Case]:
    every = [*PLAIN, *RELAXED]
    pairs: list[tuple[Any, ...]] = [(Made(f"{name}.pptx"), Made("same.pptx")) for name in every]
    for name, what in RELAXED.items():
        pairs.append((Made(f"{name}.pptx"), Made("same.pptx"), {f"examine_{what}": False}))
        loose = {f"examine_{each}": False for each in (what, "bullets", "alignment")}
        pairs.append((Made("same.pptx"), Made(f"{name}.pptx"), loose))
    pairs += [
        (Made("red.pptx"), Made("blue.pptx")),
        (Made("red.pptx"), Made("blue.pptx"), {"examine_color_rgb": False}),
        (Made("ground.pptx"), Made("other_ground.pptx")),
        (Made("ground.pptx"), Made("ground.pptx")),
        (Made("slide.pptx"), Made("layout.pptx"), {"examine_shape": False}),
        (Made("far.pptx"), Made("same.pptx"), {"approximately_tolerance": 0.2}),
        (Made("unicode.pptx"), Made("unicode.pptx")),
        (Made("empty.pptx"), Made("empty.pptx"), {"enable_debug": False}),
        (BROKEN, Made("same.pptx")),
        (docx("a"), Made("same.pptx")),
        (GONE, Made("same.pptx")),
    ]
    return cases("compare_pptx_files", *pairs)


CASES: list[Case] = [*TEXTS, *OFFICE, *_decks(), *IMAGES, *JSONS]
ENDINGS = {
    "compare_docx_files": "docx", "compare_table": "xlsx", "compare_pptx_files": "pptx", "check_pdf_pages": "pdf",
}  # fmt: skip
