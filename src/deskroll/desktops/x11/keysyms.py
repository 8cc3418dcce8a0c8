"""X's numbers for keys and characters (keysyms).

Owns the table from canonical key names to keysyms, and the rule from a character to its keysym. Every name in
`KEYS` has an entry; every character that a key can carry has a keysym, every other one is an `ActionError`.
"""

from __future__ import annotations

import unicodedata

from Xlib import XK

from deskroll.actions.keys import KEYSYMS
from deskroll.errors import ActionError

RETURN, TAB, BACKSPACE = 0xFF0D, 0xFF09, 0xFF08
SHIFT_LEFT, ALT_GR = 0xFFE1, 0xFE03


def _keysym(name: str) -> int:
    # python-xlib writes XF86_AudioMute for what X calls XF86AudioMute.
    return XK.string_to_keysym(name.replace("XF86", "XF86_"))


XK.load_keysym_group("xf86")
NAMED: dict[str, tuple[int, ...]] = {name: (_keysym(keysym),) for name, keysym in KEYSYMS.items()}
NAMED["altright"] += (ALT_GR,)  # on the layouts that have it
"""The keysyms of each canonical key name, best first."""

_ALL_NAMED = frozenset(keysym for alternatives in NAMED.values() for keysym in alternatives)
_CONTROLS = {"\n": RETURN, "\t": TAB, "\b": BACKSPACE}


def of_character(character: str) -> int | None:
    """Return the keysym of a character, or None where no key can carry it."""
    if (control := _CONTROLS.get(character)) is not None:
        return control
    if unicodedata.category(character) in ("Cc", "Cs"):
        return None
    code = ord(character)
    return code if code < 0x100 else 0x01000000 | code


def of_text(text: str) -> list[int]:
    """Return the keysym of each character, or raise `ActionError` for the first that no key can carry."""
    keysyms = []
    for position, character in enumerate(text):
        keysym = of_character(character)
        if keysym is None:
            raise ActionError(
                f"TYPING.text[{position}] is {character!r} (U+{ord(character):04X}), which no key can type: "
                "nothing was typed; allowed: every character but lone surrogates and control characters "
                "(newline, tab and backspace are allowed). Press a key such as escape by its name"
            )
        keysyms.append(keysym)
    return keysyms


def is_vendor(keysym: int) -> bool:
    """Whether it belongs to a multimedia or laptop key (XF86…)."""
    return 0x1008FE20 <= keysym <= 0x1008FFFF or 0x10081000 <= keysym <= 0x10081FFF


def is_dispensable(keysym: int) -> bool:
    """Whether it belongs to a key that no program here waits for and nobody can press but us.

    Those are the multimedia and laptop keys (XF86…), Sun's extra keys, and the keys that switch Japanese and
    Korean input methods, except the ones that have a name in `NAMED`.
    """
    return keysym not in _ALL_NAMED and (
        is_vendor(keysym)
        or 0x1005FF00 <= keysym <= 0x1005FFFF  # SunProps, SunFront
        or keysym in (0xFF0A, 0xFF65, 0xFF66, 0xFF68, 0xFF69)  # Linefeed, Undo, Redo, Find, Cancel
        or 0xFF21 <= keysym <= 0xFF3F  # Kanji to Hangul_Special
    )


def is_character(keysym: int) -> bool:
    """Whether it prints something, rather than doing something."""
    return 0x20 <= keysym < 0xFE00 or 0x01000100 <= keysym <= 0x0110FFFF
