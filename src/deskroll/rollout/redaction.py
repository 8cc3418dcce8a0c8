"""Keeps secrets out of what a run leaves behind: options are masked by their names, addresses by their queries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from yarl import URL

MASK = "**********"
_SECRET = re.compile(r"(?i)(^|_|-)(api_?key|key|token|secret|password|passwd|credential|sig(nature)?)s?($|_|-)")


def redacted(config: dict[str, Any]) -> dict[str, Any]:
    """Settings with every value masked whose name says that it is a secret."""
    return {name: _value(name, value) for name, value in config.items()}


def without_masked(config: dict[str, Any]) -> dict[str, Any]:
    """Settings without what was masked: it has to be given again."""
    return {
        name: without_masked(value) if isinstance(value, dict) else value
        for name, value in config.items()
        if not is_masked(value)
    }


def masked_settings(config: dict[str, Any], prefix: str = "") -> list[str]:
    """The names of settings that were masked, dotted."""
    names = []
    for name, value in config.items():
        if isinstance(value, dict):
            names += masked_settings(value, f"{prefix}{name}.")
        elif is_masked(value):
            names.append(f"{prefix}{name}")
    return names


def masked_command(command: Sequence[str]) -> list[str]:
    """A command line with every secret in it masked: `name=secret`, `--name=secret`, `--name secret`."""
    masked = []
    for before, argument in zip(["", *command], command, strict=False):
        name, assigned, _ = argument.rpartition("=")
        given = before.startswith("--") and "=" not in before and _SECRET.search(before[2:]) is not None
        secret = "api_key" in argument or (assigned and _SECRET.search(name.rpartition(".")[2]) is not None)
        masked.append(MASK if given or secret else argument)
    return masked


def is_masked(value: object) -> bool:
    """Whether something was taken out of it."""
    return isinstance(value, str) and MASK in value


def _value(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return redacted(value)
    if isinstance(value, str) and name == "base_url" and "?" in value:
        url = URL(value)
        # As text: yarl would write the mask's asterisks in another way.
        query = "&".join(f"{key}={MASK if _SECRET.search(key) else given}" for key, given in url.query.items())
        return f"{url.with_query(None)}?{query}"
    if isinstance(value, str) and value and _SECRET.search(name):
        return MASK
    return value
