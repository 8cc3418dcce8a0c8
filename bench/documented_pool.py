"""The pool as the documented design has it, re-created on simulated desktops; what bench/pool.py compares ours with.

N rollout processes → one manager process → M desktops. The manager serves one `VMPoolManager` object through proxies of
`multiprocessing.managers.BaseManager`. It boots its desktops one after another; free ones stand in a queue; a desktop
is reset before it goes back there, by the worker's call, while the pool's lock is held. Guarantees: boots and resets
are those of the same `SimProvider` with the same settings; every process is gone when the `with` block ends, and dies
with ours where that is killed.
"""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import queue
import random
import signal
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.managers import BaseManager
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from typing import Protocol, TypeVar

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.providers.sim.provider import SimProvider
from deskroll.desktops.providers.sim.settings import SimSettings

T = TypeVar("T")
FORK = multiprocessing.get_context("fork")
"""Cheap enough for a hundred processes; nothing here runs threads or a loop when it forks."""
SHORTEST_S, LONGEST_S = 1.0, 3.0
_PR_SET_PDEATHSIG = 1
_COLUMNS = 5
_ROWS = 400
"""More episodes than a worker can have in any run here."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One holder had one desktop. Times are the holder's own, by the one monotonic clock of the host."""

    desktop: str
    wanted: float
    """When it was through with the last one, or began: it has been without a desktop since then."""
    asked: float
    """When it asked for this one. Later than `wanted` where giving the last one back takes time."""
    had: float
    left: float
    """When it called release; infinity: it still holds it."""


def lengths(holder: int) -> Iterator[float]:
    """The episodes of a holder in seconds: the same ones for every design."""
    rng = random.Random(f"holder {holder}")
    while True:
        yield rng.uniform(SHORTEST_S, LONGEST_S)


def die_with_parent() -> None:
    """For a child process: end with the process that began it, even where that is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us; no traceback from each of a hundred


@contextmanager
def ended(process: BaseProcess) -> Iterator[None]:
    """Start a process; it is gone after the block."""
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


class VMPoolManager:
    """Lives in the manager process; each worker that calls has a thread of its own there."""

    def __init__(self, num_vms: int, settings: SimSettings) -> None:
        self._num_vms = num_vms
        self._provider = SimProvider(settings)
        self._lock = threading.Lock()
        self._ids: list[str] = []
        self._holders: dict[int, int] = {}
        # Workers wait in a queue that blocks until a desktop is put back: no polling, which is the best case for it.
        self._free: queue.Queue[int] = queue.Queue()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def initialize(self) -> None:
        """Boot the desktops, one after another."""
        self._run(self._provider.__aenter__())
        for number in range(self._num_vms):
            self._ids.append(self._run(self._provider.boot(DesktopSpec())).id)
            self._free.put(number)

    def allocate(self, worker: int) -> int:
        """Wait for a free desktop and take it."""
        number = self._free.get()
        with self._lock:
            self._holders[number] = worker
            return number

    def release(self, number: int, worker: int) -> None:
        """Reset a desktop and put it back; other workers can neither take nor give back one meanwhile."""
        with self._lock:
            if self._holders.get(number) != worker:
                raise ValueError(f"desktop {number} is not worker {worker}'s")
            self._run(self._provider.revert(self._ids[number], DesktopSpec()))
            del self._holders[number]
            self._free.put(number)

    def close(self) -> None:
        """Take the desktops away, whoever waits for the lock."""
        self._run(self._provider.__aexit__())

    def _run(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class Proxy(Protocol):
    """What workers have of the manager's object."""

    def initialize(self) -> None: ...
    def allocate(self, worker: int) -> int: ...
    def release(self, number: int, worker: int) -> None: ...
    def close(self) -> None: ...


class _Server(BaseManager):
    """The manager process."""


_Server.register("VMPoolManager", VMPoolManager)


@contextmanager
def manager(num_vms: int, settings: SimSettings) -> Iterator[Proxy]:
    """A manager process, whose desktops are not booted yet."""
    server = _Server(ctx=FORK)
    server.start(die_with_parent)
    with server:
        proxy: Proxy = server.VMPoolManager(num_vms, settings)  # type: ignore[attr-defined]
        try:
            yield proxy
        finally:
            proxy.close()


class Run:
    """N workers that share M desktops through one manager."""

    def __init__(self, holders: int, num_vms: int, settings: SimSettings, speed: float) -> None:
        self._holders = holders
        self._num_vms = num_vms
        self._settings = settings
        self._speed = speed
        self._go = FORK.Event()
        self._stack = ExitStack()
        self._notes = [FORK.RawArray("d", _ROWS * _COLUMNS) for _ in range(holders)]
        """What workers write down, where it can be read when they are gone."""

    def __enter__(self) -> Run:
        with ExitStack() as stack:
            self._proxy = stack.enter_context(manager(self._num_vms, self._settings))
            for holder in range(self._holders):
                args = (self._proxy, holder, self._speed, self._go, self._notes[holder])
                stack.enter_context(ended(FORK.Process(target=_work, args=args, daemon=True)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def begin(self) -> None:
        """Boot the desktops, then let the workers go."""
        self._proxy.initialize()
        self._go.set()

    def episodes(self) -> list[list[Episode]]:
        """By holder; to be called after the block."""
        return [_read(notes) for notes in self._notes]


def _work(proxy: Proxy, worker: int, speed: float, go: Event, notes: ctypes.Array[ctypes.c_double]) -> None:
    die_with_parent()
    go.wait()
    wanted = time.monotonic()
    for row, length in zip(range(0, _ROWS * _COLUMNS, _COLUMNS), lengths(worker), strict=False):
        asked = time.monotonic()
        number = proxy.allocate(worker)
        had = time.monotonic()
        notes[row : row + _COLUMNS] = [number, wanted, asked, had, 0.0]
        time.sleep(length / speed)
        wanted = notes[row + _COLUMNS - 1] = time.monotonic()
        proxy.release(number, worker)


def _read(notes: ctypes.Array[ctypes.c_double]) -> list[Episode]:
    rows = [notes[at : at + _COLUMNS] for at in range(0, _ROWS * _COLUMNS, _COLUMNS)]
    return [Episode(str(row[0]), *row[1:4], row[4] or float("inf")) for row in rows if row[3]]
