"""Clicks, keys and text as real programs see them."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from Xlib import X
from Xlib.display import Display
from Xlib.error import ConnectionClosedError
from Xlib.ext import xtest
from Xlib.protocol import event
from Xlib.xobject.drawable import Window as XWindow

from deskroll.actions import (
    KEYS,
    Click,
    ComputerAction,
    DoubleClick,
    DragTo,
    Hotkey,
    KeyDown,
    KeyUp,
    MouseDown,
    MouseUp,
    MoveTo,
    Press,
    RightClick,
    Scroll,
    Typing,
)
from deskroll.desktops.x11 import windows
from deskroll.desktops.x11.input import Input
from deskroll.desktops.x11.keysyms import NAMED, is_character
from deskroll.errors import ActionError, DesktopLost
from tests.waiting import wait_until
from tests.x11.conftest import XSession


@pytest.fixture
def display(xsession: XSession) -> Iterator[Display]:
    """A connection to look with, apart from the one that acts."""
    connection = Display(xsession.name)
    yield connection
    _close(connection)


@pytest.fixture
def input_(xsession: XSession) -> Iterator[Input]:
    connection = Display(xsession.name)
    yield Input(connection)
    _close(connection)


def _close(connection: Display) -> None:
    with contextlib.suppress(ConnectionClosedError):  # a test may have ended the server
        connection.close()


@pytest.fixture
def busy() -> Iterator[None]:
    """A machine on which every core is wanted by somebody else too."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


def quiet_mousepad(xsession: XSession) -> None:
    """Keep mousepad from watching its file.

    It takes a save of its own that lasts over 500 ms for somebody else's and asks in a dialog, which then gets
    the keys that are meant for the text.
    """
    settings = xsession.home / ".config" / "glib-2.0" / "settings" / "keyfile"
    settings.parent.mkdir(parents=True)
    settings.write_text("[org/xfce/mousepad/preferences/file]\nmonitor-changes=false\n")
    xsession.env["GSETTINGS_BACKEND"] = "keyfile"


class Editor:
    """Mousepad on one file."""

    def __init__(self, xsession: XSession, display: Display, input_: Input) -> None:
        self.file = xsession.home / "note.txt"
        self.file.write_text("")
        quiet_mousepad(xsession)
        self.input = input_
        self.display = display
        xsession.start("mousepad", str(self.file))
        self.window = wait_until(lambda: _active(display, "mousepad.Mousepad"), "mousepad has the focus")

    def saved(self, expected: str) -> None:
        """Save, and see that the file is `expected`."""
        self.input.perform(Hotkey(("ctrl", "s")))
        with contextlib.suppress(AssertionError):
            wait_until(lambda: self.file.read_text() == expected, "the file has the text")
        assert self.file.read_text() == expected

    def inside(self, right: float, down: float) -> tuple[int, int]:
        """A pixel of the window, as a part of its width and height."""
        window = _active(self.display, "mousepad.Mousepad")
        assert window is not None
        return window.x + int(window.width * right), window.y + int(window.height * down)

    def clear(self) -> None:
        self.input.perform(Hotkey(("ctrl", "a")))
        self.input.perform(Press("delete"))


def _active(display: Display, wm_class: str) -> windows.Window | None:
    found = windows.find(display, wm_class, strict=True, by_class=True)
    return found if found is not None and found.active else None


@pytest.fixture
def editor(xsession: XSession, display: Display, input_: Input) -> Editor:
    return Editor(xsession, display, input_)


def _terminal(xsession: XSession, display: Display, name: str, geometry: str = "80x20+50+50") -> Path:
    """Start an xterm that writes what is typed into it to the file that is returned."""
    ready, out = xsession.home / f"{name}.ready", xsession.home / f"{name}.txt"
    xsession.start(
        "xterm", "-T", name, "-geometry", geometry,
        "-e", "sh", "-c", f"stty -icanon -echo; touch {ready}; exec cat > {out}",
    )  # fmt: skip
    wait_until(ready.exists, f"{name} runs")
    wait_until(lambda: (w := windows.find(display, name, strict=True)) and w.active, f"{name} has the focus")
    return out


class Listener:
    """A window of our own that has the keyboard and covers the screen's corner: it sees the bare events."""

    def __init__(self, display: Display) -> None:
        self.display = display
        mask = X.KeyPressMask | X.KeyReleaseMask | X.ButtonPressMask | X.ButtonReleaseMask
        root = display.screen().root
        self.window: XWindow = root.create_window(0, 0, 200, 200, 0, X.CopyFromParent, override_redirect=1)
        self.window.change_attributes(event_mask=mask | X.StructureNotifyMask)
        self.window.map()
        assert display.next_event().type == X.MapNotify
        self.window.set_input_focus(X.RevertToParent, X.CurrentTime)
        display.sync()

    def events(self) -> list[event.KeyButtonPointer]:
        self.display.sync()
        seen = [self.display.next_event() for _ in range(self.display.pending_events())]
        return [e for e in seen if isinstance(e, event.KeyButtonPointer)]

    def keysym(self, seen: event.KeyButtonPointer) -> int:
        shifted = 1 if seen.state & X.ShiftMask else 0
        return int(self.display.get_keyboard_mapping(seen.detail, 1)[0][shifted])

    def keysyms(self) -> list[tuple[bool, int]]:
        """Whether it was a press, and of what, for each key event since."""
        return [(e.type == X.KeyPress, self.keysym(e)) for e in self.events()]


@pytest.fixture
def listener(display: Display) -> Listener:
    return Listener(display)


def _mixed(length: int, seed: int) -> str:
    """Text of every kind: ASCII, control keys, accents, Chinese, emoji beyond the BMP, combining marks."""
    dice = random.Random(seed)
    kinds = [
        lambda: chr(dice.randrange(0x20, 0x7F)),
        lambda: dice.choice("\n\t aZ"),
        lambda: dice.choice("éÉñßøΩЖжüÅ€“”—"),
        lambda: chr(dice.randrange(0x4E00, 0x9FA5)),
        lambda: chr(dice.randrange(0x1F600, 0x1F64F)),
        lambda: chr(dice.randrange(0x300, 0x36F)),
        lambda: dice.choice("\u200d\ufe0f\U0001f1e9\U00020000"),
    ]
    weights = [8, 2, 2, 5, 3, 1, 1]
    return "".join(dice.choices(kinds, weights)[0]() for _ in range(length))


def _type_twenty_times(editor: Editor) -> None:
    for seed in range(20):
        text = _mixed(200, seed)
        editor.input.perform(Typing(text))
        editor.saved(text)
        editor.clear()


def test_two_hundred_mixed_characters_arrive_twenty_times(editor: Editor) -> None:
    _type_twenty_times(editor)


@pytest.mark.usefixtures("busy")
def test_two_hundred_mixed_characters_arrive_on_a_busy_machine(editor: Editor) -> None:
    _type_twenty_times(editor)


@pytest.mark.usefixtures("busy")
def test_texts_typed_one_after_another_do_not_spoil_each_other(editor: Editor) -> None:
    # Together they need far more spare keys than there are, and nothing is waited for in between.
    dice = random.Random(1)
    parts = ["".join(map(chr, dice.sample(range(0x4E00, 0x9FA5), 80))) + "\n" for _ in range(8)]
    for part in parts:
        editor.input.perform(Typing(part))
    editor.saved("".join(parts))


def test_one_text_with_more_characters_than_spare_keys(editor: Editor) -> None:
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 400)))
    editor.input.perform(Typing(text))
    editor.saved(text)


def test_a_program_that_stands_still_gets_its_text_all_the_same(
    xsession: XSession, display: Display, editor: Editor
) -> None:
    assert editor.window.pid is not None
    os.kill(editor.window.pid, signal.SIGSTOP)
    try:
        editor.input.perform(Typing("Grüße, 世界 🌍"))
        editor.input.perform(Typing(" Ελλάδα"))
    finally:
        os.kill(editor.window.pid, signal.SIGCONT)
    editor.saved("Grüße, 世界 🌍 Ελλάδα")


def test_a_program_that_hangs_does_not_stop_input(xsession: XSession, display: Display, editor: Editor) -> None:
    assert editor.window.pid is not None
    os.kill(editor.window.pid, signal.SIGSTOP)
    try:
        for start in (0x4E00, 0x5E00):
            editor.input.perform(Typing("".join(map(chr, range(start, start + 150)))))
    finally:
        os.kill(editor.window.pid, signal.SIGCONT)
    out = _terminal(xsession, display, "terminal")
    editor.input.perform(Typing("alive 中"))
    wait_until(lambda: out.read_text() == "alive 中", "another program gets its text")


def test_it_is_known_whether_a_program_has_read_its_input(xsession: XSession, display: Display, editor: Editor) -> None:
    assert editor.window.pid is not None
    editor.input.perform(Typing("one"))
    assert editor.input.is_read(60.0)
    os.kill(editor.window.pid, signal.SIGSTOP)
    try:
        editor.input.perform(Typing("two"))
        assert not editor.input.is_read(0.3)
        editor.input.perform(Click(x=editor.inside(0.5, 0.5)[0], y=editor.inside(0.5, 0.5)[1]))
        _terminal(xsession, display, "terminal")  # cannot be asked, and now has the focus
        assert not editor.input.is_read(0.3), "the editor got a click"
        editor.input.perform(Typing("three"))
        assert editor.input.is_read(60.0), "the editor got nothing since"
    finally:
        os.kill(editor.window.pid, signal.SIGCONT)


def test_a_window_that_closes_has_nothing_left_to_read(display: Display, editor: Editor) -> None:
    for _ in range(5):
        editor.input.perform(Hotkey(("ctrl", "o")))
        assert editor.input.is_read(60.0)
        wait_until(lambda: _active(display, "mousepad.Mousepad") is None, "the dialog has the focus")
        editor.input.perform(Press("escape"))
        assert editor.input.is_read(60.0)
        wait_until(lambda: _active(display, "mousepad.Mousepad"), "the editor has it again")


@pytest.mark.usefixtures("busy")
def test_a_terminal_gets_every_character(xsession: XSession, display: Display, input_: Input) -> None:
    out = _terminal(xsession, display, "terminal")
    dice = random.Random(2)
    parts = ["".join(map(chr, dice.sample(range(0x4E00, 0x9FA5), 80))) + " a{}é😀\n" for _ in range(3)]
    for part in parts:
        input_.perform(Typing(part))
    wait_until(lambda: out.read_bytes().decode(errors="replace") == "".join(parts), "the terminal has the text")


def test_newline_tab_and_backspace_are_keys(editor: Editor) -> None:
    editor.input.perform(Typing("one\n\ttwoo\b!"))
    editor.saved("one\n\ttwo!")


def test_caps_lock_does_not_spoil_text_and_stays_on(editor: Editor) -> None:
    editor.input.perform(Press("capslock"))
    editor.input.perform(Typing("aB é É ж"))
    editor.input.perform(Press("c"))
    editor.input.perform(Press("capslock"))
    editor.input.perform(Press("d"))
    editor.saved("aB é É жCd")


def test_held_shift_does_not_spoil_text_and_stays_held(editor: Editor) -> None:
    editor.input.perform(KeyDown("shift"))
    editor.input.perform(Typing("aB1 ж中"))
    editor.input.perform(Press("c"))
    editor.input.perform(KeyUp("shift"))
    editor.input.perform(Press("d"))
    editor.saved("aB1 ж中Cd")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("ok\ud800", "text[2] is '\\ud800'"),
        ("\x1b[A", "text[0] is '\\x1b'"),
        ("a\x00", "text[1]"),
        ("\x7f", "U+007F"),
    ],
)
def test_what_no_key_can_type_is_refused_before_the_first_character(
    listener: Listener, input_: Input, text: str, named: str
) -> None:
    with pytest.raises(ActionError) as refused:
        input_.perform(Typing(text))
    assert named in str(refused.value)
    assert listener.events() == []


def test_another_connection_takes_the_spare_keys_over(xsession: XSession, editor: Editor) -> None:
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 200)))
    editor.input.perform(Typing(text))
    connection = Display(xsession.name)
    Input(connection).perform(Typing(text[::-1]))
    connection.close()
    editor.saved(text + text[::-1])


def test_typing_leaves_the_layout_alone(xsession: XSession, display: Display) -> None:
    before = display.get_keyboard_mapping(8, 248)
    connection = Display(xsession.name)
    Input(connection).perform(Typing("".join(map(chr, range(0x4E00, 0x4E00 + 300)))))
    connection.close()
    after = display.get_keyboard_mapping(8, 248)
    changed = [n + 8 for n in range(248) if list(before[n][:2]) != list(after[n][:2])]
    named = {keysym for alternatives in NAMED.values() for keysym in alternatives}
    taken = {keysym for keycode in changed for keysym in before[keycode - 8] if keysym}
    assert not taken & named
    assert not any(is_character(keysym) for keysym in taken)


def test_every_named_key_is_pressed_as_itself(listener: Listener, input_: Input) -> None:
    # A window manager may have taken a key for itself (openbox: Print): a grab comes before that.
    listener.window.grab_keyboard(True, X.GrabModeAsync, X.GrabModeAsync, X.CurrentTime)
    wrong = {}
    for name in sorted(KEYS):
        input_.perform(Press(name))
        seen = listener.events()
        keysyms = {int(listener.display.get_keyboard_mapping(e.detail, 1)[0][0]) for e in seen}
        if len(seen) != 2 or not keysyms <= set(NAMED[name]):
            wrong[name] = [hex(keysym) for keysym in keysyms]
        if name in ("capslock", "numlock"):
            input_.perform(Press(name))
            listener.events()
    assert wrong == {}


def test_aliases_of_keys_are_understood(listener: Listener, input_: Input) -> None:
    input_.perform(Press("Return"))
    assert listener.keysyms() == [(True, 0xFF0D), (False, 0xFF0D)]


def test_an_unknown_key_is_refused_and_nothing_pressed(listener: Listener, input_: Input) -> None:
    with pytest.raises(ActionError, match="not a key"):
        input_.perform(Hotkey(("ctrl", "hyperspace")))
    assert listener.events() == []


def test_hotkey_goes_down_in_order_and_up_in_reverse(listener: Listener, input_: Input) -> None:
    input_.perform(Hotkey(("ctrl", "alt", "f13")))
    down = [0xFFE3, 0xFFE9, 0xFFCA]
    assert listener.keysyms() == [(True, k) for k in down] + [(False, k) for k in reversed(down)]


def test_a_capital_in_a_hotkey_brings_shift_along(listener: Listener, input_: Input) -> None:
    input_.perform(Hotkey(("ctrl", "C")))
    [pressed] = [e for e in listener.events() if e.type == X.KeyPress and listener.keysym(e) == ord("C")]
    assert pressed.state & X.ShiftMask
    assert pressed.state & X.ControlMask
    assert not any(listener.display.query_keymap())


def test_capitals_and_characters_off_the_layout_can_be_pressed(editor: Editor) -> None:
    for key in ("A", "a", "!", "ß", "中"):
        editor.input.perform(Press(key))
    editor.saved("Aa!ß中")


def test_shift_and_arrows_select(editor: Editor) -> None:
    editor.input.perform(Typing("abcd"))
    editor.input.perform(KeyDown("shift"))
    editor.input.perform(Press("left"))
    editor.input.perform(Press("left"))
    editor.input.perform(KeyUp("shift"))
    editor.input.perform(Press("x"))
    editor.saved("abx")


def test_a_held_key_keeps_its_meaning_while_others_are_typed(listener: Listener, input_: Input) -> None:
    input_.perform(KeyDown("f20"))
    pressed = listener.events()[0]
    input_.perform(Typing("".join(map(chr, range(0x4E00, 0x4E00 + 300)))))
    listener.events()
    input_.perform(KeyUp("f20"))
    released = listener.events()[-1]
    assert (released.type, released.detail) == (X.KeyRelease, pressed.detail)


def test_typing_does_not_leave_key_repeat_off(display: Display, input_: Input) -> None:
    assert display.get_keyboard_control().global_auto_repeat == 1
    input_.perform(Typing("abc"))
    assert display.get_keyboard_control().global_auto_repeat == 1


def test_release_all_releases_what_anybody_left_down(display: Display, input_: Input) -> None:
    xtest.fake_input(display, X.KeyPress, 38)
    xtest.fake_input(display, X.ButtonPress, 1)
    display.sync()
    input_.perform(KeyDown("ctrl"))
    input_.perform(MouseDown("right"))
    root = display.screen().root
    assert root.query_pointer().mask & (X.Button1Mask | X.Button3Mask | X.ControlMask)
    input_.release_all()
    wait_until(lambda: not any(display.query_keymap()), "no key is down")
    wait_until(lambda: root.query_pointer().mask == 0, "no button is down")


def test_the_pointer_goes_where_it_is_sent(input_: Input) -> None:
    input_.perform(MoveTo(123, 456))
    assert input_.pointer() == (123, 456)
    input_.perform(MoveTo(1919, 1079))
    assert input_.pointer() == (1919, 1079)


def test_buttons_and_wheel(listener: Listener, input_: Input) -> None:
    input_.perform(Click(x=10, y=20))
    input_.perform(RightClick())
    input_.perform(DoubleClick(30, 40))
    input_.perform(Click("middle"))
    clicks = [(e.detail, e.event_x, e.event_y) for e in listener.events() if e.type == X.ButtonPress]
    assert clicks == [(1, 10, 20), (3, 10, 20), (1, 30, 40), (1, 30, 40), (2, 30, 40)]
    for turn in (Scroll(dy=2), Scroll(dy=-1), Scroll(dx=1), Scroll(dx=-2)):
        input_.perform(turn)
    assert [e.detail for e in listener.events() if e.type == X.ButtonPress] == [4, 4, 5, 7, 6, 6]
    input_.perform(MouseDown())
    input_.perform(MouseUp())
    assert [e.type for e in listener.events()] == [X.ButtonPress, X.ButtonRelease]


@pytest.mark.usefixtures("busy")
def test_text_after_a_click_goes_to_the_window_clicked(xsession: XSession, display: Display, input_: Input) -> None:
    outs = [
        _terminal(xsession, display, "one", "80x20+50+50"),
        _terminal(xsession, display, "two", "80x20+900+500"),
    ]
    points = [(200, 150), (1100, 600)]
    expected = ["", ""]
    for n in range(40):
        input_.perform(Click(x=points[n % 2][0], y=points[n % 2][1]))
        input_.perform(Typing(f"[{n}]"))
        expected[n % 2] += f"[{n}]"
    wait_until(lambda: [out.read_text() for out in outs] == expected, "each window has its own text")


def test_a_window_manager_survives_questions_that_it_answers_late(
    xsession: XSession, display: Display, input_: Input
) -> None:
    _terminal(xsession, display, "one")
    (manager,) = (child for child in xsession.children if psutil.Process(child.pid).name() == "openbox")
    for _ in range(50):
        os.kill(manager.pid, signal.SIGSTOP)
        assert not input_.is_read(0.001)
        os.kill(manager.pid, signal.SIGCONT)
        assert input_.is_read(60.0)
    assert manager.poll() is None


HOLDING = {
    "a hotkey": [Hotkey(("alt", "tab"))],
    "a key while Alt is down": [KeyDown("alt"), Press("tab"), KeyUp("alt")],
    "each key by itself": [KeyDown("alt"), KeyDown("tab"), KeyUp("tab"), KeyUp("alt")],
}


@pytest.mark.parametrize("actions", HOLDING.values(), ids=HOLDING)
def test_a_window_manager_that_is_late_still_sees_the_keys_held(
    xsession: XSession, display: Display, input_: Input, actions: list[ComputerAction]
) -> None:
    """Else its switcher stays open, and takes the keys that are meant for the window."""
    one = _terminal(xsession, display, "one")
    _terminal(xsession, display, "two", "80x20+600+50")
    (manager,) = (child for child in xsession.children if psutil.Process(child.pid).name() == "openbox")
    os.kill(manager.pid, signal.SIGSTOP)
    later = threading.Timer(0.5, os.kill, (manager.pid, signal.SIGCONT))
    later.start()
    for each in actions:
        input_.perform(each)
    later.join()
    wait_until(lambda: (w := windows.find(display, "one", strict=True)) and w.active, "the other window is active")
    input_.perform(Typing("here"))
    wait_until(lambda: one.read_text() == "here", "the text arrives there")


def test_double_click_selects_a_word(editor: Editor) -> None:
    editor.input.perform(Typing("hello\n" * 40))
    editor.input.perform(Hotkey(("ctrl", "home")))
    editor.saved("hello\n" * 40)
    editor.input.perform(DoubleClick(*editor.inside(0.03, 0.5)))
    editor.input.perform(Typing("bye"))
    editor.input.perform(Hotkey(("ctrl", "s")))
    text = wait_until(lambda: (t := editor.file.read_text()) and "bye" in t and t, "a word was replaced")
    assert sorted(text.split()) == ["bye"] + ["hello"] * 39


def test_a_drag_selects_text(editor: Editor) -> None:
    editor.input.perform(Typing("hello\n" * 40))
    editor.input.perform(Hotkey(("ctrl", "home")))
    editor.saved("hello\n" * 40)
    editor.input.perform(MoveTo(*editor.inside(0.03, 0.25)))
    editor.input.perform(DragTo(*editor.inside(0.03, 0.5)))
    editor.input.perform(Typing("X"))
    editor.input.perform(Hotkey(("ctrl", "s")))
    text = wait_until(lambda: (t := editor.file.read_text()) and "X" in t and t, "a selection was replaced")
    assert 1 < text.count("hello") < 38


def test_a_dead_server_is_a_lost_desktop(xsession: XSession, input_: Input) -> None:
    server = xsession.children[0]
    server.kill()
    server.wait()
    with pytest.raises(DesktopLost, match="closed the connection"):
        input_.perform(Click(x=1, y=1))
