"""Search engines: SearXNG, Serper and Brave; which one is asked, how, and what is made of its answer.

Guarantees: keys come from the environment alone, travel in a header alone, and stand in no result and no error, even
where an engine repeats them. Redirects are not followed, since the key would travel along. Answers are bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec
from pydantic import SecretStr
from yarl import URL

from deskroll.clocks import time_limit
from deskroll.envs.web.errors import PageError
from deskroll.envs.web.fetching import USER_AGENT, answered, cause, read_body
from deskroll.envs.web.hits import Hit
from deskroll.envs.web.settings import WebSettings
from deskroll.envs.web.unpacking import ACCEPTED
from deskroll.errors import InputError
from deskroll.models.retry import pause, retry_after

LONGEST_ANSWER = 2_000_000
"""Bytes of an engine's answer."""
LONGEST_PAUSE_S = 10.0
_MASK = "**********"


@dataclass(frozen=True)
class Engine:
    """What is known of one kind of search engine."""

    name: str
    variable: str
    """The variable of the environment that makes it usable: its key, or SearXNG's address."""
    url: str
    """Where it is; empty: the variable says so."""
    key_header: str
    results: tuple[str, ...]
    """Where in the answer the results are."""
    fields: tuple[str, str, str]
    """How a result names its title, its address and its text."""


ENGINES: Mapping[str, Engine] = {
    each.name: each
    for each in (
        Engine("searxng", "SEARXNG_URL", "", "", ("results",), ("title", "url", "content")),
        Engine(
            "serper", "SERPER_API_KEY", "https://google.serper.dev/search", "X-API-KEY",
            ("organic",), ("title", "link", "snippet"),
        ),
        Engine(
            "brave", "BRAVE_API_KEY", "https://api.search.brave.com/res/v1/web/search", "X-Subscription-Token",
            ("web", "results"), ("title", "url", "description"),
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Backend:
    """The engine that a run asks, with its address and its key."""

    engine: Engine
    url: URL
    key: SecretStr = field(default=SecretStr(""))

    @classmethod
    def of(cls, settings: WebSettings, environ: Mapping[str, str]) -> Backend:
        """The one that the settings and the environment name; `InputError` where there is none."""
        engine = _chosen(settings, environ)
        given = environ.get(engine.variable, "").strip()
        if engine.key_header:
            if not given:
                raise InputError(f"search: {engine.name} needs its key in the variable {engine.variable}")
            if not (given.isascii() and given.isprintable()):
                raise InputError(f"the key in {engine.variable} holds characters that no key has")
            return cls(engine, _address(settings.search_url or engine.url, "search_url"), SecretStr(given))
        if not (settings.search_url or given):
            raise InputError(f"search: {engine.name} needs its address in the variable {engine.variable}")
        base = _address(settings.search_url or given, "search_url" if settings.search_url else engine.variable)
        return cls(engine, base if base.path.rstrip("/").endswith("/search") else base / "search")

    def request(self, query: str, top_k: int) -> tuple[str, URL, dict[str, Any] | None]:
        """Method, address and JSON body of a query."""
        match self.engine.name:
            case "searxng":
                return "GET", self.url.update_query(q=query, format="json"), None
            case "serper":
                return "POST", self.url, {"q": query, "num": top_k}
            case _:
                return "GET", self.url.update_query(q=query, count=str(top_k)), None

    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        own = {"User-Agent": USER_AGENT, "Accept": "application/json", "Accept-Encoding": ACCEPTED}
        return {**own, self.engine.key_header: self.key.get_secret_value()} if self.engine.key_header else own

    def hits(self, body: bytes, top_k: int) -> list[Hit]:
        """What an answer holds."""
        try:
            data = msgspec.json.decode(body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            raise PageError(f"{self.engine.name} answered with something that is not JSON") from None
        found = list(_objects(data, self.engine.results))
        if not found and not _is_answer(data):
            raise PageError(f"{self.engine.name} answered with JSON that is not a search result")
        cleaned = (Hit.cleaned(*(self._bare(each.get(name)) for name in self.engine.fields)) for each in found)
        return [hit for hit in cleaned if hit is not None][:top_k]

    def _bare(self, value: object) -> object:
        key = self.key.get_secret_value()
        return value.replace(key, _MASK) if key and isinstance(value, str) else value


class Searcher:
    """Asks a backend, with patience."""

    def __init__(self, backend: Backend, settings: WebSettings, session: aiohttp.ClientSession) -> None:
        self._backend = backend
        self._settings = settings
        self._session = session

    async def search(self, query: str) -> Sequence[Hit]:
        """The best results of a query."""
        name, seconds = self._backend.engine.name, self._settings.search_seconds
        last = ""
        try:
            async with time_limit(seconds):
                for tries in range(1, self._settings.search_retries + 2):
                    try:
                        return await self._ask(query)
                    except _Passing as failure:
                        last, after = str(failure), failure.after
                    if tries <= self._settings.search_retries:
                        await asyncio.sleep(pause(tries, after, base=self._settings.backoff, longest=LONGEST_PAUSE_S))
        except TimeoutError:
            raise PageError(
                f"{name} gave no answer within {seconds:g} s{f'; before: {last}' if last else ''}"
            ) from None
        raise PageError(f"{name}: {last}; asked {self._settings.search_retries + 1} times")

    async def _ask(self, query: str) -> Sequence[Hit]:
        top_k = self._settings.top_k
        method, url, body = self._backend.request(query, top_k)
        try:
            async with self._session.request(
                method, url, json=body, headers=self._backend.headers(), allow_redirects=False
            ) as response:
                if response.status == 429 or response.status >= 500:
                    raise _Passing(f"it answered {answered(response.status)}", retry_after(response.headers))
                if response.status != 200:
                    raise PageError(f"{self._backend.engine.name} answered {answered(response.status)}")
                answer, cut = await read_body(response, LONGEST_ANSWER)
        except TimeoutError:  # of connecting; the time for all of it passes as a cancellation
            raise _Passing("no connection in time") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _Passing(cause(error)) from None
        if cut:
            raise PageError(f"{self._backend.engine.name} answered with more than {LONGEST_ANSWER} bytes")
        return self._backend.hits(answer, top_k)


class _Passing(Exception):
    """What may be better next time."""

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


def _chosen(settings: WebSettings, environ: Mapping[str, str]) -> Engine:
    if settings.search != "auto":
        return ENGINES[settings.search]
    for engine in ENGINES.values():
        if environ.get(engine.variable, "").strip():
            return engine
    variables = ", ".join(engine.variable for engine in ENGINES.values())
    raise InputError(
        f"env web has nothing to search with: set one of the variables {variables}, "
        "or give it a folder of pages (--set env_options.mirror=FOLDER, or env_config.mirror in the task)"
    )


def _address(text: str, origin: str) -> URL:
    # Without the text: a mistaken address may well hold a password.
    try:
        url = URL(text.strip())
        good = url.scheme in ("http", "https") and bool(url.host) and url.user is None and url.password is None
    except ValueError:
        good = False
    if not good:
        raise InputError(f"{origin} is not an HTTP address without a password; write it like http://127.0.0.1:8888")
    return url.with_fragment(None)


def _objects(data: object, path: Sequence[str]) -> Iterator[dict[str, Any]]:
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    if isinstance(data, list):
        yield from (each for each in data if isinstance(each, dict))


def _is_answer(data: object) -> bool:
    """Whether it can be an answer without results: some engines then leave their list out."""
    return isinstance(data, dict) and bool(data.keys() & {"results", "organic", "web", "query", "searchParameters"})
