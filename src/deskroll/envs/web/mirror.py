"""Mirror: a folder of pages (<host>/<path>, as `wget --mirror` leaves it) that is the whole web for a task.

Guarantees: nothing outside of the folder is read, and nothing is asked of any network; what search passes over (hidden
files, what lies beside the hosts' folders) cannot be visited either. The index of a folder is built once a process,
when it is first searched; the same folder and query give the same results in the same order.
"""

from __future__ import annotations

import asyncio
import hashlib
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

from deskroll.envs.limited import Bounds, FunctionCrashed, FunctionFailed, LimitExceeded, limited
from deskroll.envs.web.addresses import read_url
from deskroll.envs.web.errors import PageError
from deskroll.envs.web.hits import Hit
from deskroll.envs.web.indexing import MOST_PAGES, Index, build, kind_of, page_at, page_files
from deskroll.envs.web.page import Page
from deskroll.envs.words import words
from deskroll.errors import InputError
from deskroll.host.below import open_linked_below, read_below

_BOUNDS = Bounds(seconds=180, cpu_seconds=180, memory_bytes=2 * 2**30, result_bytes=256 * 2**20)
_K1, _B = 1.5, 0.75
_SNIPPET = 300
_indexes: dict[Path, Index] = {}
"""Those of this process, by folder."""
_locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()


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
            raise InputError(f"the mirror {root} is not a folder; name one that holds <host>/<path> files")
        count = 0
        for count, _ in enumerate(page_files(root), 1):
            if count > MOST_PAGES:
                raise InputError(f"the mirror {root} has more than {MOST_PAGES} pages; make it smaller")
        if not count:
            raise InputError(f"the mirror {root} has no pages; they are expected as <host>/<path>")

    @staticmethod
    def digest(root: Path) -> str:
        """A hash of all pages: names and contents."""
        total = hashlib.blake2b(digest_size=16)
        real = root.resolve()
        for path in page_files(root):
            try:
                with os.fdopen(open_linked_below(real, str(path.relative_to(real))), "rb") as file:
                    content = hashlib.file_digest(file, hashlib.blake2b).digest()
            except OSError as error:
                raise InputError(f"the mirror {root}: {path} cannot be read: {error.strerror}") from None
            name = os.fsencode(path.relative_to(real))
            total.update(b"%d:%b%b" % (len(name), name, content))
        return total.hexdigest()

    async def search(self, query: str) -> Sequence[Hit]:
        """The pages that fit best (BM25)."""
        index = await _index(self._root)
        return await asyncio.to_thread(_found, index, query[:1000], self._top_k)

    async def fetch(self, address: str) -> Page:
        """A page of the folder."""
        url = read_url(address)
        for path in self._candidates(url):
            real = page_at(self._root, path)
            if real is None:
                continue
            try:
                place = str(real.relative_to(self._root))
                body = await asyncio.to_thread(read_below, self._root, place, most=self._most + 1)
            except OSError:  # a file that may not be read
                continue
            return Page(url=str(url), kind=kind_of(path), body=body[: self._most], cut=len(body) > self._most)
        raise PageError("there is no such page in the mirror, and nothing else can be reached")

    def _candidates(self, url: URL) -> list[Path]:
        # A host of other letters than English may be a folder by either of its names.
        hosts = [(host or "").removesuffix(".") for host in (url.raw_host, url.host)]
        homes = [self._root / (host if url.is_default_port() else f"{host}:{url.port}") for host in hosts if host]
        found: list[Path] = []
        for place, query in ((url.path, url.query_string), (url.raw_path, unquote(url.raw_query_string))):
            name = place.lstrip("/")
            if query:
                names = [f"{name}?{query}", f"{name}?{query}.html"]
            elif not name or name.endswith("/"):
                names = [f"{name}index.html"]
            else:
                names = [name, f"{name}.html", f"{name}/index.html"]
            found.extend(home / each for home in homes for each in names)
        return list(dict.fromkeys(found))


async def _index(root: Path) -> Index:
    """The index of a folder, built if need be, by one of those who want it."""
    async with _locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        if root not in _indexes:
            try:
                built = await limited(build, os.fsencode(root), _BOUNDS, confined=False)
            except (LimitExceeded, FunctionFailed, FunctionCrashed) as error:
                raise PageError(f"the mirror cannot be searched: {error}") from None
            _indexes[root] = await asyncio.to_thread(msgspec.msgpack.decode, built, type=Index)
        return _indexes[root]


def _found(index: Index, query: str, top_k: int) -> list[Hit]:
    asked = list(dict.fromkeys(words(query, stem=True)))
    looked_for = sorted({*asked, *words(query, stem=False)}, key=len, reverse=True)
    hits = []
    for number in _ranked(index, asked)[:top_k]:
        page = index.pages[number]
        hits.append(Hit.cleaned(page.title or page.url, page.url, _snippet(page.text, looked_for)))
    return [hit for hit in hits if hit is not None]


def _ranked(index: Index, asked: Sequence[str]) -> list[int]:
    scores: defaultdict[int, float] = defaultdict(float)
    total = len(index.pages)
    average = sum(page.words for page in index.pages) / total if total else 1.0
    for word in asked:
        postings = index.postings.get(word, [])
        rarity = math.log(1 + (total - len(postings) + 0.5) / (len(postings) + 0.5))
        for number, count in postings:
            length = 1 - _B + _B * index.pages[number].words / average
            scores[number] += rarity * count * (_K1 + 1) / (count + _K1 * length)
    return sorted(scores, key=lambda number: (-scores[number], index.pages[number].url))


def _snippet(text: str, looked_for: Sequence[str]) -> str:
    """The part of a text that holds the most of the words."""
    flat = " ".join(text.split())
    pattern = "|".join(re.escape(word) for word in looked_for)
    places = [(each.start(), each[0].casefold()) for each in re.finditer(pattern, flat, re.IGNORECASE)][:200]
    best, most = 0, 0
    for start, _ in places:
        held = len({word for place, word in places if start <= place < start + _SNIPPET})
        if held > most:
            best, most = start, held
    begin = flat.rfind(". ", 0, best) + 1 if best > 0 else 0
    begin = begin if best - begin < _SNIPPET // 2 else best
    return flat[begin : begin + _SNIPPET].strip()
