"""Which key makes which keysym: the layout's own keys, and spare keys that are given away to what it lacks.

Guarantees: a key whose press a program may not have read yet does not change its meaning. Programs read the
keymap when they get to a key event, not when the key was pressed: were a spare key given a second character
while a press for its first one still waits in a program's queue, the program would see the second one twice.
So a spare keeps its character as long as possible (they are given in a ring; text that repeats costs nothing),
and before one is taken away `Readers` waits until everybody to whom it was sent has read it, or hangs. The
other way round needs no waiting: the notice of a change is queued ahead of the presses.

A change is one request for a whole range of keys, since each request makes every program read the keymap anew
and a window manager may take long over it: openbox grabs all its keys again, unless `rebindOnMappingNotify` in
its configuration says no.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence

import msgspec
from Xlib import X, Xatom
from Xlib.display import Display

from deskroll.desktops.x11 import keysyms
from deskroll.desktops.x11.readers import Readers
from deskroll.errors import DesktopError

_LONG_RANGE = 16
"""Spare keys that make a range worth using."""


class Stroke(msgspec.Struct, frozen=True):
    """How one keysym is made."""

    keycode: int
    shift: bool = False


class Keymap:
    """The keys of one display. One instance a display: two would give the same spare away twice."""

    def __init__(self, display: Display, readers: Readers) -> None:
        self._display = display
        self._readers = readers
        self._first = display.display.info.min_keycode
        self._count = display.display.info.max_keycode - self._first + 1
        self._rows: Sequence[Sequence[int]] = display.get_keyboard_mapping(self._first, self._count)
        self._marker = display.intern_atom("_DESKROLL_SPARE_KEYCODES")
        self._given: dict[int, int] = {}  # keysym -> spare keycode
        self._unread: dict[int, set[int]] = {}  # spare keycode -> windows that may not have read it
        self._sent_at = 0.0
        self._modifiers = self._read_modifiers()
        self._spares = self._claim_spares()
        self._next = 0  # where in the ring of spares the next one is taken
        self._layout = self._read_layout()

    @property
    def capacity(self) -> int:
        """How many keysyms beyond the layout can be had at once."""
        return len(self._spares)

    def refresh(self) -> None:
        """Take in what another program has changed in the layout since."""
        rows = self._display.get_keyboard_mapping(self._first, self._count)
        if rows == self._rows:
            return
        self._rows = rows
        self._modifiers = self._read_modifiers()
        self._layout = self._read_layout()
        # A spare whose meaning somebody else has changed is no longer ours to rely on.
        self._given = {s: k for s, k in self._given.items() if self._row(k)[0] == s}

    def stroke(self, keysym: int) -> Stroke | None:
        """How `keysym` is made now; None where no key has it (see `give`)."""
        if (stroke := self._layout.get(keysym)) is not None:
            return stroke
        keycode = self._given.get(keysym)
        return None if keycode is None else Stroke(keycode)

    def on_layout(self, keysym: int) -> bool:
        """Whether the layout itself has it."""
        return keysym in self._layout

    def give(self, wanted: Collection[int], held: Collection[int] = ()) -> None:
        """Give what of `wanted` the layout lacks a spare key each; `held` keycodes are not taken away."""
        lacking = [keysym for keysym in dict.fromkeys(wanted) if keysym not in self._layout]
        missing = [keysym for keysym in lacking if keysym not in self._given]
        if not missing:
            return
        keep = set(held) | {self._given[keysym] for keysym in lacking if keysym in self._given}
        taken = self._take(len(missing), keep)
        self._wait_read(taken)
        self._bind(dict(zip(taken, missing, strict=True)))

    def sent(self, used: Iterable[int], windows: Iterable[int]) -> None:
        """Note that presses of `used` keysyms were just sent to `windows`."""
        listeners = set(windows)
        for keysym in used:
            if (keycode := self._given.get(keysym)) is not None:
                self._unread.setdefault(keycode, set()).update(listeners)
        self._sent_at = time.monotonic()

    def _take(self, number: int, keep: Collection[int]) -> list[int]:
        """Choose keycodes to give away: those that were given longest ago, next to each other."""
        ring = [*self._spares[self._next :], *self._spares[: self._next]]
        taken = [keycode for keycode in ring if keycode not in keep][:number]
        if len(taken) < number:
            raise DesktopError(
                f"{number} keys are not on the keyboard layout and only {len(taken)} of {self.capacity} "
                "spare keycodes can be given to them; release the keys that are held down"
            )
        self._next = (self._spares.index(taken[-1]) + 1) % len(self._spares)
        return sorted(taken)

    def _wait_read(self, keycodes: Iterable[int]) -> None:
        windows = set[int]().union(*(self._unread.get(keycode, ()) for keycode in keycodes))
        if not windows:
            return
        self._readers.wait(windows, self._sent_at)
        for keycode in list(self._unread):
            self._unread[keycode] -= windows
            if not self._unread[keycode]:
                del self._unread[keycode]

    def _bind(self, meaning: dict[int, int]) -> None:
        self._given = {s: k for s, k in self._given.items() if k not in meaning}
        for first, last in self._ranges(sorted(meaning)):
            rows = [self._new_row(keycode, meaning.get(keycode)) for keycode in range(first, last + 1)]
            self._display.change_keyboard_mapping(first, rows)
        self._given.update({keysym: keycode for keycode, keysym in meaning.items()})
        self._display.sync()
        self.refresh()

    def _new_row(self, keycode: int, keysym: int | None) -> Sequence[int]:
        if keysym is None:
            return self._row(keycode)[:2]
        # The same with and without Shift: a spare means one thing whatever is held or locked.
        return [keysym, keysym]

    def _ranges(self, keycodes: Iterable[int]) -> list[tuple[int, int]]:
        """Cover ascending keycodes with few ranges; what lies between can be written again as it is."""
        ranges: list[tuple[int, int]] = []
        for keycode in keycodes:
            if ranges and all(map(self._is_rewritable, range(ranges[-1][1] + 1, keycode))):
                ranges[-1] = (ranges[-1][0], keycode)
            else:
                ranges.append((keycode, keycode))
        return ranges

    def _is_rewritable(self, keycode: int) -> bool:
        """Whether the first two columns say all about a key: it has one meaning, or is a multimedia key."""
        row = self._row(keycode)
        if keycode in self._modifiers:
            return False
        used = {keysym for keysym in row if keysym != X.NoSymbol}
        return used <= {row[0]} or all(map(keysyms.is_vendor, used))

    def _row(self, keycode: int) -> Sequence[int]:
        return self._rows[keycode - self._first]

    def _claim_spares(self) -> list[int]:
        """Find the keycodes that nobody misses, and note them on the root window for our next connection."""
        root = self._display.screen().root
        earlier = root.get_full_property(self._marker, Xatom.CARDINAL)
        if earlier is not None:
            claimed = [int(keycode) for keycode in earlier.value]
            # What an earlier connection sent through them may still be unread, by whom is not known any more.
            self._unread = {keycode: {self._readers.focused()} for keycode in claimed}
            self._sent_at = time.monotonic()
            return claimed
        spares = [
            keycode
            for keycode, row in enumerate(self._rows, self._first)
            if keycode not in self._modifiers and all(k == X.NoSymbol or keysyms.is_dispensable(k) for k in row)
        ]
        # Few long ranges serve better than many keys: see above, each range is a request.
        ranges = [[k for k in spares if first <= k <= last] for first, last in self._ranges(spares)]
        longest = [keycode for inside in ranges if len(inside) >= _LONG_RANGE for keycode in inside]
        chosen = longest or spares
        root.change_property(self._marker, Xatom.CARDINAL, 32, chosen)
        return chosen

    def _read_modifiers(self) -> set[int]:
        return {keycode for row in self._display.get_modifier_mapping() for keycode in row}

    def _read_layout(self) -> dict[int, Stroke]:
        layout: dict[int, Stroke] = {}
        spares = set(self._spares)
        for keycode, row in enumerate(self._rows, self._first):
            if keycode in spares:
                continue
            plain, shifted = row[0], row[1]
            if plain != X.NoSymbol:
                layout.setdefault(plain, Stroke(keycode))
            # Shift reaches the second column for characters only: on the keypad it depends on Num Lock.
            if keysyms.is_character(shifted):
                layout.setdefault(shifted, Stroke(keycode, shift=True))
        return layout
