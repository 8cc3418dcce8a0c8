"""Shelf: the indexes that a process has open, a bounded number of them, and the threads that open and search them.

Guarantees: an index that many ask for is opened once; what takes long (opening, building) keeps nobody from searching,
and neither takes a thread that others of the process wait for; once opened, a corpus means the same documents until
`renew`, also when its index was put away in between. A fork has threads and locks of its own.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from deskroll.envs.rag.index import Hit, Index, opened, reopen_index
from deskroll.envs.rag.settings import RagSettings

MOST_OPEN = 16
"""Indexes that are open at once; each holds about five files."""
_OPENING, _SEARCHING = 2, 4
"""Threads."""
_Key = tuple[Path, str]


class Shelf:
    """The open indexes of this process; what was not used for longest is let go first."""

    def __init__(self, most: int = MOST_OPEN) -> None:
        self._most = most
        self._open: OrderedDict[_Key, Index] = OrderedDict()
        self._names: dict[_Key, str] = {}
        self._opening: dict[_Key, Future[Index]] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def renew(self, path: Path, settings: RagSettings) -> Index:
        """The index of what a corpus holds now; blocks while it is opened or built."""
        index = opened(path, settings)
        self._own()
        self._put(_key(path, settings), index)
        return index

    async def index(self, path: Path, settings: RagSettings) -> Index:
        """The index of a corpus, opened or built where that was not done."""
        self._own()
        key = _key(path, settings)
        with self._lock:
            if (found := self._open.get(key)) is not None:
                self._open.move_to_end(key)
                return found
            if (future := self._opening.get(key)) is None:
                future = self._opening[key] = _threads(os.getpid(), "opening").submit(self._fetch, key, path, settings)
        # Others may wait for the same one: who gives up does so alone.
        return await asyncio.shield(asyncio.wrap_future(future))

    async def search(self, path: Path, settings: RagSettings, query: str, most: int) -> Sequence[Hit]:
        """Search the index of a corpus."""
        index = await self.index(path, settings)
        threads = _threads(os.getpid(), "searching")
        return await asyncio.get_running_loop().run_in_executor(threads, index.search, query, most)

    def _fetch(self, key: _Key, path: Path, settings: RagSettings) -> Index:
        try:
            name = self._names.get(key)
            index = opened(path, settings) if name is None else reopen_index(path, name, settings)
            self._put(key, index)
            return index
        finally:
            with self._lock:
                self._opening.pop(key, None)

    def _put(self, key: _Key, index: Index) -> None:
        with self._lock:
            self._names[key] = index.name
            self._open[key] = index
            self._open.move_to_end(key)
            while len(self._open) > self._most:
                self._open.popitem(last=False)  # its files are closed with the last search in it

    def _own(self) -> None:
        """In a fork: the parent's threads are not there, so nothing they hold or promised will ever come."""
        if self._pid != os.getpid():
            self._lock, self._opening, self._pid = threading.Lock(), {}, os.getpid()


def _key(path: Path, settings: RagSettings) -> _Key:
    return path.absolute(), settings.model_dump_json()


@functools.cache
def _threads(pid: int, what: str) -> ThreadPoolExecutor:
    """The threads for one kind of work in the process of that id."""
    return ThreadPoolExecutor(_OPENING if what == "opening" else _SEARCHING, f"deskroll-rag-{what}")
