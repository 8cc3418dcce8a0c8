"""The table of elements, and marks on the screen."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from deskroll.desktops.x11.atspi_xml import NAMESPACES
from deskroll.envs.osworld.elements import Element, elements, marked_table, table
from deskroll.envs.osworld.marks import mark

DECLARED = " ".join(f'xmlns:{prefix}="{uri}"' for prefix, uri in NAMESPACES.items())
SEEN = 'st:showing="true" st:visible="true" st:enabled="true"'
PLACE = 'cp:screencoord="(10, 20)" cp:size="(30, 40)"'


def tree(*nodes: str) -> str:
    return f"<desktop-frame {DECLARED}>{''.join(nodes)}</desktop-frame>"


def test_what_can_be_used_is_listed_as_osworld_does() -> None:
    found = elements(tree(
        f'<application name="app"><push-button name="Save" {SEEN} {PLACE}/>'
        f'<text name="" {SEEN} {PLACE} attr:class="E" attr:description="d">typed "here"</text></application>'
    ))  # fmt: skip
    assert table(found).splitlines() == [
        "tag\tname\ttext\tclass\tdescription\tposition (top-left x&y)\tsize (w&h)",
        'push-button\tSave\t""\t\t\t(10, 20)\t(30, 40)',
        'text\t\t"typed ""here"""\tE\td\t(10, 20)\t(30, 40)',
    ]
    assert marked_table(found).splitlines()[1] == '1\tpush-button\tSave\t""'
    assert found[0].centre == (25, 40)


@pytest.mark.parametrize(
    "node",
    [
        f'<panel name="p" {SEEN} {PLACE}/>',
        f'<push-button name="" {SEEN} {PLACE}/>',
        f'<push-button name="x" st:visible="true" st:enabled="true" {PLACE}/>',
        f'<push-button name="x" st:showing="true" st:enabled="true" {PLACE}/>',
        f'<push-button name="x" st:showing="true" st:visible="true" {PLACE}/>',
        f'<push-button name="x" {SEEN}/>',
        f'<push-button name="x" {SEEN} cp:screencoord="(-1, 5)" cp:size="(3, 4)"/>',
        f'<push-button name="x" {SEEN} cp:screencoord="(1, 5)" cp:size="(0, 4)"/>',
        f'<push-button name="x" {SEEN} cp:screencoord="__import__(1)" cp:size="(3, 4)"/>',
        f'<push-button name="x" {SEEN} cp:screencoord="(99999999999, 5)" cp:size="(3, 4)"/>',
    ],
)
def test_what_cannot_be_used_is_not(node: str) -> None:
    assert elements(tree(node)) == []


BOMB = '<!DOCTYPE d [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><desktop-frame>&b;</desktop-frame>'

LATE = f"<!--{'x' * 10_001}--><!DOCTYPE d>" + tree(f'<push-button name="Save" {SEEN} {PLACE}/>')


@pytest.mark.parametrize("text", ["", "no xml", "<open>", BOMB, LATE, "<a>" * 2000])
def test_a_tree_that_is_none_has_no_elements(text: str) -> None:
    assert elements(text) == []


@given(name=st.text(max_size=60), text=st.text(max_size=60))
def test_a_cell_cannot_be_left(name: str, text: str) -> None:
    from deskroll.desktops.x11.atspi_xml import _NOT_XML, _escaped  # noqa: PLC0415

    inner = _NOT_XML.sub("", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    found = elements(tree(f'<entry name="{_escaped(name)}" {SEEN} {PLACE}>{inner}</entry>'))
    lines = table(found).split("\n")
    assert len(lines) == 1 + len(found)
    assert all(line.count("\t") == 6 for line in lines)


def screen() -> bytes:
    image = Image.new("RGB", (200, 100), "white")
    ImageDraw.Draw(image).text((20, 20), "Save", fill="black")
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def element(x: int, y: int, width: int = 40, height: int = 20) -> Element:
    return Element(tag="push-button", name="n", text="", x=x, y=y, width=width, height=height)


def test_marks_are_drawn_around_what_is_to_be_seen() -> None:
    before = screen()
    there, blank, outside, beyond = element(15, 15), element(120, 50), element(500, 500), element(15, 15, 900, 900)
    picture, kept = mark(before, [blank, there, outside, beyond])
    assert kept == [there, element(15, 15, 185, 85)], "of the last one, what is on the screen"
    image = Image.open(io.BytesIO(picture))
    assert image.size == (200, 100)
    assert image.getpixel((15, 15)) == (255, 0, 0)
    assert picture != before
