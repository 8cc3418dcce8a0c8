"""Search: the three kinds of engine over real HTTP, what they may answer, and their keys, which nobody sees."""

from __future__ import annotations

import gzip
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deskroll.envs.web import WebEnv, WebSettings
from deskroll.envs.web.search import ENGINES, Backend
from deskroll.errors import InputError
from tests.envs.web.site import TASK, Handler, Site, http, search, site, web_env

KEY = "k3y-that-nobody-sees"
FOUND = [("The Alder", "https://rivers.example/alder", "283 km"), ("Otters", "https://rivers.example/otters", "61")]


def searxng(found: list[tuple[str, str, str]] = FOUND) -> object:
    return {"query": "q", "results": [{"title": t, "url": u, "content": c, "engine": "x"} for t, u, c in found]}


def serper(found: list[tuple[str, str, str]] = FOUND) -> object:
    return {"searchParameters": {"q": "q"}, "organic": [{"title": t, "link": u, "snippet": c} for t, u, c in found]}


def brave(found: list[tuple[str, str, str]] = FOUND) -> object:
    results = [{"title": t, "url": u, "description": c} for t, u, c in found]
    return {"type": "search", "query": {}, "web": {"results": results}}


ANSWERS: dict[str, Callable[..., object]] = {"searxng": searxng, "serper": serper, "brave": brave}


def as_json(body: object, status: int = 200, **headers: str) -> bytes:
    return http(json.dumps(body), status, **{"Content_Type": "application/json", **headers})


@asynccontextmanager
async def engine(
    name: str, answer: bytes | Handler | list[bytes], **options: object
) -> AsyncIterator[tuple[Site, WebEnv]]:
    """An engine that answers so (with a list: one after the other), and an environment that asks it."""
    answers = list(answer) if isinstance(answer, list) else []

    async def each(reader: object, writer: object) -> None:
        writer.write(answers.pop(0) if len(answers) > 1 else answers[0])  # type: ignore[attr-defined]

    async with site({"/search": each if answers else answer}) as served:  # type: ignore[dict-item]
        url = f"http://127.0.0.1:{served.port}"
        environ = {"SEARXNG_URL": url} if name == "searxng" else {ENGINES[name].variable: KEY}
        own = {} if name == "searxng" else {"search_url": f"{url}/search"}
        async with web_env(environ=environ, **{"backoff": 0.001, **own, **options}) as env:
            yield served, env


@pytest.mark.parametrize("name", ANSWERS)
async def test_each_engine_is_asked_its_own_way(name: str) -> None:
    async with engine(name, as_json(ANSWERS[name]()), top_k=7) as (served, env):
        assert await search(env, "length of the Alder & more") == (
            "query 1: length of the Alder & more\n"
            "1. The Alder\n   https://rivers.example/alder\n   283 km\n"
            "2. Otters\n   https://rivers.example/otters\n   61"
        )
    (head,), (body,) = served.heads, served.bodies
    start = head.splitlines()[0]
    match name:
        case "searxng":
            assert start.startswith("GET /search?q=length+of+the+Alder+%26+more&format=json ")
        case "serper":
            assert start.startswith("POST /search ")
            assert json.loads(body) == {"q": "length of the Alder & more", "num": 7}
            assert f"\nX-API-KEY: {KEY}\r\n" in head
        case _:
            assert start.startswith("GET /search?q=length+of+the+Alder+%26+more&count=7 ")
            assert f"\nX-Subscription-Token: {KEY}\r\n" in head
    assert KEY not in start
    assert KEY not in body.decode()


async def test_several_queries_each_with_its_own_result_or_error() -> None:
    answers = [as_json(searxng(FOUND[:1])), as_json({"error": "x"}, 403), as_json(searxng([]))]
    async with engine("searxng", answers, parallel=1) as (_, env):
        assert (await search(env, "one", "two", "three")).split("\n\n") == [
            "query 1: one\n1. The Alder\n   https://rivers.example/alder\n   283 km",
            "error: two: searxng answered 403 (Forbidden)",
            "query 3: three\nno results",
        ]


async def test_what_is_found_is_cleaned_and_cut() -> None:
    found = [
        ("<strong>The</strong>\n Alder &amp; co\x1b[2J", "https://a.example/", "l" * 5000),
        ("no page", "javascript:alert(1)", ""), ("no page", "file:///etc/passwd", ""), ("", "https://b.example/", ""),
    ]  # fmt: skip
    async with engine("brave", as_json(brave(found * 9)), top_k=3) as (_, env):
        lines = (await search(env, "q")).splitlines()
        assert lines[1:3] == ["1. The Alder & co [2J", "   https://a.example/"]
        assert len(lines[3]) < 420
        assert lines[4:6] == ["2. (no title)", "   https://b.example/"]
        assert lines[6].startswith("3. ")
        assert len(lines) == 9
    long = [("t" * 200, f"https://a.example/{n}", "s" * 400) for n in range(20)]
    async with engine("brave", as_json(brave(long)), top_k=20) as (_, env):
        result = await search(env, *["q"] * 10)
        assert result.count("more are not shown]") == 10, "every query has its share"


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_what_passes_is_asked_again(status: int) -> None:
    answers = [as_json({}, status, Retry_After="0"), as_json({}, status), as_json(searxng())]
    async with engine("searxng", answers) as (served, env):
        assert "1. The Alder" in await search(env, "q")
        assert len(served.heads) == 3
    async with engine("searxng", as_json({}, status), search_retries=2) as (served, env):
        assert f"searxng: it answered {status} (" in (result := await search(env, "q"))
        assert result.endswith("; asked 3 times")
        assert len(served.heads) == 3


async def test_an_engine_cannot_make_us_wait_for_long() -> None:
    async with engine("searxng", as_json({}, 429, Retry_After="99999"), search_seconds=3) as (_, env):
        assert (await search(env, "q")).endswith(
            "searxng gave no answer within 3 s; before: it answered 429 (Too Many Requests)"
        )


HOSTILE = {
    "garbage": (http(b"\xff\xfe\x00garbage"), "not JSON"),
    "HTML": (http("<html>Sign in</html>"), "not JSON"),
    "nothing": (http(b""), "not JSON"),
    "a list": (as_json([1, 2]), "not a search result"),
    "a number": (as_json(7), "not a search result"),
    "an error as a result": (as_json({"message": f"bad key {KEY}"}), "not a search result"),
    "results of another kind": (as_json({"organic": "none", "web": 1}), "no results"),
    "results that are none": (as_json({"organic": [1, None, [], {"link": 5}, {"title": {}}]}), "no results"),
    "deep": (http("[" * 900_000), "not JSON"),
    "huge": (http(b'{"organic": ["' + b"a" * 3_000_000 + b'"]}'), "more than 2000000 bytes"),
    "a bomb": (http(gzip.compress(b" " * 30_000_000), Content_Encoding="gzip"), "more than 2000000 bytes"),
    "unknown packing": (http(b"x", Content_Encoding="br"), "packed as 'br'"),
    "a redirect": (http(b"", 302, Location="http://thief.example/"), "answered 302 (Found)"),
    "unauthorised": (as_json({"message": f"the key {KEY} is wrong"}, 401), "answered 401 (Unauthorized)"),
    "no HTTP": (b"garbage\r\n\r\n", "proper HTTP"),
    "cut off": (http(b'{"organic": []}', length=999), "broke off"),
    "the key in results": (as_json(serper([(f"t {KEY}", f"https://a.example/?k={KEY}", f"s {KEY}")])), "1. t ****"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_whatever_an_engine_answers(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    answer, expected = HOSTILE[name]
    async with engine("serper", [answer, answer, as_json(serper())], search_retries=0) as (served, env):
        result = await search(env, "q")
        assert expected in result
        assert KEY not in result + caplog.text
        await search(env, "q")
        assert "1. The Alder" in await search(env, "q")
        assert all(path == "/search" for path in served.paths)


async def test_an_engine_that_is_not_there() -> None:
    with socket.socket() as nobody:  # bound, so that nobody else has the port, and nobody listens
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        async with web_env(environ={"SEARXNG_URL": url}, search_retries=1, backoff=0.001) as env:
            assert await search(env, "q") == "error: q: searxng: no connection; asked 2 times"


def test_which_engine_is_asked() -> None:
    def chosen(environ: dict[str, str], **options: object) -> tuple[str, str]:
        backend = Backend.of(WebSettings.model_validate(options), environ)
        assert KEY not in repr(backend)
        return backend.engine.name, str(backend.url)

    everything = {"SEARXNG_URL": "http://s.example/x/", "SERPER_API_KEY": KEY, "BRAVE_API_KEY": KEY}
    assert chosen(everything) == ("searxng", "http://s.example/x/search")
    assert chosen({"BRAVE_API_KEY": KEY, "SERPER_API_KEY": KEY})[0] == "serper"
    assert chosen({"BRAVE_API_KEY": KEY}) == ("brave", "https://api.search.brave.com/res/v1/web/search")
    assert chosen(everything, search="serper") == ("serper", "https://google.serper.dev/search")
    assert chosen(everything, search="brave", search_url="http://p.example/b") == ("brave", "http://p.example/b")
    assert chosen({}, search="searxng", search_url="http://s.example/search") == ("searxng", "http://s.example/search")


@pytest.mark.parametrize(
    ("environ", "options", "said"),
    [({}, {}, "SEARXNG_URL, SERPER_API_KEY, BRAVE_API_KEY.*mirror"),
     ({"SERPER_API_KEY": " "}, {}, "nothing to search with"),
     ({"SERPER_API_KEY": KEY}, {"search": "brave"}, "search: brave needs its key in the variable BRAVE_API_KEY"),
     ({}, {"search": "searxng"}, "search: searxng needs its address in the variable SEARXNG_URL"),
     ({"SERPER_API_KEY": f"{KEY}\n{KEY}"}, {}, "the key in SERPER_API_KEY holds characters that no key has"),
     ({"SEARXNG_URL": f"http://u:{KEY}@s.example"}, {}, "SEARXNG_URL is not an HTTP address without a password"),
     ({"SEARXNG_URL": KEY}, {}, "SEARXNG_URL is not an HTTP address"),
     ({"SERPER_API_KEY": KEY}, {"search_url": "ftp://x"}, "search_url is not an HTTP address")],
)  # fmt: skip
async def test_nothing_to_search_with(environ: dict[str, str], options: dict[str, object], said: str) -> None:
    settings = WebSettings.model_validate(options)
    with pytest.raises(InputError, match=said) as raised:
        Backend.of(settings, environ)
    assert "\n" not in str(raised.value)
    assert KEY not in str(raised.value)
    async with web_env(environ=environ, **options) as env:
        assert (await search(env, "q")).startswith("error: q: ")


def test_preparing_says_so_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in ENGINES.values():
        monkeypatch.delenv(each.variable, raising=False)
    with pytest.raises(InputError, match="set one of the variables SEARXNG_URL, SERPER_API_KEY, BRAVE_API_KEY"):
        WebEnv.prepare([TASK], WebSettings(), Path())
    monkeypatch.setenv("BRAVE_API_KEY", KEY)
    WebEnv.prepare([TASK], WebSettings(), Path())
