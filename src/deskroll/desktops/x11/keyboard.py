"""Keys and text on one X display, through XTEST.

Guarantees: text arrives as it was given, whatever Shift, AltGr, Caps Lock or layout group is in force, and
those are as before afterwards (Ctrl, Alt and Win stay held: a chord is what their holder wants). Keys that
may be the window manager's (Alt+Tab) are held until it has read them, unless it hangs. A key that a call
pressed and meant to release is released even when something fails. Text that cannot be typed is refused
before its first character.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from Xlib import X
from Xlib.display import Display
from Xlib.ext import xtest

from deskroll.actions import canonical_key
from deskroll.desktops.x11 import keysyms
from deskroll.desktops.x11.keymap import Keymap, Stroke
from deskroll.desktops.x11.readers import Readers
from deskroll.desktops.x11.xkb import Locks, Xkb
from deskroll.errors import ActionError, DesktopError

_LEVEL_MODIFIERS = (X.ShiftMapIndex, X.Mod5MapIndex)
"""The modifiers that choose among a key's characters: Shift, and AltGr on the layouts that have it."""
_MANAGERS_MASK = X.Mod1Mask | X.Mod4Mask
"""The modifiers that keys of window managers have: Alt and Win."""


class Keyboard:
    """The keyboard of one display."""

    def __init__(self, display: Display, readers: Readers) -> None:
        self._display = display
        self._readers = readers
        self._keymap = Keymap(display, readers)
        self._xkb = Xkb(display)

    def type(self, text: str) -> None:
        """Type `text`; newline, tab and backspace are keys, every other character is itself."""
        symbols = keysyms.of_text(text)
        self._keymap.refresh()
        with self._no_repeat(), self._plain_state():
            start = 0
            while start < len(symbols):
                held = self.held()
                part = self._fitting(symbols[start:], self._keymap.capacity - len(held))
                start += len(part)
                self._keymap.give(part, held)
                before = self._readers.focused()
                self._send_text(part)
                self._display.sync()
                self._keymap.sent(part, {before, self._readers.focused()})

    def down(self, name: str) -> None:
        """Press a key and keep it down."""
        for stroke in self._resolve([name]):
            self._press(stroke)

    def up(self, name: str) -> None:
        """Release a key; nothing happens where it is not down."""
        self._let_manager_read()
        self._keymap.refresh()
        for keysym in _keysyms_of(name):
            if (stroke := self._keymap.stroke(keysym)) is not None:
                self._release([stroke.keycode])
                return

    def chord(self, *names: str) -> None:
        """Press keys in order and release them in reverse, always."""
        strokes = self._resolve(names)
        with self._no_repeat():
            pressed: list[int] = []
            try:
                for stroke in strokes:
                    pressed.append(stroke.keycode)
                    self._press(stroke)
                self._let_manager_read()
            finally:
                self._release(reversed(pressed))

    def held(self) -> list[int]:
        """The keycodes that are down now, whoever pressed them."""
        bits = self._display.query_keymap()
        return [8 * n + bit for n, byte in enumerate(bits) for bit in range(8) if byte >> bit & 1]

    def release_all(self) -> None:
        """Release every key that is down, whoever pressed it."""
        self._release(self.held())

    def _fitting(self, symbols: Sequence[int], room: int) -> Sequence[int]:
        """As much of the text's beginning as needs no more than `room` spare keys (of none, one symbol at least)."""
        lacking: set[int] = set()
        for number, symbol in enumerate(symbols):
            if not self._keymap.on_layout(symbol) and symbol not in lacking:
                if len(lacking) >= max(room, 1):
                    return symbols[:number]
                lacking.add(symbol)
        return symbols

    def _send_text(self, symbols: Sequence[int]) -> None:
        shift = self._shift_keycode()
        shifted = False
        try:
            for symbol in symbols:
                stroke = self._keymap.stroke(symbol)
                assert stroke is not None  # noqa: S101 - `give` has seen to it
                if stroke.shift != shifted:
                    self._fake(X.KeyPress if stroke.shift else X.KeyRelease, shift)
                    shifted = stroke.shift
                self._fake(X.KeyPress, stroke.keycode)
                self._fake(X.KeyRelease, stroke.keycode)
        finally:
            if shifted:
                self._fake(X.KeyRelease, shift)

    def _resolve(self, names: Sequence[str]) -> list[Stroke]:
        """Find the keys of `names` before any is pressed, giving spare ones to what the layout lacks."""
        self._keymap.refresh()
        found = [_first(self._keymap, _keysyms_of(name)) for name in names]
        lacking = [keysym for keysym in found if not self._keymap.on_layout(keysym)]
        if lacking:
            self._keymap.give(lacking, self.held())
            self._keymap.sent(lacking, {self._readers.focused()})
        strokes = [self._keymap.stroke(keysym) for keysym in found]
        return [stroke for stroke in strokes if stroke is not None]

    def _press(self, stroke: Stroke) -> None:
        """Press a key; Shift is held around the press of a shifted character only, as pyautogui does."""
        shift = self._shift_keycode()
        add_shift = stroke.shift and shift not in self.held()
        if add_shift:
            self._fake(X.KeyPress, shift)
        try:
            self._fake(X.KeyPress, stroke.keycode)
        finally:
            if add_shift:
                self._fake(X.KeyRelease, shift)

    def _release(self, keycodes: Iterator[int] | Sequence[int]) -> None:
        for keycode in keycodes:
            self._fake(X.KeyRelease, keycode)
        self._display.sync()

    def _let_manager_read(self) -> None:
        """Before a release, where Alt or Win is down: let the window manager take hold of the keyboard.

        It does when it reads the press. If Alt were up by then, it would never be told, and wait for that with its
        switcher open, and with all keys that follow.
        """
        if self._display.screen().root.query_pointer().mask & _MANAGERS_MASK:
            self._readers.wait_for_manager()

    def _shift_keycode(self) -> int:
        stroke = self._keymap.stroke(keysyms.SHIFT_LEFT)
        if stroke is None:
            raise DesktopError("the keyboard layout has no left Shift key, so no capital can be typed")
        return stroke.keycode

    @contextmanager
    def _plain_state(self) -> Iterator[None]:
        """Nothing that chooses among a key's characters is held or locked inside the block."""
        locks = self._xkb.locks()
        modifiers = self._display.get_modifier_mapping()
        level_keys = {keycode for index in _LEVEL_MODIFIERS for keycode in modifiers[index]}
        lifted = [keycode for keycode in self.held() if keycode in level_keys]
        for keycode in lifted:
            self._fake(X.KeyRelease, keycode)
        if locks != Locks():
            self._xkb.set_locks(Locks())
        try:
            yield
        finally:
            if locks != Locks():
                self._xkb.set_locks(locks)
            for keycode in lifted:
                self._fake(X.KeyPress, keycode)
            self._display.sync()

    @contextmanager
    def _no_repeat(self) -> Iterator[None]:
        """No key repeats inside the block, however late its release is processed on a busy machine."""
        was_on = self._display.get_keyboard_control().global_auto_repeat == X.AutoRepeatModeOn
        if was_on:
            self._display.change_keyboard_control(auto_repeat_mode=X.AutoRepeatModeOff)
        try:
            yield
        finally:
            if was_on:
                self._display.change_keyboard_control(auto_repeat_mode=X.AutoRepeatModeOn)
                self._display.sync()

    def _fake(self, kind: int, keycode: int) -> None:
        xtest.fake_input(self._display, kind, keycode)


def _keysyms_of(name: str) -> tuple[int, ...]:
    key = canonical_key(name)
    if key in keysyms.NAMED:
        return keysyms.NAMED[key]
    keysym = keysyms.of_character(key)
    if keysym is None:
        raise ActionError(f"key is {name!r}, which no key can carry; press it by name")
    return (keysym,)


def _first(keymap: Keymap, alternatives: Sequence[int]) -> int:
    return next((keysym for keysym in alternatives if keymap.on_layout(keysym)), alternatives[0])
