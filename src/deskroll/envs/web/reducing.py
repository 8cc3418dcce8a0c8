"""Turns a page's bytes into readable text. Runs in a limited process: nothing here trusts what it reads.

HTML becomes Markdown with links (trafilatura); where that finds next to nothing, all of its text. Other kinds of text,
XML among them, are shown as they are and parsed by nobody.
"""

from __future__ import annotations

import codecs
import html
import re
from collections.abc import Iterator

import msgspec

from deskroll.types import Record

LONGEST_TEXT = 600_000
"""Characters that are kept of a page."""
_LEAST = 200
"""Below so many characters the extraction is doubted."""
_HTML = re.compile(r"\s*(text/html|application/xhtml\+xml)\b", re.IGNORECASE)
_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]{0,200}>([^<]{1,1000})", re.IGNORECASE)
_ODD = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\ufffd]")
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_NO_CHARSETS = ("idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "utf_7", "utf-7")
_HIDDEN = ("script", "style", "noscript", "template", "svg", "title", "iframe", "object")
_TAG = re.compile(r"<(/?)([a-zA-Z]+[0-9]?|[!?])[^<>]*>?")
_BLOCKS = (
    "address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "footer", "h1", "h2", "h3", "h4", "h5",
    "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre", "section", "table", "td", "th", "tr", "ul",
)  # fmt: skip


class Raw(Record, frozen=True):
    """What is to be reduced."""

    url: str
    kind: str
    body: bytes


class Text(Record, frozen=True):
    """What came of it."""

    title: str = ""
    text: str = ""
    problem: str = ""
    """Why there is no text."""


def reduce(given: bytes) -> bytes:
    """Reduce a page; both sides are encoded records."""
    return msgspec.msgpack.encode(_reduced(msgspec.msgpack.decode(given, type=Raw)))


def decoded(body: bytes, kind: str) -> str:
    """The characters of a page, by its mark, its type, its own word, or a guess."""
    for mark, name in _BOMS:
        if body.startswith(mark):
            return body.decode(name, "replace")
    declared = _CHARSET.search(kind) or _CHARSET.search(body[:2048].decode("ascii", "replace"))
    for name in (declared[1] if declared else "", "utf-8"):
        if name and name.lower() not in _NO_CHARSETS:
            try:
                return body.decode(name)
            except (LookupError, UnicodeError, ValueError):
                continue
    guess = body.decode("utf-8", "replace")
    # A cut in the middle of a character, or a few broken ones, leave it UTF-8; else it is most likely this.
    return guess if guess.count("\ufffd") * 50 <= len(guess) else body.decode("cp1252", "replace")


def title_of(source: str) -> str:
    """The title of an HTML page."""
    found = _TITLE.search(source[:100_000])
    return " ".join(html.unescape(found[1]).split())[:300] if found else ""


def all_text(source: str) -> str:
    """All text of an HTML page, scripts and the like left out, in time that grows with its length and no faster."""
    text = html.unescape("".join(_pieces(source)))
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def is_html(kind: str, source: str) -> bool:
    """Whether it is to be read as HTML."""
    return bool(_HTML.match(kind)) or (not kind.strip() and source[:1000].lstrip().startswith("<"))


def _reduced(raw: Raw) -> Text:
    source = decoded(raw.body, raw.kind)
    if not source.strip("\0\ufeff \t\r\n"):
        return Text(problem="the page is empty")
    if is_binary(source):
        return Text(problem="it is binary, whatever its type says; only text is read")
    source = source.replace("\0", "")
    if not is_html(raw.kind, source):
        return Text(text=source[:LONGEST_TEXT])
    found = _extracted(source, raw.url)
    if len(found) < _LEAST:
        everything = all_text(source)
        found = everything if len(everything) > len(found) else found
    if not found.strip():
        return Text(
            title=title_of(source), problem="the page has no text; it may be made by scripts, which are not run"
        )
    return Text(title=title_of(source), text=found[:LONGEST_TEXT])


def _extracted(source: str, url: str) -> str:
    import trafilatura  # noqa: PLC0415  (only the limited process has it)

    try:
        found = trafilatura.extract(
            source, url=url, fast=True, output_format="markdown", include_links=True, include_tables=True,
            include_comments=False, favor_recall=True,
        )  # fmt: skip
    except Exception:  # noqa: BLE001  (hostile pages break it in any way; all text is then taken instead)
        return ""
    return found or ""


def is_binary(source: str) -> bool:
    """Whether what was decoded is no text."""
    start = source[:4096]
    return len(_ODD.findall(start)) * 10 > len(start)


def _pieces(source: str) -> Iterator[str]:
    at, unclosed = 0, set[str]()
    while (begin := source.find("<", at)) >= 0:
        yield source[at:begin]
        if source.startswith("<!--", begin):
            end = source.find("-->", begin + 4)
            at = end + 3 if end >= 0 else len(source)
            continue
        tag = _TAG.match(source, begin)
        if tag is None:
            yield "<"
            at = begin + 1
            continue
        at, name = tag.end(), tag[2].lower()
        if name in _BLOCKS:
            yield "\n"
        elif name in _HIDDEN and not tag[1] and name not in unclosed:
            close = re.compile(f"</{name}\\b", re.IGNORECASE).search(source, at)
            if close is None:
                unclosed.add(name)  # once is enough to know
            else:
                at = close.start()
    yield source[at:]
