"""Page: what was got from an address."""

from __future__ import annotations

import re

from deskroll.types import Record

_READABLE = re.compile(
    r"\s*(text/[\w.+-]+|application/((?:[\w.-]+\+)?(json|xml)"
    r"|(x-)?(ndjson|jsonl|jsonlines|json-seq|javascript|ecmascript|yaml|toml)))\s*(;|$)",
    re.IGNORECASE,
)


class Page(Record, frozen=True):
    """A page as it came."""

    url: str
    """Where it was in the end."""
    kind: str
    """Its content type as the server gave it; empty: unknown."""
    body: bytes
    cut: bool = False
    """Whether there was more than is read."""


def is_readable(kind: str) -> bool:
    """Whether a content type is text; an empty one may be."""
    return not kind.strip() or _READABLE.match(kind) is not None
