"""Page: what was got from an address; and its reduction to text, which runs in a process of its own."""

from __future__ import annotations

import re

import msgspec

from deskroll.envs.limited import Bounds, FunctionCrashed, FunctionFailed, LimitExceeded, limited
from deskroll.envs.web.errors import PageError
from deskroll.envs.web.reducing import Raw, Text, reduce
from deskroll.types import Record

_READABLE = re.compile(
    r"\s*(text/[\w.+-]+|application/((?:[\w.-]+\+)?(json|xml)"
    r"|(x-)?(ndjson|jsonl|jsonlines|json-seq|javascript|ecmascript|yaml|toml)))\s*(;|$)",
    re.IGNORECASE,
)
_BOUNDS = Bounds(seconds=60, cpu_seconds=15, memory_bytes=768 * 2**20, result_bytes=4 * 2**20)


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


async def text_of(page: Page, *, whole: bool = False) -> Text:
    """The page as text: its matter, or the whole of it."""
    given = msgspec.msgpack.encode(Raw(url=page.url, kind=page.kind, body=page.body, whole=whole))
    try:
        reduced = await limited(reduce, given, _BOUNDS, preload=("trafilatura",))
    except LimitExceeded as error:
        hint = "" if whole else "; whole=true takes less"
        raise PageError(f"it cannot be turned into text: {error}{hint}") from None
    except FunctionFailed as error:
        raise PageError(f"it cannot be turned into text ({error})") from None
    except FunctionCrashed:
        raise PageError("it cannot be turned into text: its reader crashed") from None
    text = msgspec.msgpack.decode(reduced, type=Text)
    if text.problem:
        raise PageError(text.problem)
    return text
