"""What was found beside what was expected, in brief."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskroll.scoring.excerpt import LONGEST, excerpts


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("41", "41"),
        ("", ""),
        (None, None),
        ([["a", 1], ["b", 2.5]], '[["a",1],["b",2.5]]'),
        ({"expect": ["^x$"]}, '{"expect":["^x$"]}'),
        (b"x", '"eA=="'),
        ({1: {2}, "c": 3j}, '{"1":[2],"c":"3j"}'),
        ("\ud800", "\ud800"),
        (["\ud800"], "['\\ud800']"),
    ],
)
def test_a_value_is_shown_as_it_is_read(value: object, text: str | None) -> None:
    assert excerpts(value, "42") == (text, "42")


def test_of_long_texts_the_part_is_shown_in_which_they_differ() -> None:
    found, expected = excerpts("x" * 10_000 + "41" + "y" * 10_000, "x" * 10_000 + "42")
    assert found is not None
    assert expected is not None
    assert found.startswith("... xxx")
    assert "x41y" in found
    assert found.endswith("y ...")
    assert expected.startswith("... xxx")
    assert expected.endswith("x42")


@given(st.text(alphabet="ab", max_size=3 * LONGEST), st.text(alphabet="ab", max_size=3 * LONGEST))
def test_both_are_short_and_differ_where_their_texts_do(found: str, expected: str) -> None:
    brief = excerpts(found, expected)
    assert all(each is not None and len(each) <= LONGEST for each in brief)
    assert (brief[0] == brief[1]) == (found == expected)
