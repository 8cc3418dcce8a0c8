"""Reads a folder of pages into an index of words. Runs in a limited process: nothing here trusts what it reads."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec

from deskroll.envs.web.reducing import all_text, decoded, is_binary, is_html, title_of
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
_CJK = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af"
_WORD = re.compile(rf"[{_CJK}]|(?:(?![{_CJK}])[^\W_])+")
_ASCII_WORD = re.compile(r"[a-z0-9]+")  # the same, and faster
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
    root = Path(os.fsdecode(given))
    pages: list[Indexed] = []
    postings: dict[str, list[tuple[int, int]]] = {}
    for path in page_files(root):
        with path.open("rb") as file:
            source = decoded(file.read(LARGEST_FILE), KINDS.get(_suffix(path), ""))
        if is_binary(source):
            continue
        html = is_html(KINDS.get(_suffix(path), ""), source)
        title, text = (title_of(source), all_text(source)) if html else ("", source)
        counts = Counter(words_of(text))
        for word in words_of(title):
            counts[word] += _TITLE_WEIGHT
        for word, count in counts.items():
            postings.setdefault(word, []).append((len(pages), count))
        url = url_of(path.relative_to(root))
        pages.append(Indexed(url=url, title=title, text=text[:LONGEST_TEXT], words=counts.total()))
    return msgspec.msgpack.encode(Index(pages=tuple(pages), postings=postings))


def page_files(root: Path) -> Iterator[Path]:
    """The files of a mirror that may be pages, in order; links that lead out of it are left out."""
    real = root.resolve()
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for name in sorted(files):
            path = Path(folder, name)
            if folder == str(root) or name.startswith(".") or _suffix(path) in _NO_PAGES or name == "robots.txt":
                continue
            if path.is_file() and path.resolve().is_relative_to(real):
                yield path


def url_of(path: Path) -> str:
    """The address that a file of a mirror stands for."""
    host, *rest = path.parts
    place, mark, query = "/".join(rest).partition("?")
    if not mark and (place == "index.html" or place.endswith("/index.html")):
        place = place.removesuffix("index.html")
    return f"https://{host}/{quote(place)}{mark}{quote(query, safe='=&+/:,;')}"


def words_of(text: str) -> list[str]:
    """The words of a text as they are compared: without case, without a plural's s; Chinese by characters."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    pattern = _ASCII_WORD if folded.isascii() else _WORD
    return [_stem(each) for each in pattern.findall(folded)]


def _stem(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _suffix(path: Path) -> str:
    return Path(path.name.partition("?")[0]).suffix.lower()
