"""Page: what was got from an address; and its reduction to text, which runs in a process of its own."""

from __future__ import annotations

import re

import msgspec

from deskroll.envs.limited import Bounds, FunctionFailed, LimitedError, LimitExceeded, limited
from deskroll.envs.web.errors import PageError
from deskroll.envs.web.reducing import Raw, Text, reduce
from deskroll.types import Record

_READABLE = re.compile(
    r"\s*(text/[\w.+-]+|application/((?:[\w.-]+\+)?(json|xml)|xhtml\+xml|x?ndjson|javascript|yaml|x-yaml))\s*(;|$)",
    re.IGNORECASE,
)
_BOUNDS = Bounds(seconds=20, cpu_seconds=10, memory_bytes=768 * 2**20, result_bytes=4 * 2**20)


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


async def text_of(page: Page) -> Text:
    """The page as text."""
    given = msgspec.msgpack.encode(Raw(url=page.url, kind=page.kind, body=page.body))
    try:
        reduced = await limited(reduce, given, _BOUNDS, preload=("trafilatura",))
    except LimitExceeded as error:
        raise PageError(f"it cannot be turned into text: {error}") from None
    except FunctionFailed as error:
        raise PageError(f"it cannot be turned into text ({error})") from None
    except LimitedError:
        raise PageError("it cannot be turned into text: its reader crashed") from None
    text = msgspec.msgpack.decode(reduced, type=Text)
    if text.problem:
        raise PageError(text.problem)
    return text
