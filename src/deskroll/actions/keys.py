"""Names of keys: one canonical name each (pyautogui's, as in OSWorld), and the aliases that models write.

A key is one printable character, or one of `KEYS`. `canonical_key` is the only place that decides; `chord` reads keys
that are joined by +. `KEYSYMS` says what X calls each named key; those names are aliases too, so xdotool's spelling is
understood everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from deskroll.actions.fields import near, shown
from deskroll.errors import ActionError

KEYSYMS: Mapping[str, str] = MappingProxyType({
    "enter": "Return", "tab": "Tab", "space": "space", "backspace": "BackSpace", "delete": "Delete",
    "escape": "Escape", "up": "Up", "down": "Down", "left": "Left", "right": "Right",
    "home": "Home", "end": "End", "pageup": "Page_Up", "pagedown": "Page_Down", "insert": "Insert",
    "shift": "Shift_L", "shiftleft": "Shift_L", "shiftright": "Shift_R",
    "ctrl": "Control_L", "ctrlleft": "Control_L", "ctrlright": "Control_R",
    "alt": "Alt_L", "altleft": "Alt_L", "altright": "Alt_R",
    "win": "Super_L", "winleft": "Super_L", "winright": "Super_R",
    "capslock": "Caps_Lock", "numlock": "Num_Lock", "scrolllock": "Scroll_Lock",
    "printscreen": "Print", "pause": "Pause", "menu": "Menu",
    "add": "KP_Add", "subtract": "KP_Subtract", "multiply": "KP_Multiply", "divide": "KP_Divide",
    "decimal": "KP_Decimal", "separator": "KP_Separator",
    "volumeup": "XF86AudioRaiseVolume", "volumedown": "XF86AudioLowerVolume", "volumemute": "XF86AudioMute",
    "playpause": "XF86AudioPlay", "nexttrack": "XF86AudioNext", "prevtrack": "XF86AudioPrev",
    "stop": "XF86AudioStop", "browserback": "XF86Back", "browserforward": "XF86Forward",
    "browserrefresh": "XF86Refresh", "browserhome": "XF86HomePage", "browsersearch": "XF86Search",
    "help": "Help", "select": "Select", "execute": "Execute", "clear": "Clear",
    **{f"f{n}": f"F{n}" for n in range(1, 25)}, **{f"num{n}": f"KP_{n}" for n in range(10)},
})  # fmt: skip
"""What X calls each named key (as xdotool and X's own headers spell it)."""

KEYS: frozenset[str] = frozenset(KEYSYMS)
"""The canonical names of the keys that are no single character."""

_ALIASES: dict[str, str] = {
    **{keysym.lower(): name for name, keysym in KEYSYMS.items()},
    "kp_enter": "enter", "\n": "enter", "\r": "enter", "\t": "tab", " ": "space",
    "esc": "escape", "del": "delete", "bksp": "backspace", "back": "backspace", "ins": "insert",
    "pgup": "pageup", "prior": "pageup", "pgdn": "pagedown", "next": "pagedown",
    "arrowup": "up", "arrowdown": "down", "arrowleft": "left", "arrowright": "right",
    "control": "ctrl", "control_l": "ctrlleft", "ctrl_l": "ctrlleft", "ctrl_r": "ctrlright",
    "shift_l": "shiftleft", "alt_l": "altleft",
    "option": "alt", "optionleft": "altleft", "optionright": "altright",
    "super": "win", "super_l": "winleft", "meta": "win", "cmd": "win", "command": "win", "windows": "win",
    "prntscrn": "printscreen", "prtsc": "printscreen", "prtscr": "printscreen", "print_screen": "printscreen",
    "apps": "menu",
    "plus": "+", "minus": "-", "equal": "=", "comma": ",", "period": ".", "slash": "/", "backslash": "\\",
    "semicolon": ";", "apostrophe": "'", "grave": "`", "bracketleft": "[", "bracketright": "]",
    "underscore": "_", "asterisk": "*", "question": "?", "exclam": "!", "at": "@", "numbersign": "#",
    "dollar": "$", "percent": "%", "asciicircum": "^", "ampersand": "&", "parenleft": "(",
    "parenright": ")", "colon": ":", "less": "<", "greater": ">", "bar": "|", "braceleft": "{",
    "braceright": "}", "asciitilde": "~", "quotedbl": '"',
}  # fmt: skip

_CHORD = re.compile(r"(?:\+|[^+]+)(?:\+(?:\+|[^+]+))*")
_KEY = re.compile(r"(\+|[^+]+)(?:\+|$)")
_DASHED = re.compile(r"(?i)(?P<held>(?:(?:ctrl|control|shift|alt|option|win|super|meta|cmd|command)-)+)(?P<last>[^+]+)")
"""Keys to be held, and one more: only behind those does a dash join."""


def canonical_key(name: str, field: str = "key") -> str:
    """Return the canonical name of a key, or raise `ActionError` with the nearest names that exist."""
    if len(name) == 1 and name.isprintable() and name != " ":
        return name
    lowered = name.lower()
    known = _ALIASES.get(lowered, lowered)
    # A lone character that gets here without an alias is a control character or a surrogate: no key.
    if known in KEYS or lowered in _ALIASES:
        return known
    raise ActionError(
        f"{field} is {shown(name)}, which is not a key; {near(lowered, [*KEYS, *_ALIASES])}"
        f"allowed: one printable character, or one of {' '.join(sorted(KEYS))}"
    )


def chord(text: str, field: str = "key") -> tuple[str, ...]:
    """Read keys joined by +, which may itself be one of them (`ctrl+shift+t`, `ctrl++`, `a`), or by -: `ctrl-s`."""
    if dashed := _DASHED.fullmatch(text.strip()):
        return tuple(canonical_key(key, field) for key in (*filter(None, dashed["held"].split("-")), dashed["last"]))
    if not _CHORD.fullmatch(text):
        raise ActionError(f"{field} is {shown(text)}; allowed: keys joined by +, as in ctrl+shift+t or ctrl++")
    return tuple(canonical_key(key.strip() or key, field) for key in _KEY.findall(text))
