"""Says which files of a folder are pages, and reads them into an index of words.

`page_at` decides for search and for visits alike. `build` runs in a limited process: nothing trusts what it reads.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePath
from urllib.parse import quote

import msgspec

from deskroll.envs.html_text import all_text, title_of
from deskroll.envs.web.decoding import decoded, is_binary
from deskroll.envs.web.reducing import is_html
from deskroll.envs.words import words
from deskroll.host.below import open_linked_below
from deskroll.types import Record

MOST_PAGES = 5_000
LARGEST_FILE = 2_000_000
"""Bytes that are indexed of a page."""
LONGEST_TEXT = 10_000
"""Characters of a page that its snippets are taken from."""
KINDS = {
    **dict.fromkeys((".html", ".htm", ".xhtml"), "text/html"),
    **dict.fromkeys((".txt", ".md", ".csv"), "text/plain"),
    ".json": "application/json", ".xml": "application/xml",
}  # fmt: skip
"""Content types by suffix; what has another one is looked at."""
_NO_PAGES = (
    ".css", ".js", ".mjs", ".map", ".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg", ".ico", ".pdf", ".zip", ".gz",
    ".mp3", ".mp4", ".webm", ".woff", ".woff2", ".ttf",
)  # fmt: skip
_TITLE_WEIGHT = 3


class Indexed(Record, frozen=True):
    """One page of an index."""

    url: str
    title: str
    text: str
    words: int


class Index(Record, frozen=True):
    """All pages, and for each word the pages that hold it, with how often."""

    pages: tuple[Indexed, ...]
    postings: dict[str, list[tuple[int, int]]]


def build(given: bytes) -> bytes:
    """Index the folder of that path; the result is an encoded `Index`."""
    root = Path(os.fsdecode(given)).resolve()
    pages: list[Indexed] = []
    postings: dict[str, list[tuple[int, int]]] = {}
    for path in page_files(root):
        with os.fdopen(open_linked_below(root, str(path.relative_to(root))), "rb") as file:
            source = decoded(file.read(LARGEST_FILE), kind_of(path))
        if is_binary(source):
            continue
        html = is_html(kind_of(path), source)
        title, text = (title_of(source), all_text(source)) if html else ("", source)
        counts = Counter(words(text, stem=True))
        for word in words(title, stem=True):
            counts[word] += _TITLE_WEIGHT
        for word, count in counts.items():
            postings.setdefault(word, []).append((len(pages), count))
        url = url_of(path.relative_to(root))
        pages.append(Indexed(url=url, title=title, text=text[:LONGEST_TEXT], words=counts.total()))
    return msgspec.msgpack.encode(Index(pages=tuple(pages), postings=postings))


def page_files(root: Path) -> Iterator[Path]:
    """The pages of a mirror, in order, as paths below its real folder."""
    root = root.resolve()
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for name in sorted(files):
            path = Path(folder, name)
            if page_at(root, path) is not None:
                yield path


def page_at(root: Path, path: Path) -> Path | None:
    """The file behind a path of a mirror, links followed, if it is one of its pages; `root` is its real folder."""
    try:
        real = path.resolve()
        good = all(each.is_relative_to(root) and _may_be_page(each.relative_to(root)) for each in (path, real))
        return real if good and real.is_file() else None
    except (OSError, ValueError, RuntimeError):  # a name too long, or no name at all; links that lead in a circle
        return None


def kind_of(path: PurePath) -> str:
    """The content type by a file's suffix; empty where that does not tell."""
    return KINDS.get(_suffix(path), "")


def _may_be_page(place: PurePath) -> bool:
    """Whether a name is that of a page: below a host's folder, nothing hidden, nothing that only serves pages."""
    return (
        len(place.parts) > 1
        and not any(part.startswith(".") for part in place.parts)
        and _suffix(place) not in _NO_PAGES
        and place.name != "robots.txt"
    )


def url_of(path: Path) -> str:
    """The address that a file of a mirror stands for."""
    host, *rest = path.parts
    place, mark, query = "/".join(rest).partition("?")
    if not mark and (place == "index.html" or place.endswith("/index.html")):
        place = place.removesuffix("index.html")
    return f"https://{host}/{quote(place)}{mark}{quote(query, safe='=&+/:,;')}"


def _suffix(path: PurePath) -> str:
    return PurePath(path.name.partition("?")[0]).suffix.lower()
