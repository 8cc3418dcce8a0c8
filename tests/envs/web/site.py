"""A web of our own on loopback: a server that sends bytes of our choice, names that lead where we say, and the env."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from deskroll.actions import ToolCall
from deskroll.envs.base import EnvContext
from deskroll.envs.web import Outside, Resolver, WebEnv, WebSettings
from deskroll.envs.web.outside import AddressInfo, open_socket
from deskroll.types import Task

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HOST = "site.example"
TASK = Task(id="t", instruction="q", answer="a")
ALDER = (
    "<html><head><title>The Alder</title></head><body><nav><a href='/'>Home</a></nav><main><h1>The Alder</h1>"
    "<p>The Alder rises at Grey Tarn in the Hollin Hills and reaches the sea at Port Sevrin after 283 kilometres.</p>"
    "<p>At Tarrow it is crossed by <a href='/bridge.html'>a bridge</a> of seven arches, which was finished in 1764.</p>"
    "<p>In winter the upper part freezes for about six weeks, and a fair is held on the ice by the people of Mell.</p>"
    "</main></body></html>"
)


@dataclass
class Site:
    """Answers by path: with bytes, or by a handler; keeps the heads and bodies of what it was asked."""

    answers: dict[str, bytes | Handler]
    port: int = 0
    heads: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def url(self, path: str) -> str:
        return f"http://{HOST}:{self.port}{path}"

    @property
    def paths(self) -> list[str]:
        return [head.split()[1] for head in self.heads]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            length = next((line[15:] for line in head.splitlines() if line.lower().startswith("content-length:")), "0")
            self.bodies.append(await reader.readexactly(int(length)))
            self.heads.append(head)
            answer = self.answers.get(head.split()[1].partition("?")[0], http(b"nothing here", 404))
            if callable(answer):
                await answer(reader, writer)
            else:
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone
        finally:
            writer.close()


@asynccontextmanager
async def site(answers: Mapping[str, bytes | Handler], tls: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
    made = Site({"/good": http(ALDER), "/secret": http("<p>SECRET</p>"), **answers})
    listener = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    async with listener:
        made.port = listener.sockets[0].getsockname()[1]
        yield made


def http(body: str | bytes, status: int = 200, *, length: int | None = None, **headers: str) -> bytes:
    """An answer; the length may be a lie."""
    data = body if isinstance(body, bytes) else body.encode()
    given = {"Content_Type": "text/html; charset=utf-8", "Content_Length": str(len(data) if length is None else length)}
    lines = [f"HTTP/1.1 {status} Whatever"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in {**given, **headers}.items() if value]
    return "\r\n".join([*lines, "", ""]).encode() + data


def redirect(location: str) -> bytes:
    return http(b"", 302, Location=location)


class Names:
    """A resolver: each name has its answers, one after the other, and the last one from then on."""

    def __init__(self, **names: Sequence[Sequence[str]]) -> None:
        self._names = {"site": [["127.0.0.1"]], **names}
        self.asked: list[str] = []

    async def addresses(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        name = host.removesuffix(".").removesuffix(".example")
        answers = self._names.get(name)
        if answers is None:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return answers[min(self.asked.count(host), len(answers)) - 1]


class Sockets:
    """Makes sockets to loopback only: from a test nothing reaches the internet, whatever is wrong with the guard."""

    def __init__(self) -> None:
        self.dialled: list[str] = []

    def __call__(self, info: AddressInfo) -> socket.socket:
        self.dialled.append(str(info[4][0]))
        if info[4][0] != "127.0.0.1":
            raise OSError(errno.ENETUNREACH, "tests stay on this machine")
        return open_socket(info)


@asynccontextmanager
async def web_env(
    port: int = 0,
    *,
    names: Resolver | None = None,
    sockets: Sockets | None = None,
    environ: Mapping[str, str] | None = None,
    context: EnvContext | None = None,
    own: Sequence[str] = (),
    task: Task = TASK,
    **options: object,
) -> AsyncIterator[WebEnv]:
    """An environment that may visit the site on that port; `own` are the public addresses of its machine."""
    outside = Outside(names or Names(), sockets or Sockets(), environ or {}, own.__contains__)
    settings = WebSettings.model_validate({"allow_hosts": [f"{HOST}:{port}"] if port else [], **options})
    env = WebEnv(task, settings, context, outside)
    try:
        yield env
    finally:
        await env.close()


async def visit(env: WebEnv, *urls: str, **more: object) -> str:
    call = ToolCall(name="web_visit", arguments={"urls": list(urls), "goal": "the length", **more}, call_id="c")
    (result,) = (await env.step([call])).observation.results
    return result


async def search(env: WebEnv, *queries: str) -> str:
    call = ToolCall(name="web_search", arguments={"queries": list(queries)}, call_id="c")
    (result,) = (await env.step([call])).observation.results
    return result
