"""Who may do what: the operator's token steers the pool, a client's own token leases under its own name.

A client may ask for desktops up to the size of the pool's own, that start from the same state or from none, and for
nothing that those do not have; the operator may allow it more. The password inside is its own affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from deskroll.desktops.base import DesktopSpec
from deskroll.errors import InputError, plain
from deskroll.host.tokens import bears_token, read_token_lines
from deskroll.types import Record

_SIZES = ("width", "height", "memory_mb", "processes", "disk_mb")
"""Fields of a spec of which a client may ask for less, and for no more."""
_EXTRAS = ("network", "proxy", "fixed_ip")
"""Fields of a spec that a client may leave out, and otherwise must be allowed."""
_STATE = "snapshot"
"""The field of a spec whose values are allowed one by one."""
_FIELDS = (*_SIZES, *_EXTRAS, _STATE)
_LONGEST_PASSWORD = 200
Allowed = int | bool | str


class Client(Record, frozen=True):
    """Whoever leases with a token of its own."""

    token: str
    allowed: dict[str, Allowed] = msgspec.field(default_factory=dict)
    """Fields of a spec, with the most that it may ask for (of `snapshot`: the names, with commas between them), where
    that is not what the pool's own desktops have."""

    def __repr__(self) -> str:
        return f"Client(..., allowed={self.allowed})"


class Caller(Record, frozen=True):
    """Who makes a request."""

    name: str = ""
    """The client that the token belongs to; empty: one that may call itself anything."""
    operator: bool = True
    """Whether it may resize, drain, take desktops from others, and ask for any desktop."""
    allowed: dict[str, Allowed] = msgspec.field(default_factory=dict)

    def check_spec(self, asked: DesktopSpec, own: DesktopSpec) -> None:
        """Raise `InputError` for a desktop that it may not have, where the pool's own are like `own`."""
        if self.operator:
            return
        if len(asked.client_password) > _LONGEST_PASSWORD:
            raise InputError(
                f"client {self.name} may not lease such a desktop: client_password has {len(asked.client_password)} "
                f"characters (at most {_LONGEST_PASSWORD}); ask for a shorter one"
            )
        beyond = {name: limit for name in _FIELDS if (limit := self._exceeded(name, asked, own))}
        if beyond:
            more = {name: _shown(getattr(asked, name)) for name in beyond}
            wrong = ", ".join(f"{name} is {more[name]} ({limit})" for name, limit in beyond.items())
            raise InputError(
                f"client {self.name} may not lease such a desktop: {wrong}; ask for less, or have the pool's operator "
                f"allow it in the file of clients:  {self.name} TOKEN {self._line_with(more)}"
            )

    def _line_with(self, more: Mapping[str, str]) -> str:
        """All that its line has to say to allow this as well: it takes the place of the one that there is."""
        fields = {name: value if isinstance(value, str) else _shown(value) for name, value in self.allowed.items()}
        states = filter(None, (fields.get(_STATE), more.get(_STATE)))
        fields = {**fields, **more, _STATE: ",".join(states)}
        return " ".join(f"{name}={fields[name]}" for name in _FIELDS if fields.get(name))

    def _exceeded(self, name: str, asked: DesktopSpec, own: DesktopSpec) -> str:
        """The limit that a field of what is asked for goes beyond; empty: none."""
        value, allowed = getattr(asked, name), self.allowed.get(name)
        if name == _STATE:
            states = {own.snapshot, *str(allowed or "").split(",")} - {""}
            return f"allowed: {', '.join(sorted(states)) or 'none'}" if value and value not in states else ""
        most = getattr(own, name) if allowed is None else allowed
        return f"at most {_shown(most)}" if value > most else ""


class Keys:
    """The tokens of one service. Without any, everybody who reaches it is trusted."""

    def __init__(self, operator: str = "", clients: Mapping[str, Client] | None = None) -> None:
        callers = {operator: Caller()} if operator else {}
        for name, client in (clients or {}).items():
            if client.token in callers:
                raise InputError(f"client {name} has the token of somebody else; give each one its own")
            callers[client.token] = Caller(name=name, operator=False, allowed=client.allowed)
        self._callers = list(callers.items())

    def __bool__(self) -> bool:
        return bool(self._callers)

    def who(self, authorization: str) -> Caller | None:
        """Who sent this header; None when nobody has such a token."""
        if not self._callers:
            return Caller()
        found = [caller for token, caller in self._callers if bears_token(authorization, token)]
        return found[0] if found else None


def read_clients(path: Path) -> dict[str, Client]:
    """Clients and their tokens: a line `NAME TOKEN [FIELD=VALUE ...]` each; # begins a comment line.

    The fields are those of a `DesktopSpec` of which the client may ask for as much: `memory_mb=8192 network=true`.
    """
    clients: dict[str, Client] = {}
    for number, words in read_token_lines(path, "clients"):
        if len(words) < 2:
            raise InputError(f"{path}, line {number}: write NAME TOKEN, without spaces in either")
        if words[0] in clients:
            raise InputError(f"{path}, line {number}: client {words[0]} is there already")
        clients[words[0]] = Client(token=words[1], allowed=_read_allowed(words[2:], f"{path}, line {number}"))
    if not clients:
        raise InputError(f"{path} names no client; write lines of NAME TOKEN")
    return clients


def _read_allowed(words: list[str], where: str) -> dict[str, Allowed]:
    allowed: dict[str, Allowed] = {}
    for place, word in enumerate(words, 3):
        name, equals, value = word.partition("=")
        if not equals or name not in _FIELDS:
            # Not shown: it may be a part of a token.
            known = ", ".join(_FIELDS)
            raise InputError(f"{where}, word {place}: after NAME TOKEN write FIELD=VALUE; the fields: {known}")
        if name == _STATE:
            allowed[name] = value
            continue
        try:
            allowed[name] = msgspec.convert(value, bool if name in _EXTRAS else int, strict=False)
        except msgspec.ValidationError:
            kind = "true or false" if name in _EXTRAS else "a number"
            raise InputError(f"{where}: {name} is {value!r}; write {kind}") from None
    return allowed


def _shown(value: Allowed) -> str:
    return str(value).lower() if isinstance(value, bool) else plain(str(value), 80)
