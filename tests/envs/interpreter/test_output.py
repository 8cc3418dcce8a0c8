"""What is kept of a long output: the beginning, the end, and how much is missing."""

from __future__ import annotations

import pytest

from deskroll.envs.interpreter.output import Output, Said


def shown(chars: int, *parts: bytes) -> str:
    output = Output(chars)
    for part in parts:
        output.add(part)
    return output.text()


def test_what_fits_is_shown_whole() -> None:
    assert shown(10) == ""
    assert shown(10, b"0123", b"456789") == "0123456789"
    assert shown(4, "äöü€".encode()) == "äöü€"


def test_the_middle_is_left_out_and_counted() -> None:
    assert shown(10, b"abcdefghijkl") == "abcde\n[... about 2 bytes left out ...]\nhijkl"


@pytest.mark.parametrize("size", [1, 7, 1000, 65536])
def test_beginning_and_end_are_right_however_it_comes(size: int) -> None:
    data = b"".join(b"%09d\n" % number for number in range(20_000))
    text = shown(100, *(data[at : at + size] for at in range(0, len(data), size)))
    assert text.startswith("000000000\n000000001\n")
    assert text.endswith("000019998\n000019999\n")
    assert f"about {len(data) - 100:,} bytes" in text


def test_characters_cut_in_half_and_bytes_that_are_none() -> None:
    assert shown(10, b"\xe2\x82", b"\xac \xff") == "€ \ufffd"
    assert len(shown(10, "€".encode() * 1000)) < 60


def test_neither_print_nor_value_pushes_the_other_out() -> None:
    for printed, shown in ((10, 10), (10, 5000), (5000, 10), (5000, 5000)):
        said = Said(1000)
        said.printed.add(b"p" * printed)
        said.shown.add(b"v" * shown)
        text = said.text()
        assert text.startswith("p" * 10)
        assert text.endswith("v" * 10)
        assert text.count("p") + text.count("v") == pytest.approx(min(printed + shown, 1000), abs=60)
        assert ("left out" in text) == (printed + shown > 1000)
