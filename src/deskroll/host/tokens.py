"""Tokens that a service wants with each request, as `Authorization: Bearer TOKEN`.

Guarantees: a token is compared in constant time and never shown; a file of tokens that others may read is refused.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from pathlib import Path

from deskroll.errors import InputError

TOKEN_VARIABLE = "DESKROLL_TOKEN"  # noqa: S105
"""The environment variable that holds the token of this user's services."""


def bearer_headers(token: str) -> dict[str, str]:
    """The headers that carry a token; none without one."""
    return {"Authorization": f"Bearer {token}"} if token else {}


def bears_token(authorization: str, token: str) -> bool:
    """Whether an `Authorization` header carries this token."""
    return hmac.compare_digest(_bytes(authorization), _bytes(f"Bearer {token}"))


def _bytes(text: str) -> bytes:
    """What was sent: what is not UTF-8 comes as halves of characters, from a header and from the environment alike."""
    return text.encode(errors="surrogateescape")


def read_token_lines(path: Path, what: str) -> Iterator[tuple[int, list[str]]]:
    """The words of each line of a file of tokens, with its number, without comments; `what` it holds, for the error."""
    try:
        if path.stat().st_mode & 0o077:
            raise InputError(f"{path} holds tokens and others may read it; run:  chmod 600 {path}")
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the {what} in {path}: {error}") from error
    for number, line in enumerate(lines, 1):
        words = line.split()
        if words and not words[0].startswith("#"):
            yield number, words
