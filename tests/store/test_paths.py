import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deskroll.errors import StoreError
from deskroll.store.paths import LONGEST_NAME, attempt_folder, escape, inside, unescape
from tests.store.records import key

NAMES = st.text(max_size=60)


@given(NAMES)
@example("")
@example(".")
@example("..")
@example(".hidden")
@example("../../etc/passwd")
@example("con")
@example("a/b\\c\0")
@example("ends.")
@example("50%~")
def test_a_name_is_one_safe_part_of_a_path_and_comes_back(name: str) -> None:
    escaped = escape(name)
    assert set(escaped) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-%~")
    assert escaped
    assert escaped[0] != "."
    assert len(escaped) <= LONGEST_NAME
    assert inside(escaped) == escaped
    if "~" not in escaped:
        assert unescape(escaped) == name


@given(st.text(min_size=40), st.text(min_size=40))
def test_different_names_never_share_a_folder(one: str, other: str) -> None:
    assert (escape(one) == escape(other)) == (one == other)


def test_a_long_name_is_cut_and_stays_distinct() -> None:
    one, other = escape("x" * 300 + "1"), escape("x" * 300 + "2")
    assert one != other
    assert len(one) <= LONGEST_NAME
    assert unescape(one) is None


def test_plain_names_stay_as_they_are() -> None:
    assert attempt_folder(key("bb5e4c0d-f964", 3), 2) == "episodes/eval/0/bb5e4c0d-f964/3/2"
    assert attempt_folder(key("chrome/1", 0, phase="t 1"), 1) == "episodes/t%201/0/chrome%2F1/0/1"


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/./b", "a\0", "a\\b", "a/"])
def test_a_path_that_leads_out_is_refused(path: str) -> None:
    with pytest.raises(StoreError, match="not a path below"):
        inside(path)
