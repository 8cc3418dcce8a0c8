"""Reads JSON files within bounds, and finds values in them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from deskroll.envs.osworld.evaluate.native.values import File, Unreadable

_MOST = 64 * 1024 * 1024


def json_of(file: File) -> object:
    """What a file holds, as Python's own reader takes it."""
    if len(file.data) > _MOST:
        raise Unreadable(f"{file.name} has more than {_MOST} bytes")
    try:
        found: object = json.loads(file.text())
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{file.name} is no JSON: {error}") from None
    return found


def value_at(value: object, path: Sequence[object], default: object = None) -> object:
    """The value at a path of names and numbers; the default where there is none."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step) if isinstance(step, str) else None
        elif isinstance(value, list) and type(step) is int:
            value = value[step] if -len(value) <= step < len(value) else None
        else:
            return default
    return default if value is None else value
