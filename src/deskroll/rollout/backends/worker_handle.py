"""WorkerHandle: the coordinator's end of one worker process: what it was ordered, said, and when it was heard."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

import msgspec

from deskroll.clocks import running_time, time_limit
from deskroll.errors import BackendLost, ConfigError, DeskrollError, StoreError, WorkerLost, plain
from deskroll.events import Event
from deskroll.host.supervise import lost_work
from deskroll.rollout.backends.base import WorkerStatus
from deskroll.rollout.backends.placement import LoadGauge, WorkerLoad
from deskroll.rollout.backends.wire import (
    Beat,
    Broken,
    Channel,
    Define,
    Defined,
    Dump,
    Ended,
    Finish,
    Forget,
    GiveBack,
    GivenBack,
    Happened,
    Kept,
    Ready,
    Run,
    Setup,
    Stop,
    Unwritten,
    Upward,
)
from deskroll.rollout.backends.zygote import WorkerZygote
from deskroll.rollout.orders import AttemptName, Order, Vitals
from deskroll.rollout.spec import Definition
from deskroll.rollout.stopping import RUN_STOPS
from deskroll.types import Episode, EpisodeKey, Failure

_END_S = 15.0
"""How long a worker may take to end by itself."""
_TELL_S = 2.0
"""How long it may take to tell what it gives back."""
_BURIED_S = 5.0
"""How long one that was killed may take to be gone."""
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20


class _Pending(NamedTuple):
    """An attempt that was ordered."""

    spec: str
    end: asyncio.Future[Episode | None]


class WorkerHandle:
    """Made by `WorkerHandle.start`; `run` orders an attempt; gone once `gone` is set."""

    def __init__(self, pid: int, channel: Channel, end: asyncio.Future[int], *, isolated: bool) -> None:
        self.pid = pid
        self.isolated = isolated
        self.gone = ""
        """Why it is no more; empty while it lives."""
        self._heard_at = running_time()
        self._importing = Counter({"": 1})
        """What it has not said yet that it has imported: how many definitions by each digest, and what it is itself."""
        self.killed_for = ""
        self.last_words = ""
        """What workers had printed when it died: its own, and that of others."""
        self.lost = 0
        """How many attempts were lost with it."""
        self.broken: DeskrollError | None = None
        """Why no worker can ever do this work."""
        self._channel = channel
        self._end = end
        self._pending: dict[AttemptName, _Pending] = {}
        self._defined: set[str] = set()
        """The digests that it knows."""
        self._unusable: dict[str, ConfigError] = {}
        """Those of them that it cannot run, and why."""
        self._asked_back: deque[asyncio.Future[int]] = deque()
        """How many attempts come to their end, for each time that it was told to give some back, in order."""
        self._vitals = Vitals()
        self._gauge = LoadGauge(time.monotonic())
        self._heard_out = asyncio.Event()

    @classmethod
    async def start(cls, zygote: WorkerZygote, setup: Setup, *, isolated: bool = False) -> WorkerHandle:
        """Start a worker."""
        pid, sock, end = await zygote.worker()
        handle = cls(pid, await Channel.over(sock), end, isolated=isolated)
        handle._channel.send(setup)
        return handle

    @property
    def silent_s(self) -> float:
        """How long nothing was heard of it, of the time in which this process could hear."""
        return running_time() - self._heard_at

    @property
    def starting(self) -> bool:
        """Whether it still imports what it works with; it may say nothing meanwhile."""
        return bool(self._importing)

    @property
    def load(self) -> WorkerLoad:
        """What it was ordered and has not ended."""
        return self._gauge.load

    async def run(self, order: Order, definition: Definition) -> Episode | None:
        """Have one attempt run to its end; None where it was given back before that."""
        if self.gone:
            raise WorkerLost(self.gone)
        if (unusable := self._unusable.get(order.spec)) is not None:
            raise unusable
        name = (order.key, order.attempt)
        pending = self._pending[name] = _Pending(order.spec, asyncio.get_running_loop().create_future())
        if definition.digest not in self._defined:
            self._defined.add(definition.digest)
            self._gauge.forget()
            self._importing[definition.digest] += 1
            self._channel.send(Define(definition=definition))
        self._channel.send(Run(order=order))
        self._gauge.count(len(self._pending), time.monotonic())
        try:
            return await pending.end
        except asyncio.CancelledError:
            self.stop(order.key, order.attempt, None)
            raise
        finally:
            self._pending.pop(name, None)
            self._gauge.count(len(self._pending), time.monotonic())

    def forget(self, digest: str) -> None:
        """Have it let go of a definition."""
        if digest in self._defined:
            self._defined.discard(digest)
            self._unusable.pop(digest, None)
            self._channel.send(Forget(digest=digest))

    def stop(self, key: EpisodeKey, attempt: int, error: DeskrollError | None, visit: int | None = None) -> None:
        """End an attempt now."""
        failure = Failure.of(error) if error else None
        self._channel.send(Stop(key=key, attempt=attempt, failure=failure, visit=visit))

    async def give_back(self, attempts: Collection[AttemptName]) -> int:
        """Have what has not begun given back; how many of these come to their end, as far as it tells in time."""
        own = tuple(name for name in attempts if name in self._pending)
        if self.gone or not own:
            return 0
        kept: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asked_back.append(kept)
        self._channel.send(GiveBack(attempts=own))
        try:
            return await asyncio.wait_for(asyncio.shield(kept), _TELL_S)
        except TimeoutError:
            return 0 if self.starting else len(own)

    def dump(self, key: EpisodeKey, attempt: int, why: str) -> None:
        """Write down where an attempt stands."""
        self._channel.send(Dump(key=key, attempt=attempt, why=why))

    def has(self, key: EpisodeKey, attempt: int) -> bool:
        """Whether that attempt is one of its own."""
        return (key, attempt) in self._pending

    async def listen(self, emit: Callable[[list[Event]], None], zygote: WorkerZygote) -> None:
        """Hear what it says until it is gone; then whatever it had not ended is lost."""
        last_words = zygote.last_words
        try:
            async for message in self._channel.upward():
                self._heard_at = running_time()
                self._hear(message, emit)
            why = await self._why_it_ended(last_words)
            self.lose(BackendLost(zygote.gone) if zygote.gone else WorkerLost(why))
        except msgspec.MsgspecError as error:
            self.kill(f"it said something that cannot be read: {error}")
            self.lose(WorkerLost(f"worker {self.pid} was killed: {self.killed_for}"))
        except BaseException as error:
            self.lose(lost_work(f"what listens to worker {self.pid}", error, RUN_STOPS))
            raise
        finally:
            self._heard_out.set()
            self.lose(WorkerLost(f"worker {self.pid} was let go"))
            await self._channel.close()

    def _hear(self, message: Upward, emit: Callable[[list[Event]], None]) -> None:
        match message:
            case Ended(episode=episode, events=events):
                emit(events)
                self._resolve(episode.key, episode.attempt, episode)
            case GivenBack(key=key, attempt=attempt):
                self._resolve(key, attempt, None)
            case Kept(attempts=attempts):
                self._tell_kept(attempts)
            case Unwritten(key=key, attempt=attempt, message=text):
                self._resolve(key, attempt, StoreError(text))
            case Happened(events=events):
                emit(events)
            case Beat(vitals=vitals, busy=busy):
                self._importing.pop("", None)
                self._vitals = vitals
                self._gauge.measure(busy, time.monotonic())
            case Broken(message=text, digest=""):
                self.broken = ConfigError(text)
                self.lose(self.broken)
            case Defined(digest=digest):
                self._note_imported(digest)
            case Broken(message=text, digest=digest):
                if self._note_imported(digest):
                    self._unusable[digest] = ConfigError(text)
                    for key, attempt in [name for name, each in self._pending.items() if each.spec == digest]:
                        self._resolve(key, attempt, self._unusable[digest])
            case Ready():
                pass

    def _note_imported(self, digest: str) -> bool:
        """It has told what came of a definition; whether it is the one that holds, and not one that was forgotten."""
        self._importing[digest] -= 1
        self._importing = +self._importing
        return digest in self._defined and digest not in self._importing

    def status(self) -> WorkerStatus:
        """What it does."""
        return WorkerStatus(
            name=f"worker {self.pid}",
            pid=self.pid,
            running=len(self._pending),
            vitals=self._vitals,
            rss_mb=self.rss_mb(),
            silent_s=self.silent_s,
            isolated=self.isolated,
        )

    def rss_mb(self) -> float:
        """The memory that it has for itself."""
        try:
            _, resident, shared, *_ = map(int, Path(f"/proc/{self.pid}/statm").read_text().split())
        except (OSError, ValueError):
            return 0.0
        return (resident - shared) * _PAGE_MB

    def check_memory(self, allowed_mb: float) -> None:
        """Note how much it has, and kill it where that is too much."""
        has = self.rss_mb()
        self._gauge.weigh(has / allowed_mb)
        if has > allowed_mb:
            self.kill(f"it had {has:.0f} MB of memory; allowed: {allowed_mb:g}")

    def ask_stack(self) -> None:
        """Have it print where it stands, even when it hangs."""
        self._signal(signal.SIGUSR1)

    def kill(self, why: str) -> None:
        """End it by force; what it ran is lost."""
        self.killed_for = self.killed_for or why
        self._signal(signal.SIGKILL)

    def lose(self, error: DeskrollError) -> None:
        """Nothing is heard of it any more: whatever it had not ended, ends with this error."""
        if not self.gone:
            self.gone = str(error)
            while self._asked_back:
                self._tell_kept(0)
        for pending in self._pending.values():
            if not pending.end.done():
                self.lost += 1
                pending.end.set_exception(error)

    async def dismiss(self) -> None:
        """Let it end, and hear the last of it; by force, where it does not: then that may be lost."""
        self._channel.send(Finish())
        try:
            async with time_limit(_END_S):
                await asyncio.shield(self._end)
                await self._heard_out.wait()
        except TimeoutError:
            self.kill("it did not end")
            await asyncio.wait([self._end], timeout=_BURIED_S)

    def _signal(self, number: signal.Signals) -> None:
        if not self._end.done():  # it is not buried before the zygote tells, so the pid is its own
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def _resolve(self, key: EpisodeKey, attempt: int, result: Episode | DeskrollError | None) -> None:
        pending = self._pending.get((key, attempt))
        if pending is None or pending.end.done():
            return
        if isinstance(result, DeskrollError):
            pending.end.set_exception(result)
        else:
            pending.end.set_result(result)

    def _tell_kept(self, attempts: int) -> None:
        if self._asked_back and not (kept := self._asked_back.popleft()).done():
            kept.set_result(attempts)

    async def _why_it_ended(self, last_words: Callable[[], str]) -> str:
        try:
            code = await asyncio.wait_for(asyncio.shield(self._end), _END_S)
        except TimeoutError:
            return f"worker {self.pid} closed its socket and did not end"
        if self.killed_for:
            return f"worker {self.pid} was killed: {self.killed_for}"
        how = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with code {code}"
        self.last_words = last_words()
        line = self.last_words.rpartition("\n")[2]
        return f"worker {self.pid} {how}" + (f"; the last line that workers printed: {plain(line)}" if line else "")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # those for real time have no names
        return f"signal {number}"
