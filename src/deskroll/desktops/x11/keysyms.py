"""X's numbers for keys and characters (keysyms).

Owns the table from canonical key names to keysyms, and the rule from a character to its keysym. Every name in
`KEYS` has an entry; every character that a key can carry has a keysym, every other one is an `ActionError`.
"""

from __future__ import annotations

import unicodedata

from deskroll.errors import ActionError

RETURN, TAB, BACKSPACE = 0xFF0D, 0xFF09, 0xFF08
SHIFT_LEFT = 0xFFE1

NAMED: dict[str, tuple[int, ...]] = {
    "enter": (RETURN,), "tab": (TAB,), "space": (0x20,), "backspace": (BACKSPACE,), "delete": (0xFFFF,),
    "escape": (0xFF1B,), "up": (0xFF52,), "down": (0xFF54,), "left": (0xFF51,), "right": (0xFF53,),
    "home": (0xFF50,), "end": (0xFF57,), "pageup": (0xFF55,), "pagedown": (0xFF56,), "insert": (0xFF63,),
    "shift": (SHIFT_LEFT,), "shiftleft": (SHIFT_LEFT,), "shiftright": (0xFFE2,),
    "ctrl": (0xFFE3,), "ctrlleft": (0xFFE3,), "ctrlright": (0xFFE4,),
    "alt": (0xFFE9,), "altleft": (0xFFE9,), "altright": (0xFFEA, 0xFE03),  # or ISO_Level3_Shift: AltGr
    "win": (0xFFEB,), "winleft": (0xFFEB,), "winright": (0xFFEC,),
    "capslock": (0xFFE5,), "numlock": (0xFF7F,), "scrolllock": (0xFF14,), "printscreen": (0xFF61,),
    "pause": (0xFF13,), "menu": (0xFF67,), "help": (0xFF6A,), "select": (0xFF60,), "execute": (0xFF62,),
    "clear": (0xFF0B,),
    "add": (0xFFAB,), "subtract": (0xFFAD,), "multiply": (0xFFAA,), "divide": (0xFFAF,), "decimal": (0xFFAE,),
    "separator": (0xFFAC,),
    "volumeup": (0x1008FF13,), "volumedown": (0x1008FF11,), "volumemute": (0x1008FF12,),
    "playpause": (0x1008FF14,), "nexttrack": (0x1008FF17,), "prevtrack": (0x1008FF16,), "stop": (0x1008FF15,),
    "browserback": (0x1008FF26,), "browserforward": (0x1008FF27,), "browserrefresh": (0x1008FF29,),
    "browserhome": (0x1008FF18,), "browsersearch": (0x1008FF1B,),
    **{f"f{n}": (0xFFBE + n - 1,) for n in range(1, 25)},
    **{f"num{n}": (0xFFB0 + n,) for n in range(10)},
}  # fmt: skip
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
