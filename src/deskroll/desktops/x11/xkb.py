"""The two requests of the X keyboard extension (XKB) that typing needs and python-xlib lacks.

Owns reading and setting what is *locked* on the keyboard: Caps Lock, Num Lock, the layout group. Setting it
so sends no key event to any program, where pressing the Caps Lock key would.
"""

from __future__ import annotations

import msgspec
from Xlib.display import Display
from Xlib.protocol import rq

from deskroll.errors import DesktopError

_CORE_KEYBOARD = 0x0100
_ALL_MODIFIERS = 0xFF


class Locks(msgspec.Struct, frozen=True):
    """What stays in force without a key being held."""

    modifiers: int = 0
    """Locked modifiers, as a mask (`X.LockMask` is Caps Lock)."""
    latched: int = 0
    """Modifiers that hold for the next key only."""
    group: int = 0
    """The locked layout group, counted from 0."""


class _UseExtension(rq.ReplyRequest):
    _request = rq.Struct(rq.Card8("opcode"), rq.Opcode(0), rq.RequestLength(), rq.Card16("major"), rq.Card16("minor"))
    _reply = rq.Struct(
        rq.Pad(1), rq.Card8("supported"), rq.Card16("sequence_number"), rq.Pad(4),
        rq.Card16("major"), rq.Card16("minor"), rq.Pad(20),
    )  # fmt: skip


class _GetState(rq.ReplyRequest):
    _request = rq.Struct(rq.Card8("opcode"), rq.Opcode(4), rq.RequestLength(), rq.Card16("device"), rq.Pad(2))
    _reply = rq.Struct(
        rq.Pad(1), rq.Card8("device"), rq.Card16("sequence_number"), rq.Pad(4),
        rq.Card8("mods"), rq.Card8("base_mods"), rq.Card8("latched_mods"), rq.Card8("locked_mods"),
        rq.Card8("group"), rq.Card8("locked_group"), rq.Pad(18),
    )  # fmt: skip


class _LatchLockState(rq.Request):
    _request = rq.Struct(
        rq.Card8("opcode"), rq.Opcode(5), rq.RequestLength(), rq.Card16("device"),
        rq.Card8("affect_locks"), rq.Card8("locks"), rq.Card8("lock_group"), rq.Card8("group"),
        rq.Card8("affect_latches"), rq.Card8("latches"), rq.Pad(4),
    )  # fmt: skip


class Xkb:
    """The keyboard's locks on one display."""

    def __init__(self, display: Display) -> None:
        extension = display.query_extension("XKEYBOARD")
        if extension is None or not extension.present:
            raise DesktopError(
                f"the X server {display.get_display_name()} has no XKEYBOARD extension: start it without -kb"
            )
        self._display = display
        self._opcode = int(extension.major_opcode)
        # The server answers nothing else of this extension to a client that has not said this first.
        _UseExtension(display=display.display, opcode=self._opcode, major=1, minor=0)

    def locks(self) -> Locks:
        """What is locked and latched now."""
        state = _GetState(display=self._display.display, opcode=self._opcode, device=_CORE_KEYBOARD)
        return Locks(int(state.locked_mods), int(state.latched_mods), int(state.locked_group))

    def set_locks(self, locks: Locks) -> None:
        """Make `locks` hold; every later key event is seen under them."""
        _LatchLockState(
            display=self._display.display, opcode=self._opcode, device=_CORE_KEYBOARD,
            affect_locks=_ALL_MODIFIERS, locks=locks.modifiers, lock_group=1, group=locks.group,
            affect_latches=_ALL_MODIFIERS, latches=locks.latched,
        )  # fmt: skip
