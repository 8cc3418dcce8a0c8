"""OSWorld's computer_13 notation: thirteen computer actions and the words WAIT, FAIL and DONE, as JSON.

Reads `{"action_type": "CLICK", "parameters": {"x": 1, "y": 2}}`, the same with the parameters beside
`action_type`, some of them there and some here, and the three words as bare strings; writes the first form. Case does
not matter. What stands in both places counts as it stands in `parameters`.

One addition: WAIT takes an optional `seconds`, so that every `Wait` survives the trip; OSWorld ignores it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

import msgspec

from deskroll import actions as act
from deskroll.actions import COMPUTER_ACTIONS, WORDS, Action, ComputerAction, fit
from deskroll.actions.fields import choice, given, integer, number, pixel, sequence, shown, text
from deskroll.actions.keys import canonical_key, chord
from deskroll.errors import ActionError

_KINDS: dict[str, type[ComputerAction | act.Wait | act.Fail | act.Done]] = {
    **{str(kind.__struct_config__.tag): kind for kind in COMPUTER_ACTIONS},
    **WORDS,
}
_PARAMETERS: dict[str, tuple[list[str], list[str]]] = {
    name: (
        [field.name for field in msgspec.structs.fields(kind) if field.required],
        [field.name for field in msgspec.structs.fields(kind) if not field.required],
    )
    for name, kind in _KINDS.items()
}
"""Each action's required and optional parameters: the fields of its record."""


def decode(raw: object, width: int, height: int) -> Action:
    """Read one action, made to fit the screen; `ActionError` says which field is wrong and how."""
    if isinstance(raw, str):
        action: Action = WORDS[choice(raw, "a bare action", WORDS)]()
    elif isinstance(raw, Mapping):
        if "action_type" not in raw:
            raise ActionError(f"the action {shown(raw)} lacks action_type; allowed: {', '.join(_KINDS)}")
        kind = choice(raw["action_type"], "action_type", _KINDS)
        action = _build(kind, _parameters(kind, raw))
    else:
        raise ActionError(
            f"the action is {shown(raw)}; allowed: an object with action_type and parameters, "
            f"or one of the words {', '.join(WORDS)}"
        )
    return fit(action, width, height)


def encode(action: Action) -> dict[str, object]:
    """Write one action as an object with `action_type` and `parameters`."""
    if isinstance(action, act.Script | act.ToolCall | act.Answer):
        raise ActionError(f"computer_13 has no word for {action.__struct_config__.tag}")
    kind = str(action.__struct_config__.tag)
    fields = {name: getattr(action, name) for name in action.__struct_fields__}
    # Defaults are written out: OSWorld refuses some partial sets, such as num_clicks without button.
    return {
        "action_type": kind,
        "parameters": {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in fields.items()
            if value is not None
        },
    }


def _parameters(kind: str, raw: Mapping[str, object]) -> Mapping[str, object]:
    beside = {name: value for name, value in raw.items() if name != "action_type"}
    nested = beside.pop("parameters", None)
    if nested is None:
        return beside
    if not isinstance(nested, Mapping):
        raise ActionError(f"{kind}.parameters is {shown(nested)}; allowed: an object")
    return {**beside, **nested}


def _build(kind: str, parameters: Mapping[str, object]) -> Action:
    there = given(parameters, kind, *_PARAMETERS[kind])
    if _KINDS[kind] is act.Scroll and not there:
        raise ActionError(f"{kind} lacks dx and dy; give at least one of them, in wheel clicks")
    values: dict[str, Any] = {name: _READERS[name](value, f"{kind}.{name}") for name, value in there.items()}
    return _KINDS[kind](**values)


def _keys(value: object, field: str) -> tuple[str, ...]:
    names = sequence(value, field, "a list of keys, e.g. ['ctrl', 's']")
    return tuple(key for n, name in enumerate(names) for key in chord(text(name, f"{field}[{n}]"), f"{field}[{n}]"))


# A parameter's name says how it is read, whichever action it belongs to.
_READERS: dict[str, Callable[[object, str], object]] = {
    "x": pixel,
    "y": pixel,
    "button": lambda value, field: choice(value, field, get_args(act.Button)),
    "num_clicks": integer,
    "dx": integer,
    "dy": integer,
    "text": text,
    "key": lambda value, field: canonical_key(text(value, field), field),
    "keys": _keys,
    "seconds": number,
}
