"""The readable text of an HTML file, and its title."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_HIDDEN = {"script", "style", "noscript", "template"}
_BLOCKS = {
    "p", "div", "section", "article", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "table", "pre", "blockquote",
    "header", "footer", "main", "nav", "aside",
}  # fmt: skip
_LINES = {"br", "li", "tr", "dt", "dd", "hr"}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.title: list[str] = []
        self._hidden = 0
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in _HIDDEN
        self._in_title = self._in_title or tag == "title"
        self._break(tag)

    def handle_endtag(self, tag: str) -> None:
        self._hidden = max(0, self._hidden - (tag in _HIDDEN))
        self._in_title = self._in_title and tag != "title"
        self._break(tag)

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            (self.title if self._in_title else self.parts).append(re.sub(r"\s+", " ", data))

    def _break(self, tag: str) -> None:
        self.parts.append("\n\n" if tag in _BLOCKS else "\n" if tag in _LINES else "")


def html_text(source: str) -> tuple[str, str]:
    """Title and text."""
    reader = _Reader()
    reader.feed(source)
    reader.close()
    text = re.sub(r"[ \t]*\n[ \t]*", "\n", "".join(reader.parts))
    return " ".join("".join(reader.title).split()), re.sub(r"\n{3,}", "\n\n", text).strip()
