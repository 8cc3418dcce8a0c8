"""What a visit shows of a page: what is left out, charsets, packing, kinds; and summaries of parts."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest

from deskroll.envs import EnvContext
from deskroll.envs.web.summary import LONGEST_PAGE
from deskroll.envs.web.unpacking import MOST_MEMBERS
from deskroll.models.scripted import Script, ScriptedServer
from tests.envs.web.site import ALDER, http, site, visit, web_env
from tests.models.servers import canned, client
from tests.models.servers import http as model_http

ARTICLE = (
    "<p>" + "The Alder rises at Grey Tarn and reaches the sea at Port Sevrin after many kilometres. " * 12 + "</p>"
)
ITEMS = "".join(f"<li><a href='/p{n}'>Product {n}</a> price {n * 3} EUR</li>" for n in range(40))
SHOP = (
    "<html><body><main><h1>Shop</h1><p>" + "Welcome to our shop, we sell many fine things. " * 8 + "</p></main>"
    "<aside><h2>Opening hours</h2><p>Sunday 13:37 to 15:00</p></aside>"
    f"<div class='sidebar'><ul>{ITEMS}</ul></div>"
    "<form><label>Phone</label><p>Code ZX81</p></form><footer>Founded 1887 by Ann Lee</footer></body></html>"
)
BESIDE = (
    f"<html><head><title>The Alder</title></head><body><main><h1>The Alder</h1>{ARTICLE}</main>"
    "<aside><h2>Opening hours</h2><p>Sunday 13:37 to 15:00</p><p><a href='/fees'>Fees</a></p></aside>"
    "<footer>Founded 1887 by Ann Lee</footer></body></html>"
)


async def test_a_page_of_which_most_would_be_lost_is_shown_whole() -> None:
    async with site({"/shop": http(SHOP)}) as served, web_env(served.port) as env:
        result = await visit(env, served.url("/shop"))
        for each in ("fine things", "13:37", "price 117 EUR", "ZX81", "1887", f"[Product 39]({served.url('/p39')})"):
            assert each in result
        assert "left out" not in result


async def test_what_is_left_out_is_said_and_can_be_had() -> None:
    async with site({"/beside": http(BESIDE)}) as served, web_env(served.port) as env:
        result = await visit(env, served.url("/beside"))
        assert "Grey Tarn" in result
        assert "13:37" not in result, "else this test is about nothing"
        assert "of the page are left out (menus, side columns, " in result
        assert "visit it with whole=true for all of its text]" in result
        whole = await visit(env, served.url("/beside"), whole=True)
        for each in ("The Alder\n", "Grey Tarn", "13:37", "1887", f"[Fees]({served.url('/fees')})"):
            assert each in whole
        assert "left out" not in whole
        assert "left out" not in await visit(env, served.url("/good")), "a menu's single word is not worth a line"


async def test_a_whole_page_is_read_in_parts_too() -> None:
    async with site({"/beside": http(BESIDE)}) as served, web_env(served.port, page_chars=500) as env:
        first = await visit(env, served.url("/beside"), whole=True)
        assert "[cut: characters 0 to 500 of " in first
        assert "visit it again with start=500 and whole=true for more]" in first


def declared(text: str, label: str, codec: str) -> bytes:
    page = f"<html><head><meta charset={label}></head><body><p>{text}</p></body></html>"
    return http(page.encode(codec), Content_Type="text/html")


CHARSETS = {
    "gb2312": (declared("朱镕基担任总理", "gb2312", "gbk"), "朱镕基担任总理"),
    "gbk": (declared("中国€ 㐀", "gbk", "gb18030"), "中国€ 㐀"),
    "shift_jis": (declared("①高﨑さん", "Shift_JIS", "cp932"), "①高﨑さん"),
    "x-sjis": (declared("①高﨑さん", "x-sjis", "cp932"), "①高﨑さん"),
    "euc-kr": (declared("똠방각하", "euc-kr", "cp949"), "똠방각하"),
    "big5": (declared("中國碁", "big5", "cp950"), "中國碁"),
    "latin-1": (declared("“quoted” €5", "iso-8859-1", "cp1252"), "“quoted” €5"),
    "ascii": (declared("“quoted” €5", "us-ascii", "cp1252"), "“quoted” €5"),
    "by XML's word": (
        http('<?xml version="1.0" encoding="shift_jis"?><x>①高﨑</x>'.encode("cp932"), Content_Type="text/xml"),
        "①高﨑",
    ),
    "UTF-16 by a word in ASCII": (declared("Größe", "utf-16", "utf-8"), "Größe"),
    "another than it says": (declared("中 国 " * 20, "gb2312", "utf-8"), "中 国 中 国"),
    "one broken character": (
        declared("朱镕基担任总理@" * 9, "gb2312", "gbk").replace(b"@", b"\xff", 1), "朱镕基担任总理",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHARSETS)
async def test_charsets_are_read_as_browsers_read_them(name: str) -> None:
    answer, expected = CHARSETS[name]
    async with site({"/page": answer}) as served, web_env(served.port) as env:
        assert expected in await visit(env, served.url("/page"))


@pytest.mark.parametrize(("label", "codec"), [("gb2312", "gbk"), ("shift_jis", "cp932"), ("utf-8", "utf-8")])
async def test_a_page_that_is_cut_within_a_character(label: str, codec: str) -> None:
    body = b"x" + "中国".encode(codec) * 3000
    page = http(body, Content_Type=f"text/plain; charset={label}")
    async with site({"/page": page}) as served, web_env(served.port, page_mb=0.01, page_chars=19_000) as env:
        result = await visit(env, served.url("/page"))
        assert "x中国中国中国" in result
        assert "中国中" in result.splitlines()[-2]


@pytest.mark.parametrize("label", ["utf-7", "utf7", "UTF_7", "unicode-escape", "unicode_escape", "raw-unicode-escape"])
async def test_charsets_by_which_text_would_hide(label: str) -> None:
    body = b"+ADw-b+AD4- \\u0053\\u0045\\u0043 plain"
    async with (
        site({"/page": http(body, Content_Type=f"text/plain; charset={label}")}) as served,
        web_env(served.port) as env,
    ):
        assert "+ADw-b+AD4- \\u0053\\u0045\\u0043 plain" in await visit(env, served.url("/page"))


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/ndjson", "application/jsonl", "application/toml",
                                  "application/x-yaml", "application/ld+json", "application/x-javascript"])  # fmt: skip
async def test_kinds_of_text(kind: str) -> None:
    async with site({"/page": http('{"a": 1}\n', Content_Type=kind)}) as served, web_env(served.port) as env:
        assert '{"a": 1}' in await visit(env, served.url("/page"))


def gzipped(*parts: bytes, behind: bytes = b"") -> bytes:
    return http(b"".join(map(gzip.compress, parts)) + behind, Content_Type="text/plain", Content_Encoding="gzip")


PACKED = {
    "two parts": (gzipped(b"first ", b"second"), "first second"),
    "many parts": (gzipped(*(b"%d " % number for number in range(500))), "498 499"),
    "large parts": (gzipped(b"a" * 90_000, b"b" * 90_000, b"the end"), "first 0.1 MB"),
    "zeros behind": (gzipped(b"all of it", behind=bytes(512)), "\nall of it\n"),
    "something behind": (gzipped(b"all of it", behind=b"\x1fnonsense"), "\nall of it\n"),
    "half a mark behind": (gzipped(b"all of it", behind=b"\x1f"), "\nall of it\n"),
    "a second part that breaks off": (gzipped(b"first", behind=gzip.compress(b"second")[:-9]), "it broke off"),
    "a second part that is none": (gzipped(b"first", behind=b"\x1f\x8b\x08nonsense"), "packed in a broken way"),
    "too many parts": (gzipped(*[b""] * (MOST_MEMBERS + 1)), f"packed in more than {MOST_MEMBERS} parts"),
    "deflate and more": (
        http(zlib.compress(b"all of it") + gzip.compress(b"x"), Content_Type="text/plain", Content_Encoding="deflate"),
        "\nall of it\n",
    ),
}


@pytest.mark.parametrize("name", PACKED)
async def test_packed_pages(name: str) -> None:
    answer, expected = PACKED[name]
    async with site({"/page": answer}) as served, web_env(served.port, page_mb=0.1) as env:
        assert expected in await visit(env, served.url("/page"))


async def test_parts_that_come_byte_by_byte() -> None:
    body = gzip.compress(b"first ") + gzip.compress(b"second")
    chunks = b"".join(b"1\r\n%b\r\n" % body[at : at + 1] for at in range(len(body))) + b"0\r\n\r\n"
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    async with site({"/page": head + chunks}) as served, web_env(served.port) as env:
        assert "\nfirst second\n" in await visit(env, served.url("/page"))


LONG = "filler words here. " * 8_000 + "THE ANSWER IS 42"


async def test_a_summary_of_a_part_says_so_to_both_sides() -> None:
    async with (
        ScriptedServer(Script.replying("Nothing serves the goal."), keep_requests=True) as server,
        client(server.url) as model,
        site({"/long": http(LONG, Content_Type="text/plain")}) as served,
        web_env(served.port, context=EnvContext(model=model), summarise=True, page_mb=0.15) as env,
    ):
        result = await visit(env, served.url("/long"))
        assert "Nothing serves the goal." in result
        assert "[only the first 0.15 MB of the page were read]" in result, "what was noted is kept"
        more = f"visit it again with start={LONGEST_PAGE} for what follows"
        assert f"[this summary knows characters 0 to {LONGEST_PAGE} of 150000 of the page; {more}]" in result
        asked = json.loads(server.requests[-1])["messages"][1]["content"]
        before = asked.partition("[begin ")[0]
        assert f"[characters 0 to {LONGEST_PAGE} of 150000 are shown]" in before
        assert "[only the first 0.15 MB of the page were read]" in before

        last = await visit(env, served.url("/long"), start=2 * LONGEST_PAGE)
        assert f"[this summary knows characters {2 * LONGEST_PAGE} to 150000 of 150000 of the page]" in last
        asked_before = len(server.requests)
        beyond = await visit(env, served.url("/long"), start=150_000)
        assert "[the page has 150000 characters; there is nothing from 150000 on]" in beyond
        assert len(server.requests) == asked_before, "nobody is asked about nothing"


async def test_a_summary_of_all_of_a_page_says_nothing_of_parts() -> None:
    async with (
        ScriptedServer(Script.replying("It is 283 km long."), keep_requests=True) as server,
        client(server.url) as model,
        site({}) as served,
        web_env(served.port, context=EnvContext(model=model), summarise=True) as env,
    ):
        assert "characters" not in await visit(env, served.url("/good"))
        assert "are shown]" not in json.loads(server.requests[-1])["messages"][1]["content"]


async def test_a_page_that_is_cut_and_could_not_be_summarised_says_both() -> None:
    async with (
        canned(model_http({"error": {"message": "no"}}, 400)) as server,
        client(server.url, retries=0) as model,
        site({"/long": http(ALDER + LONG)}) as served,
        web_env(served.port, context=EnvContext(model=model), summarise=True, page_mb=0.01) as env,
    ):
        result = await visit(env, served.url("/long"))
        assert "[the page could not be summarised: " in result
        assert "[only the first 0.01 MB of the page were read]" in result
