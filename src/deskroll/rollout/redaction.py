"""Keeps secrets out of what a run leaves behind: values are masked by their names, addresses by their queries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

MASK = "**********"
_SECRET = re.compile(
    r"(?i)(^|_|-)(api_?key|key|token|secret|password|passwd|pwd|passphrase|credential|auth|authorization|bearer|cookie|jwt"
    r"|sig(nature)?)s?($|_|-)"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[\w-]+")
_KEY = re.compile(r"([\w-]+)[\"']?\s*:(?!//)")
"""A name before a colon, as mappings are written in YAML and JSON."""
_LOGIN = re.compile(r"(\w://)[^\s/?#]+@")
_QUERY = re.compile(r"(\w://[^\s?#]*[?#])\S+")
_NAMED = re.compile(
    r"((?<![\w.-])([\w.-]+)[\"']?\]?\s{0,9}[:=]\s{0,9})(?!//)"
    r"(\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|(?:(?:Bearer|Basic)\s+)?[^\s\"',;&}]+)"
)
"""A value behind its name, as environments, settings and mappings are written."""
_HEADER = re.compile(
    r"(?i)(?<![\w.-])((?:set-)?cookie|(?:proxy-)?authorization)([\"']?\s{0,9}[:=]\s{0,9}[\"']?)[^\"'\n]+"
)
"""A header of HTTP, of which all is the value."""
_ORDINARY = re.compile(r"(?i)keys?|sig(nature)?s?|\w+Error")
"""Names that stand in any text; a KeyError is about no key of that kind."""
_SHORTEST, _USUAL = 4, "password"
_PARAMETER = re.compile(r"([?&;#])([^=&;#\s]+)=([^&;#\s]+)")
_BEARER = re.compile(r"(?i)\b(bearer|basic) +[\w.~+/=-]{8,}")
_API_KEY = re.compile(r"\b[sp]k-[\w-]{16,}")


def redacted(config: dict[str, Any]) -> dict[str, Any]:
    """Settings with every value masked whose name, or the name of what holds it, says that it is a secret."""
    return {name: _value(value, secret=is_secret(name)) for name, value in config.items()}


def without_masked(config: dict[str, Any]) -> dict[str, Any]:
    """Settings without what was masked, and without lists that hold such: they have to be given again."""
    return {
        name: without_masked(value) if isinstance(value, dict) else value
        for name, value in config.items()
        if isinstance(value, dict) or not _holds_masked(value)
    }


def masked_settings(config: dict[str, Any], prefix: str = "") -> list[str]:
    """The names of settings that were masked, dotted."""
    names = []
    for name, value in config.items():
        if isinstance(value, dict):
            names += masked_settings(value, f"{prefix}{name}.")
        elif _holds_masked(value):
            names.append(f"{prefix}{name}")
    return names


def masked_command(command: Sequence[str]) -> list[str]:
    """A command line with every secret in it masked: `--name secret`, `--name=secret`, `a.name=secret`, `a={name: …}`.

    Of every address, the whole query is masked. What is left is for people to read, not to run.
    """
    return [_argument(before, argument) for before, argument in zip(["", *command], command, strict=False)]


def secrets_of(config: dict[str, Any], *more: str) -> frozenset[str]:
    """The values that `redacted` masks in settings, and others, as far as they can be told from ordinary words."""
    return frozenset(each for each in (*_secret_values(config, secret=False), *more) if _is_telling(each))


def masked_text(text: str, secrets: Iterable[str] = ()) -> str:
    """A text without these secrets, and without those that it names itself: `token=…`, `"password": "…"`, addresses."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    text = _address(text)
    if ":" in text or "=" in text:  # else nothing in it has a name
        text = _NAMED.sub(_masked_value, _HEADER.sub(rf"\1\2{MASK}", text))
    return _API_KEY.sub(MASK, _BEARER.sub(rf"\1 {MASK}", text))


def _masked_value(found: re.Match[str]) -> str:
    secret = is_secret(found[2]) and not _ORDINARY.fullmatch(found[2])
    quote = found[3][0] if found[3][0] in "\"'" else ""
    return f"{found[1]}{quote}{MASK}{quote}" if secret and found[3] != quote * 2 else found[0]


def _secret_values(value: object, *, secret: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _secret_values(each, secret=secret or is_secret(name))
    elif isinstance(value, list):
        for each in value:
            yield from _secret_values(each, secret=secret)
    elif isinstance(value, str) and secret:
        yield value


def _is_telling(secret: str) -> bool:
    """OSWorld's usual password is no secret, and what is as short stands in any text by chance."""
    return len(secret) >= _SHORTEST and secret != _USUAL


def is_masked(value: object) -> bool:
    """Whether something was taken out of it."""
    return isinstance(value, str) and MASK in value


def is_secret(name: object) -> bool:
    """Whether a part of a dotted name says so; YAML knows names that are numbers."""
    return any(_SECRET.search(_CAMEL.sub("_", part.strip())) for part in str(name).split("."))


def _value(value: Any, *, secret: bool) -> Any:
    if isinstance(value, dict):
        return {name: _value(each, secret=secret or is_secret(name)) for name, each in value.items()}
    if isinstance(value, list):
        return [_value(each, secret=secret) for each in value]
    if not isinstance(value, str) or not value:
        return value
    return MASK if secret else _address(value)


def _address(value: str) -> str:
    """An address without the secrets among its parameters; the others, as `api-version`, are settings."""
    if "://" not in value:
        return value
    value = _LOGIN.sub(rf"\1{MASK}@", value)
    return _PARAMETER.sub(lambda found: f"{found[1]}{found[2]}={MASK}" if is_secret(found[2]) else found[0], value)


def _holds_masked(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_masked, value.values()))
    return any(map(_holds_masked, value)) if isinstance(value, list) else is_masked(value)


def _argument(before: str, argument: str) -> str:
    if before.startswith("--") and "=" not in before and is_secret(before[2:]):
        return MASK
    shown = ""
    if argument.startswith("--"):
        flag, assigned, argument = argument.partition("=")
        shown = flag + assigned
        if assigned and is_secret(flag[2:]):
            return shown + MASK
    name, assigned, value = argument.partition("=")
    if not assigned or _is_mapping(argument):
        name, assigned, value = "", "", argument
    words = _WORD if _is_mapping(value) else _KEY
    if is_secret(name) or any(map(is_secret, words.findall(value))):
        return f"{shown}{name}{assigned}{MASK}"
    return shown + _QUERY.sub(rf"\1{MASK}", _LOGIN.sub(rf"\1{MASK}@", argument))


def _is_mapping(text: str) -> bool:
    return text.lstrip().startswith(("{", "["))
