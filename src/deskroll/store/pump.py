"""The pump: takes journal lines at any time and makes them durable in batches, one visit to a thread for each.

A batch is begun when the one before is durable and the store's pace allows it, so a busy run shares its syncs and an
idle one hardly waits. After a failure nothing more is taken: the error is raised to everybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from deskroll.errors import StoreError
from deskroll.store.results import ResultsFile
from deskroll.store.sink import JournalSink


class Pump:
    """Lines on their way to the disk. `run` is a task of whoever owns it."""

    def __init__(self, sink: JournalSink, results: ResultsFile) -> None:
        self.failed: asyncio.Future[StoreError] = asyncio.get_running_loop().create_future()
        """Done when something could not be written."""
        self.batches = 0
        self._sink = sink
        self._results_file = results
        self._lines: list[bytes] = []
        self._results: list[bytes] = []
        self._put = 0
        self._durable = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._wanted = asyncio.Event()
        self._stopping = asyncio.Event()

    def put(self, line: bytes, result: bytes = b"") -> None:
        """Take one line; it is written soon."""
        self.check()
        self._lines.append(line)
        if result:
            self._results.append(result)
        self._put += 1
        self._wanted.set()

    def check(self) -> None:
        """Raise why nothing can be written, if so."""
        if self.failed.done():
            raise StoreError(str(self.failed.result()))
        if self._stopping.is_set():
            raise StoreError("the run was closed: nothing more can be written to its journal")

    async def sync(self) -> None:
        """Return when all that was taken so far is durable."""
        if self._durable < self._put:
            self.check()
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append((self._put, waiter))
            await waiter

    def stop(self) -> None:
        """Let `run` end when everything is written."""
        self._stopping.set()
        self._wanted.set()

    async def run(self) -> None:
        """Write until stopped, or until something cannot be written."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if not self._lines:
                if self._stopping.is_set():
                    return
                continue
            begun = time.monotonic()
            if not await self._flush():
                return
            if self._stopping.is_set():
                self._wanted.set()
            elif self._sink.pace_s:
                await self._pause(begun + self._sink.pace_s - time.monotonic())

    async def _flush(self) -> bool:
        lines, self._lines = b"".join(self._lines), []
        results, self._results = b"".join(self._results), []
        target = self._put
        work = asyncio.get_running_loop().run_in_executor(None, self._write, lines, results)
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])  # nobody may close the file under the thread
            raise
        except StoreError as error:
            self.failed.set_result(error)
        except Exception as error:  # noqa: BLE001  (a bug, but whoever waits for this must not wait for ever)
            self.failed.set_result(StoreError(f"cannot write the journal: {type(error).__name__}: {error}"))
        else:
            self._durable = target
            self.batches += 1
        self._wake()
        return not self.failed.done()

    def _write(self, lines: bytes, results: bytes) -> None:
        self._sink.append(lines)
        self._results_file.append(results)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for target, waiter in waiters:
            if waiter.done():  # cancelled
                continue
            if target <= self._durable:
                waiter.set_result(None)
            elif self.failed.done():
                waiter.set_exception(StoreError(str(self.failed.result())))
            else:
                self._waiters.append((target, waiter))

    async def _pause(self, seconds: float) -> None:
        """Keep to the sink's pace, which is what the store can bear; a stop ends it early."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), max(0.0, seconds))
