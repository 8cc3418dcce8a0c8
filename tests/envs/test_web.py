"""The web environment: its tools, what a visit shows, summaries, settings."""

from __future__ import annotations

import asyncio
import datetime
import gzip
import json
import socket
import ssl
import zlib
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from deskroll.actions import ToolCall
from deskroll.envs import EnvContext, env_kind, env_settings
from deskroll.envs.tooled import LONGEST_RESULT
from deskroll.envs.web import WebEnv, WebSettings
from deskroll.errors import ActionError, ConfigError
from deskroll.models.scripted import Script, ScriptedServer
from deskroll.types import ToolRequest
from tests.envs.web.site import ALDER, HOST, TASK, Handler, Names, http, redirect, site, visit, web_env
from tests.models.servers import canned, client
from tests.models.servers import http as model_http


def test_the_model_is_told_of_two_tools() -> None:
    search, visit = WebEnv(TASK, WebSettings()).tools
    assert (search.name, visit.name) == ("web_search", "web_visit")
    assert search.parameters["required"] == ["queries"]
    assert visit.parameters["required"] == ["urls"]
    assert set(visit.parameters["properties"]) == {"urls", "goal", "start", "whole"}


@pytest.mark.parametrize(
    ("name", "arguments", "canonical"),
    [("web_search", {"queries": ["a"]}, "web_search"), ("web_search_google", {"queries": ["a"]}, "web_search"),
     ("web_visit", {"urls": ["u"], "goal": "g"}, "web_visit"), ("web_visit_jina", {"urls": ["u"]}, "web_visit")],
)  # fmt: skip
def test_calls_by_either_name(name: str, arguments: dict[str, object], canonical: str) -> None:
    (call,) = WebEnv(TASK, WebSettings()).decode(ToolRequest(id="c", name=name, arguments=json.dumps(arguments)))
    assert isinstance(call, ToolCall)
    assert (call.name, call.call_id) == (canonical, "c")
    assert arguments.items() <= call.arguments.items()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("web_search", {}), ("web_search", {"queries": []}), ("web_search", {"queries": "a"}),
     ("web_search", {"queries": ["a"] * 11}),
     ("web_visit", {"urls": []}), ("web_visit", {"urls": ["u"] * 11}), ("web_visit", {"urls": ["u"], "start": -1})],
)  # fmt: skip
def test_arguments_that_do_not_fit(name: str, arguments: dict[str, object]) -> None:
    with pytest.raises(ActionError, match=rf"{name}: the arguments do not fit: .*; see the tool's parameters"):
        WebEnv(TASK, WebSettings()).decode(ToolRequest(id="c", name=name, arguments=json.dumps(arguments)))


async def test_a_page_is_shown_as_text_with_its_links() -> None:
    async with site({}) as served, web_env(served.port) as env:
        result = await visit(env, served.url("/good"))
        assert result.startswith(f"[page 1: {served.url('/good')} | mark ")
        assert "# The Alder" in result
        assert f"[a bridge]({served.url('/bridge.html')})" in result
        assert "<p>" not in result


LATIN = "<html><body><p>" + "Der Fluß fließt über Größe und Höhe. " * 10 + "</p></body></html>"
PAGES = {
    "plain text": (http("line one\n  line two", Content_Type="text/plain"), "line one\n  line two"),
    "JSON": (http('{"length": 283}', Content_Type="application/json"), '{"length": 283}'),
    "a kind of JSON": (http('{"length": 283}', Content_Type="application/ld+json"), '{"length": 283}'),
    "XML": (http("<rss><item>one</item></rss>", Content_Type="application/rss+xml"), "<rss><item>one</item></rss>"),
    "no type, HTML": (http(ALDER, Content_Type=""), "# The Alder"),
    "no type, text": (http("just text", Content_Type=""), "just text"),
    "gzip": (http(gzip.compress(ALDER.encode()), Content_Encoding="gzip"), "# The Alder"),
    "deflate": (http(zlib.compress(ALDER.encode()), Content_Encoding="deflate"), "# The Alder"),
    "bare deflate": (http(zlib.compress(ALDER.encode(), wbits=-15), Content_Encoding="deflate"), "# The Alder"),
    "Latin-1 by header": (http(LATIN.encode("latin-1"), Content_Type="text/html; charset=iso-8859-1"), "Fluß fließt"),
    "Latin-1 by its own word": (
        http(LATIN.replace("<body>", '<meta charset="latin-1"><body>').encode("latin-1"), Content_Type="text/html"),
        "Fluß fließt",
    ),
    "Latin-1 by guess": (http(LATIN.encode("latin-1"), Content_Type="text/html"), "Fluß fließt"),
    "UTF-16": (http(LATIN.encode("utf-16"), Content_Type="text/html"), "Fluß fließt"),
    "GB18030": (http("<p>河流很长</p>".encode("gb18030"), Content_Type="text/html; charset=gb18030"), "河流很长"),
    "next to nothing": (http("<div>1 &lt; 2<script>no()</script><b>bold</b></div>"), "1 < 2bold"),
    "redirects": (redirect("/hop"), "# The Alder"),
}  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
async def test_kinds_of_pages(name: str) -> None:
    answer, expected = PAGES[name]
    answers: dict[str, bytes | Handler] = {"/page": answer, "/hop": redirect("good?x=1")}
    async with site(answers) as served, web_env(served.port) as env:
        result = await visit(env, served.url("/page"))
        assert expected in result
        if name == "redirects":
            assert result.startswith(f"[page 1: {served.url('/good?x=1')} |"), "the address is that of the end"


async def test_a_long_page_is_read_in_parts() -> None:
    text = "".join(f"<{number:06d}>" for number in range(1000))
    async with site({"/long": http(text, Content_Type="text/plain")}) as served, web_env(served.port) as env:
        first = await visit(env, served.url("/long"), start=0)
        assert "[cut" not in first, "8000 characters fit"
    async with (
        site({"/long": http(text, Content_Type="text/plain")}) as served,
        web_env(served.port, page_chars=4000) as env,
    ):
        first = await visit(env, served.url("/long"))
        assert "\n[cut: characters 0 to 4000 of 8000 are shown; visit it again with start=4000 for more]\n" in first
        second = await visit(env, served.url("/long"), start=4000)
        assert text[:4000] in first
        assert text[4000:] in second
        assert "has 8000 characters; there is nothing from 9000 on" in await visit(env, served.url("/long"), start=9000)


async def test_many_pages_share_the_room() -> None:
    text = "long " * 10_000
    async with site({"/long": http(text, Content_Type="text/plain")}) as served, web_env(served.port) as env:
        result = await visit(env, *[served.url("/long")] * 10)
        assert len(result) <= LONGEST_RESULT
        assert result.count("[cut: characters 0 to ") == result.count("[end of page ") == 10


async def test_only_so_many_pages_at_a_time() -> None:
    under_way, most, three = 0, 0, asyncio.Event()

    async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == 3:
            three.set()
        await three.wait()  # the first ones wait for each other: fewer at a time would never end
        under_way -= 1
        writer.write(http(ALDER))

    async with site({"/page": counted}) as served, web_env(served.port, parallel=3) as env:
        assert (await visit(env, *[served.url("/page")] * 9)).count("283 kilometres") == 9
    assert most == 3


async def test_a_name_that_is_not_there_and_a_port_that_is_closed() -> None:
    with socket.socket() as nobody:  # bound, so that nobody else has the port, and nobody listens
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        async with web_env(port) as env:
            assert (await visit(env, "http://nowhere.example/")).endswith("there is no such host")
            assert (await visit(env, f"http://{HOST}:{port}/")).endswith("no connection")


@pytest.fixture
def own_certificate(tmp_path: Path) -> ssl.SSLContext:
    """What a server needs to speak TLS under a certificate that nobody vouches for."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(1)).not_valid_after(now + datetime.timedelta(1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
    written = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    both = tmp_path / "both.pem"
    both.write_bytes(written + builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(both)
    return context


async def test_encryption_without_a_valid_certificate_is_refused(own_certificate: ssl.SSLContext) -> None:
    async with site({}, own_certificate) as served, web_env(served.port) as env:
        result = await visit(env, served.url("/good").replace("http:", "https:"))
        assert result.endswith("its certificate or its encryption is not valid")
        assert served.heads == []


async def test_a_listed_host_without_a_port_has_the_usual_ones() -> None:
    async with site({}) as served, web_env(allow_hosts=[HOST], names=Names()) as env:
        assert "is not visited; allowed: 80, 443, 8080, 8443" in await visit(env, served.url("/good"))


async def test_a_summary_is_the_models_and_the_page_is_fenced() -> None:
    script = Script.replying("The Alder is 283 kilometres long.")
    async with (
        ScriptedServer(script, keep_requests=True) as server,
        client(server.url) as model,
        site({}) as served,
        web_env(served.port, context=EnvContext(model=model), summarise=True) as env,
    ):
        result = await visit(env, served.url("/good"))
        assert "The Alder is 283 kilometres long." in result
        assert "Grey Tarn" not in result
        asked = json.loads(server.requests[-1])["messages"]
        assert [each["role"] for each in asked] == ["system", "user"]
        head, _, rest = asked[1]["content"].partition("[begin ")
        mark, _, page = rest.partition("]")
        assert head.startswith("Goal: the length\n")
        assert page.endswith(f"[end {mark}]")
        assert mark in asked[0]["content"]
        assert "Grey Tarn" in page
        assert "Grey Tarn" in await visit(env, served.url("/good"), goal=""), "without a goal, the page itself"


@pytest.mark.parametrize("said", ["", None])
async def test_without_a_summary_the_page_itself_is_shown(said: str | None) -> None:
    answer = model_http({"choices": [{"index": 0, "message": {"role": "assistant", "content": said or " "}}]})
    async with (
        canned(answer if said is not None else model_http({"error": {"message": "no"}}, 400)) as server,
        client(server.url, retries=0) as model,
        site({}) as served,
        web_env(served.port, context=EnvContext(model=model), summarise=True) as env,
    ):
        result = await visit(env, served.url("/good"))
        assert "[the page could not be summarised: " in result
        assert "Grey Tarn" in result


def test_settings_are_checked() -> None:
    kind = env_kind("web")
    assert kind is WebEnv
    assert env_settings(
        kind, {"allow_hosts": ["a.example", "10.0.0.1:81", "[::1]:80", "WIKI.lan.", "bücher.example"]}, "web"
    )
    for wrong in (
        "", "http://a.example", "a.example/x", "a b", "*.example", "u@a.example", "[::1", "a.example:99999",
        "wiki.lan#x", "wiki.lan?", "wiki.lan/", ".lan", ".", "a..b", "wiki.lan:0", "wiki.lan:", "fd00::7", "[v1.x]",
        "[fe80::1%lo]", " a",
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=r"allow_hosts: .* is not a host; write name, name:port"):
            env_settings(kind, {"allow_hosts": [wrong]}, "web")
    for wrong_option in ({"search": "bing"}, {"top_k": 0}, {"page_mb": 0}, {"page_chars": 50_000}, {"api_key": "x"}):
        with pytest.raises(ConfigError):
            env_settings(kind, wrong_option, "web")


async def test_it_can_be_closed_without_having_been_used() -> None:
    async with web_env() as env:
        assert (await env.reset()).instruction == "q"
