"""What a run was made with: its own settings, and those of its jobs' specs where a runtime keeps them apart."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from deskroll.errors import StoreError
from deskroll.store import Run, paths

_log = logging.getLogger(__name__)
_NAMED = ("env", "agent", "model")


class _Note(msgspec.Struct, frozen=True):
    """What the file of a spec holds of it."""

    spec: dict[str, Any]


def made_of(run: Run) -> Mapping[str, Any]:
    """The settings of a run; of several specs what they agree on, and how many there are where they do not."""
    specs = _specs(run)
    if len(specs) < 2:
        return {**run.info.config, **(specs[0] if specs else {})}
    first, *others = specs
    agreed = {name: value for name, value in first.items() if all(each.get(name) == value for each in others)}
    several = {name: _agreed_name(name, specs) or f"{len(specs)} specs" for name in _NAMED}
    return {**run.info.config, **several, **agreed}


def model_name(settings: Mapping[str, Any]) -> str:
    """What the model of these settings is called; empty where they name none."""
    model = settings.get("model")
    return str(model.get("name", "") if isinstance(model, Mapping) else model or "")


def _agreed_name(name: str, specs: Sequence[Mapping[str, Any]]) -> str:
    names = {model_name(each) if name == "model" else str(each.get(name, "")) for each in specs}
    return names.pop() if len(names) == 1 else ""


def _specs(run: Run) -> list[dict[str, Any]]:
    found = []
    for digest in dict.fromkeys(each.spec for each in run.index.planned if each.spec and each.samples):
        path = paths.spec_file(digest)
        try:
            found.append(msgspec.json.decode(run.storage.read(path), type=_Note).spec)
        except (StoreError, FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            _log.warning("%s: %s", run.storage.shown(path), error)  # its outcomes can be told without it
    return found
