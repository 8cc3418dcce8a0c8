"""Mirror: a folder of pages (<host>/<path>, as `wget --mirror` leaves it) that is the whole web for a task.

Guarantees: nothing outside of the folder is read, and nothing is asked of any network. The index of a folder is built
once a process, when it is first searched; the same folder and query give the same results in the same order.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import weakref
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import msgspec
from yarl import URL

from deskroll.envs.limited import Bounds, LimitedError, limited
from deskroll.envs.web.addresses import read_url
from deskroll.envs.web.errors import PageError
from deskroll.envs.web.hits import Hit
from deskroll.envs.web.indexing import KINDS, MOST_PAGES, Index, build, page_files, words_of
from deskroll.envs.web.page import Page
from deskroll.errors import InputError

_BOUNDS = Bounds(seconds=180, cpu_seconds=180, memory_bytes=2 * 2**30, result_bytes=256 * 2**20)
_K1, _B = 1.5, 0.75
_SNIPPET = 300


class Mirror:
    """One folder of pages."""

    def __init__(self, root: Path, *, top_k: int, most_bytes: int) -> None:
        self._root = root.resolve()
        self._top_k = top_k
        self._most = most_bytes

    @staticmethod
    def check(root: Path) -> None:
        """Refuse, with an `InputError`, a folder that is no mirror."""
        if not root.is_dir():
            raise InputError(f"the mirror {root} is no folder; name one that holds <host>/<path> files")
        count = 0
        for count, _ in enumerate(page_files(root), 1):
            if count > MOST_PAGES:
                raise InputError(f"the mirror {root} has more than {MOST_PAGES} pages; make it smaller")
        if not count:
            raise InputError(f"the mirror {root} has no pages; they are expected as <host>/<path>")

    async def search(self, query: str) -> Sequence[Hit]:
        """The pages that fit best (BM25)."""
        index = await _shelf.index(self._root)
        words = list(dict.fromkeys(words_of(query[:1000])))
        hits = []
        for number in _ranked(index, words)[: self._top_k]:
            page = index.pages[number]
            hits.append(Hit.cleaned(page.title or page.url, page.url, _snippet(page.text, words)))
        return [hit for hit in hits if hit is not None]

    async def fetch(self, address: str) -> Page:
        """A page of the folder."""
        url = read_url(address)
        for path in self._candidates(url):
            try:
                real = path.resolve()
                if not real.is_relative_to(self._root) or not real.is_file():
                    continue
                body = await asyncio.to_thread(_read, real, self._most + 1)
            except (OSError, ValueError):  # a name too long, or no name at all; a file that may not be read
                continue
            kind = KINDS.get(Path(path.name.partition("?")[0]).suffix.lower(), "")
            return Page(url=str(url), kind=kind, body=body[: self._most], cut=len(body) > self._most)
        raise PageError("there is no such page in the mirror, and nothing else can be reached")

    def _candidates(self, url: URL) -> list[Path]:
        host = url.raw_host or ""
        home = self._root / (f"{host}:{url.explicit_port}" if url.explicit_port else host)
        found: list[Path] = []
        for place, query in ((url.path, url.query_string), (url.raw_path, unquote(url.raw_query_string))):
            name = place.lstrip("/")
            if query:
                names = [f"{name}?{query}", f"{name}?{query}.html"]
            elif not name or name.endswith("/"):
                names = [f"{name}index.html"]
            else:
                names = [name, f"{name}.html", f"{name}/index.html"]
            found.extend(home / each for each in names)
        return list(dict.fromkeys(found))


class _Shelf:
    """The indexes of this process, by folder."""

    def __init__(self) -> None:
        self._indexes: dict[Path, Index] = {}
        self._locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()

    async def index(self, root: Path) -> Index:
        """The index of a folder, built if need be, by one of those who want it."""
        async with self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            if root not in self._indexes:
                try:
                    built = await limited(build, os.fsencode(root), _BOUNDS)
                except LimitedError as error:
                    raise PageError(f"the mirror cannot be searched: {error}") from None
                self._indexes[root] = await asyncio.to_thread(msgspec.msgpack.decode, built, type=Index)
            return self._indexes[root]


_shelf = _Shelf()


def _read(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most)


def _ranked(index: Index, words: Sequence[str]) -> list[int]:
    scores: defaultdict[int, float] = defaultdict(float)
    total = len(index.pages)
    average = sum(page.words for page in index.pages) / total if total else 1.0
    for word in words:
        postings = index.postings.get(word, [])
        rarity = math.log(1 + (total - len(postings) + 0.5) / (len(postings) + 0.5))
        for number, count in postings:
            length = 1 - _B + _B * index.pages[number].words / average
            scores[number] += rarity * count * (_K1 + 1) / (count + _K1 * length)
    return sorted(scores, key=lambda number: (-scores[number], index.pages[number].url))


def _snippet(text: str, words: Sequence[str]) -> str:
    """The part of a text that holds the most of the words."""
    flat = " ".join(text.split())
    pattern = "|".join(re.escape(word) for word in words)
    places = [(each.start(), each[0].casefold()) for each in re.finditer(pattern, flat, re.IGNORECASE)][:200]
    best, most = 0, 0
    for start, _ in places:
        held = len({word for place, word in places if start <= place < start + _SNIPPET})
        if held > most:
            best, most = start, held
    begin = flat.rfind(". ", 0, best) + 1 if best > 0 else 0
    begin = begin if best - begin < _SNIPPET // 2 else best
    return flat[begin : begin + _SNIPPET].strip()
