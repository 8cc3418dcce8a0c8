"""Names of keys: the canonical ones, their aliases, and what is no key."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from Xlib import XK

from deskroll.actions import KEYS, canonical_key
from deskroll.actions.keys import KEYSYMS, chord
from deskroll.errors import ActionError


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("a", "a"), ("A", "A"), ("é", "é"), ("+", "+"), (" ", "space"), ("\n", "enter"), ("\t", "tab"),
        ("Return", "enter"), ("KP_Enter", "enter"), ("ESC", "escape"), ("Page_Down", "pagedown"), ("Prior", "pageup"),
        ("control", "ctrl"), ("Control_L", "ctrlleft"), ("Shift_R", "shiftright"), ("cmd", "win"), ("super", "win"),
        ("Super_L", "winleft"), ("plus", "+"), ("braceleft", "{"), ("KP_7", "num7"), ("KP_Add", "add"), ("F12", "f12"),
        ("XF86AudioMute", "volumemute"), ("apps", "menu"), ("Print", "printscreen"),
    ],
)  # fmt: skip
def test_aliases(name: str, canonical: str) -> None:
    assert canonical_key(name) == canonical


def test_every_canonical_name_is_its_own() -> None:
    assert all(canonical_key(name) == name for name in KEYS)


def test_every_keysym_is_one_that_x_knows_and_names_the_same_key() -> None:
    XK.load_keysym_group("xf86")
    for name, keysym in KEYSYMS.items():
        assert XK.string_to_keysym(keysym.replace("XF86", "XF86_")), keysym
        assert KEYSYMS[canonical_key(keysym)] == keysym, name


def test_no_control_character_is_a_key_but_those_that_stand_for_one() -> None:
    accepted = set()
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)) in ("Cc", "Cs", "Cf", "Zl", "Zp"):
            try:
                canonical_key(chr(code))
            except ActionError:
                continue
            accepted.add(chr(code))
    assert accepted == {"\n", "\r", "\t"}


@pytest.mark.parametrize("name", ["", "foo", "ctrl+c", "\x00", "\x7f", "\ud800", "  ", "f25"])
def test_what_is_no_key_is_refused_with_what_is_allowed(name: str) -> None:
    with pytest.raises(ActionError, match=r"which is not a key; .*allowed: one printable character, or one of add alt"):
        canonical_key(name)


@given(st.text())
def test_a_canonical_name_stays_what_it_is(name: str) -> None:
    try:
        canonical = canonical_key(name)
    except ActionError:
        return
    assert canonical_key(canonical) == canonical


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("a", ("a",)), ("+", ("+",)), ("ctrl+s", ("ctrl", "s")), ("ctrl++", ("ctrl", "+")), ("++shift", ("+", "shift")),
        ("ctrl + shift + T", ("ctrl", "shift", "T")), ("Control_L+plus", ("ctrlleft", "+")), (" ", ("space",)),
    ],
)  # fmt: skip
def test_a_chord_is_its_keys(text: str, keys: tuple[str, ...]) -> None:
    assert chord(text) == keys


@pytest.mark.parametrize("text", ["", "ctrl+", "+ctrl", "++", "ctrl+++"])
def test_what_is_no_chord_is_refused(text: str) -> None:
    with pytest.raises(ActionError, match="allowed: keys joined by "):
        chord(text)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("ctrl-s", ("ctrl", "s")),
        ("Ctrl-Shift-Escape", ("ctrl", "shift", "escape")),
        ("ctrl--", ("ctrl", "-")),
        ("ctrl-Page_Up", ("ctrl", "pageup")),
        ("super-d", ("win", "d")),
        ("ctrl+-", ("ctrl", "-")),
        ("-", ("-",)),
    ],
)
def test_keys_may_be_joined_by_a_dash(text: str, keys: tuple[str, ...]) -> None:
    assert chord(text) == keys


@pytest.mark.parametrize("text", ["a-b", "s-ctrl", "ctrl-", "ctrl-nokey"])
def test_a_dash_joins_only_behind_keys_that_are_held(text: str) -> None:
    with pytest.raises(ActionError, match="which is not a key"):
        chord(text)
