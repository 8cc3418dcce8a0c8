"""Hit: one result of a search, cleaned; and how results are shown to a model."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from deskroll.errors import plain
from deskroll.types import Record

_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_LONGEST_URL = 1_000


class Hit(Record, frozen=True):
    """One result of a search."""

    title: str
    url: str
    snippet: str = ""

    @classmethod
    def cleaned(cls, title: object, url: object, snippet: object) -> Hit | None:
        """A hit of what a search engine says; None where there is no address to visit."""
        if not isinstance(url, str) or not url.startswith(("http://", "https://")) or len(url) > _LONGEST_URL:
            return None
        return cls(title=_line(title, 200) or "(no title)", url=plain(url, _LONGEST_URL), snippet=_line(snippet, 400))


def shown(hits: Sequence[Hit], most: int) -> str:
    """Numbered results in at most so many characters."""
    if not hits:
        return "no results"
    parts: list[str] = []
    size = 0
    for number, hit in enumerate(hits, 1):
        part = "\n   ".join(filter(None, (f"{number}. {hit.title}", hit.url, hit.snippet)))
        size += len(part) + 1
        if size > most:
            parts.append(f"[{len(hits) - number + 1} more are not shown]")
            break
        parts.append(part)
    return "\n".join(parts)


def _line(text: object, longest: int) -> str:
    if not isinstance(text, str):
        return ""
    bare = html.unescape(_TAG.sub("", text[: 4 * longest]))
    return " ".join(plain(bare, longest).split())
