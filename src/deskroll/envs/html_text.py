"""The text of an HTML page, all of it, by one scan that trusts nothing.

Guarantees: time and memory grow with the page's length and no faster, whatever is nested, repeated or left open; no tag
that is never closed swallows what follows it, except scripts, styles and comments, as in browsers.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from urllib.parse import urljoin

_MOST_LINKS = 5_000
"""Links of a page that are shown with their addresses."""
_LONGEST_LINK = 1_000
_CODE = ("script", "style")
_HIDDEN = (*_CODE, "noscript", "template", "svg", "title", "iframe", "object")
_BLOCKS = frozenset((
    "address", "article", "aside", "blockquote", "details", "div", "dl", "fieldset", "figure", "footer", "form", "h1",
    "h2", "h3", "h4", "h5", "h6", "header", "hr", "main", "nav", "ol", "p", "pre", "section", "table", "ul",
))  # fmt: skip
_LINES = frozenset(("br", "caption", "dd", "dt", "figcaption", "legend", "li", "option", "summary", "tr"))
_CELLS = frozenset(("td", "th", "label", "button"))
_TAG = re.compile(r"<(/?)([a-zA-Z]+[0-9]?|[!?])[^<>]*>?")
_SAME = {name: re.compile(rf"<(/?){name}\b", re.IGNORECASE) for name in _HIDDEN}
_CLOSE = {name: re.compile(rf"</{name}\b", re.IGNORECASE) for name in _CODE}
_HREF = re.compile(r"""\shref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'<>]+))""", re.IGNORECASE)
_SPACE = re.compile(r"[ \t\r\n\f]+")
_BREAKS = re.compile(r"\n[ \t\r\f\n]*")
_BLOCK = "\n\n\n"
"""More line breaks than the end of one line and the beginning of the next make."""
_EMPTY_LINK = re.compile(r"\[\s*\]\([^()\s]*\)")
_TITLE = re.compile(r"<title[^>]{0,200}>([^<]{1,1000})", re.IGNORECASE)


def all_text(source: str, base: str = "") -> str:
    """All text of a page: items and rows on lines of their own, a blank line between blocks, no scripts and the like.

    With `base`, the page's own address, links are shown as [text](address).
    """
    text = "".join(_pieces(source, base))
    if base:
        text = _EMPTY_LINK.sub("", text)
    text = _BREAKS.sub(lambda found: "\n\n" if found[0].count("\n") >= len(_BLOCK) else "\n", text)
    return "\n".join(" ".join(line.split()) for line in html.unescape(text).split("\n")).strip()


def title_of(source: str) -> str:
    """The title of a page, on one line; empty where it has none."""
    found = _TITLE.search(source[:100_000])
    return " ".join(html.unescape(found[1]).split())[:300] if found else ""


def _pieces(source: str, base: str) -> Iterator[str]:
    """What is shown, piece by piece, its entities not yet read."""
    at, links, unclosed, as_it_is = 0, _Links(base), set[str](), False
    while (begin := source.find("<", at)) >= 0:
        yield source[at:begin] if as_it_is else _SPACE.sub(" ", source[at:begin])
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
        if name in _HIDDEN:
            if not tag[1] and name not in unclosed:
                at = _after_hidden(source, at, name, unclosed)
        elif name == "a":
            yield links.end() if tag[1] else links.begin(tag[0])
        else:
            as_it_is = not tag[1] if name == "pre" else as_it_is
            yield _space(name)
    yield source[at:] if as_it_is else _SPACE.sub(" ", source[at:])
    yield links.end()


def _space(name: str) -> str:
    if name in _BLOCKS:
        return _BLOCK
    return "\n" if name in _LINES else " " if name in _CELLS else ""


def _after_hidden(source: str, at: int, name: str, unclosed: set[str]) -> int:
    """Where to go on after the opening tag of what is not shown: at its end, or right here where it has none."""
    if name in _CODE:
        close = _CLOSE[name].search(source, at)
        return close.start() if close else len(source)
    # The next tag of the name is looked for, not the next closing one: so nothing is searched through twice.
    same = _SAME[name].search(source, at)
    if same is None:
        unclosed.add(name)
    return same.start() if same and same[1] else at


class _Links:
    """The link that is open, if one is: they do not nest."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._left = _MOST_LINKS if base else 0
        self._open = ""

    def begin(self, tag: str) -> str:
        """What to show where a link begins."""
        before = self.end()
        found = _HREF.search(tag) if self._left else None
        if found is None:
            return before
        self._left -= 1
        self._open = _absolute(self._base, html.unescape(found[1] or found[2] or found[3] or "").strip())
        return f"{before}[" if self._open else before

    def end(self) -> str:
        """What to show where it ends."""
        target, self._open = self._open, ""
        return f"]({html.escape(target, quote=False)})" if target else ""


def _absolute(base: str, target: str) -> str:
    """The address that a link leads to, without what would break its frame; empty where it leads to no page."""
    if not target or target.startswith("#") or len(target) > _LONGEST_LINK:
        return ""
    try:
        full = urljoin(base, target)
    except ValueError:
        return ""
    if not full.startswith(("http://", "https://")):
        return ""
    return re.sub(r"[\s()]", lambda odd: f"%{ord(odd[0]):02X}" if odd[0].isascii() else "", full)
