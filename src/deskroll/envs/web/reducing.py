"""Turns a page's bytes into readable text. Runs in a limited process: nothing here trusts what it reads.

HTML becomes Markdown with links: what is the page's matter (trafilatura), and how much was left out; or all of its
text, where that is asked for, or where the matter is but a small part. Other kinds of text, XML among them, are shown
as they are and parsed by nobody.
"""

from __future__ import annotations

import re

import msgspec

from deskroll.envs.html_text import all_text, title_of
from deskroll.envs.web.decoding import decoded, is_binary
from deskroll.envs.web.page import Page
from deskroll.types import Record

LONGEST_TEXT = 600_000
"""Characters that are kept of a page."""
_LEAST_PART = 1 / 3
"""Below so much of a page's text, what trafilatura takes for its matter is doubted, and all of it is shown."""
_LEAST_LEFT_OUT = 40
"""Characters; what is less is not spoken of."""
_HTML = re.compile(r"\s*(text/html|application/xhtml\+xml)\b", re.IGNORECASE)
_LINK_END = re.compile(r"\]\([^()\s]*\)")


class Text(Record, frozen=True):
    """What came of it."""

    title: str = ""
    text: str = ""
    left_out: int = 0
    """About so many characters of the page's text were taken for something besides its matter, and left out."""
    cut: bool = False
    """Whether there is more of it than is kept."""
    problem: str = ""
    """Why there is no text."""


def reduce(given: bytes) -> bytes:
    """Reduce a page to a `Text`, given the page and whether all of its text is wanted; both sides are encoded."""
    return msgspec.msgpack.encode(_reduced(*msgspec.msgpack.decode(given, type=tuple[Page, bool])))


def is_html(kind: str, source: str) -> bool:
    """Whether it is to be read as HTML."""
    return bool(_HTML.match(kind)) or (not kind.strip() and source[:1000].lstrip().startswith("<"))


def _reduced(page: Page, whole: bool) -> Text:
    source = decoded(page.body, page.kind)
    if not source.strip("\0\ufeff \t\r\n"):
        return Text(problem="the page is empty")
    if is_binary(source):
        return Text(problem="it is binary, whatever its type says; only text is read")
    source = source.replace("\0", "")
    if not is_html(page.kind, source):
        return Text(text=source[:LONGEST_TEXT], cut=len(source) > LONGEST_TEXT)
    title, everything = title_of(source), all_text(source, page.url)
    found, left_out = (everything, 0) if whole else _matter(_extracted(source, page.url), everything)
    if not found.strip():
        return Text(title=title, problem="the page has no text; it may be made by scripts, which are not run")
    return Text(title=title, text=found[:LONGEST_TEXT], left_out=left_out, cut=len(found) > LONGEST_TEXT)


def _matter(found: str, everything: str) -> tuple[str, int]:
    """The page without menus and the like, and how many characters that leaves out; all of it where it is too much."""
    bare = _LINK_END.sub("", everything)
    kept, total = (sum(map(str.isalnum, each)) for each in (_LINK_END.sub("", found), bare))
    if not kept or kept < total * _LEAST_PART:
        return everything, 0
    left_out = round(len(bare) * (1 - kept / total)) if total else 0
    return found, left_out if left_out >= _LEAST_LEFT_OUT else 0


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
