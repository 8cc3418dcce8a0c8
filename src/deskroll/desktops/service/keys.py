"""Who may do what: the operator's token steers the pool, a client's own token leases under its own name.

Guarantees: a token is compared in constant time and never shown; a file of tokens that others may read is refused.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deskroll.errors import InputError


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request."""

    name: str = ""
    """The client that the token belongs to; empty: one that may call itself anything."""
    operator: bool = True
    """Whether it may resize, drain and take desktops from others."""


class Keys:
    """The tokens of one service. Without any, everybody who reaches it is trusted."""

    def __init__(self, operator: str = "", clients: Mapping[str, str] | None = None) -> None:
        callers = {operator: Caller()} if operator else {}
        for name, token in (clients or {}).items():
            if token in callers:
                raise InputError(f"client {name} has the token of somebody else; give each one its own")
            callers[token] = Caller(name, operator=False)
        self._callers = [(f"Bearer {token}".encode(), caller) for token, caller in callers.items()]

    def __bool__(self) -> bool:
        return bool(self._callers)

    def who(self, authorization: str) -> Caller | None:
        """Who sent this header; None when nobody has such a token."""
        if not self._callers:
            return Caller()
        given = authorization.encode(errors="replace")
        found = [caller for expected, caller in self._callers if hmac.compare_digest(given, expected)]
        return found[0] if found else None


def read_clients(path: Path) -> dict[str, str]:
    """Clients and their tokens: a line `NAME TOKEN` each; empty lines and lines that begin with # do not count."""
    try:
        if path.stat().st_mode & 0o077:
            raise InputError(f"{path} holds tokens and others may read it; run:  chmod 600 {path}")
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the clients in {path}: {error}") from error
    clients: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise InputError(f"{path}, line {number}: write NAME TOKEN, without spaces in either")
        if words[0] in clients:
            raise InputError(f"{path}, line {number}: client {words[0]} is there already")
        clients[words[0]] = words[1]
    if not clients:
        raise InputError(f"{path} names no client; write lines of NAME TOKEN")
    return clients
