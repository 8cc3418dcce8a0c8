"""The web that an episode has: the open one behind its guard, or a mirror. Both search and fetch, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from deskroll.envs.web.errors import PageError
from deskroll.envs.web.fetching import Fetcher, session
from deskroll.envs.web.hits import Hit
from deskroll.envs.web.outside import Outside
from deskroll.envs.web.page import Page
from deskroll.envs.web.search import Backend, Searcher
from deskroll.envs.web.settings import WebSettings
from deskroll.errors import InputError


class Web(Protocol):
    """Where pages are found and fetched; whatever fails is a `PageError`."""

    async def search(self, query: str) -> Sequence[Hit]:
        """The best pages for a query."""

    async def fetch(self, address: str) -> Page:
        """The page at an address."""


class OpenWeb:
    """The open web. Use with `async with OpenWeb.open(...)`."""

    def __init__(self, fetcher: Fetcher, searcher: Searcher | None, problem: str) -> None:
        self._fetcher = fetcher
        self._searcher = searcher
        self._problem = problem

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: WebSettings, outside: Outside) -> AsyncIterator[OpenWeb]:
        """Open what the settings name; where there is nothing to search with, pages can still be visited."""
        try:
            backend, problem = Backend.of(settings, outside.environ), ""
        except InputError as error:
            backend, problem = None, str(error)
        async with (
            session(settings.connect_seconds, outside, trusted=False) as public,
            session(settings.connect_seconds, outside, trusted=True) as trusted,
        ):
            searcher = Searcher(backend, settings, trusted) if backend else None
            yield cls(Fetcher(settings, public, trusted), searcher, problem)

    async def search(self, query: str) -> Sequence[Hit]:
        """Ask the search engine."""
        if self._searcher is None:
            raise PageError(self._problem)
        return await self._searcher.search(query)

    async def fetch(self, address: str) -> Page:
        """Get a page."""
        return await self._fetcher.fetch(address)
