"""All text of an HTML page: what is shown, what is not, links, and pages that were made to take long."""

from __future__ import annotations

import time

import pytest

from deskroll.envs.html_text import all_text, title_of

SHOWN = {
    "inline tags": ("<p>a <b>bold</b>er&nbsp;&amp; x</p>", "a bolder & x"),
    "source's line breaks": ("<p>one\n  two</p>", "one two"),
    "blocks": ("<h1>Head</h1><p>one</p><div>two</div>", "Head\n\none\n\ntwo"),
    "items": ("<ul>\n<li>a</li>\n<li>b</li>\n</ul>", "a\nb"),
    "rows and cells": ("<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>", "a b\nc"),
    "preformatted": ("<pre>x = 1\ny = 2</pre>", "x = 1\ny = 2"),
    "what is hidden": (
        "<title>T</title><p>a<script>if (1 < 2) {'<p>b'}</script><style>c</style><noscript>d</noscript></p>", "a",
    ),
    "a comment": ("a<!-- <p>b</p> -->c", "ac"),
    "no tag": ("1 < 2 and <3", "1 < 2 and <3"),
    "a tag that is cut": ("a<p class='b", "a"),
    "noscript left open": ("<noscript>on<p>the rest</p>", "on\n\nthe rest"),
    "template left open": ("<template>on<p>the rest</p>", "on\n\nthe rest"),
    "noscript left open before one that is closed": (
        "<noscript><p>much</p><noscript>gone</noscript><p>rest</p>", "much\n\nrest",
    ),
    "a script left open": ("<p>a</p><script>code", "a"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_shown(name: str) -> None:
    source, expected = SHOWN[name]
    assert all_text(source) == expected


LINKS = {
    "relative": ("<a href='/x?a=1&amp;b=2'>x</a>", "[x](https://a.example/x?a=1&b=2)"),
    "without quotes": ("<A class=c HREF=y>x</A>", "[x](https://a.example/p/y)"),
    "without text": ("a <a href=y><img src=z></a>b", "a b"),
    "left open": ("<a href=y>x<a href=z>w", "[x](https://a.example/p/y)[w](https://a.example/p/z)"),
    "within the page": ("<a href='#top'>x</a>", "x"),
    "to no page": ("<a href='javascript:x()'>x</a>", "x"),
    "broken": ("<a href='http://[::1'>x</a>", "x"),
    "breaking the frame": ("<a href='/x) [bank](https://b.example/'>x</a>", "[x](https://a.example/x%29%20[bank]%28"),
    "no link": ("<a name=y>x</a>", "x"),
}


@pytest.mark.parametrize("name", LINKS)
def test_links_of_a_page_whose_address_is_known(name: str) -> None:
    source, expected = LINKS[name]
    assert all_text(source, "https://a.example/p/index.html").startswith(expected)
    assert "(" not in all_text(source)


def test_titles() -> None:
    assert title_of("<html><title lang=en>\n The  Alder &amp; more</title>") == "The Alder & more"
    assert title_of("<p>none</p>") == ""


MADE_TO_TAKE_LONG = (
    "<div>", "<noscript>", "<template><svg><object><iframe><title>", "<a ", "<!--", "<!-- --", "<a href='",
    "<a href=x>", "[ ", "<", "<script>", "<svg></b>", "<pre> ", "<pre>\n ", "<a href ", "&", "&amp", "\n",
    "<br>\n", "](",
)  # fmt: skip


@pytest.mark.parametrize("piece", MADE_TO_TAKE_LONG)
def test_time_grows_with_the_length_and_no_faster(piece: str) -> None:
    def seconds(size: int) -> float:
        source = piece * (size // len(piece)) + "</noscript>"
        begun = time.process_time()
        all_text(source, "https://a.example/")
        return time.process_time() - begun

    # Were it quadratic, it would be 64 times as long, and minutes.
    assert seconds(800_000) < 20 * max(seconds(100_000), 0.05)
