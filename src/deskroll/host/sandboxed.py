"""Sandboxed: one sandbox (or, where there is none to be had, one plain process), as whoever started it holds it.

Two processes matter: the outer one, which is our child (bubblewrap, and before it its start), and the first one inside,
with which all others inside end. Guarantees: `kill` ends both, at whatever moment of a start it comes, and also where
somebody else has killed the outer one; it never waits. `end` waits, for a bounded time, and then holds nothing more.
No process is meant by its bare number: the outer one is not reaped before the end, so that its number, which is that of
its process group, too, stays its own; the first one is held by a pidfd, once it is known to be ours.

While the sandbox is being made, the first process is in the outer one's group, and a signal to the group reaches it.
It leaves the group after bubblewrap has reported its number: so whoever is not in the group can be read from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from deskroll.clocks import time_limit
from deskroll.host.bubblewrap import Command

_log = logging.getLogger(__name__)

_END_S = 10.0
_REPORT = re.compile(rb'"child-pid": (\d+).*"pid-namespace": (\d+)', re.DOTALL)


class Sandboxed:
    """Starts when it is made. `end` it in any case."""

    def __init__(self, command: Command, *, stdin: int = subprocess.DEVNULL, stdout: int = subprocess.DEVNULL,
                 stderr: int = subprocess.DEVNULL, files: Sequence[int] = (),
                 environment: Mapping[str, str] | None = None) -> None:  # fmt: skip
        """`files`: descriptors that it inherits, besides the command's own, which are closed here."""
        self._lock = threading.Lock()  # threads share one: no descriptor is closed, and its number given away, in use
        self._outer = -1
        self._first: int | None = None
        self._said = b""
        self._report = command.report if command.report >= 0 else None
        try:
            with contextlib.closing(command):
                self._process = subprocess.Popen(
                    command.words, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=(*files, *command.files),
                    env=environment or {}, start_new_session=True, bufsize=0,
                )  # fmt: skip
        except BaseException:
            self._close_report()
            raise
        try:
            self._outer = os.pidfd_open(self._process.pid)
        except BaseException:  # no more files may be opened
            self._end_unheld()
            raise

    @property
    def outer(self) -> int:
        """A pidfd of the outer process: readable when that has ended."""
        return self._outer

    @property
    def pipes(self) -> tuple[IO[bytes], ...]:
        """Our ends of its standard streams, where they are pipes: in order, for the caller to close."""
        found = (self._process.stdin, self._process.stdout, self._process.stderr)
        return tuple(each for each in found if each is not None)

    def alive(self) -> bool:
        """Whether both processes run, as far as they are known."""
        with self._lock:
            self._find_first()
            return not _has_ended(self._outer) and not self.first_has_ended()

    def first_has_ended(self) -> bool:
        """Whether the first process inside is known to have: then the outer one ends, as soon as it has a core."""
        return self._first is not None and _has_ended(self._first)

    def exit_code(self) -> int | None:
        """How the outer process ended, negative for a signal; None while it runs. It is not reaped by this."""
        found = os.waitid(os.P_PIDFD, self._outer, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def interrupt(self) -> None:
        """Send the first process inside a SIGINT."""
        with self._lock:
            self._find_first()
            self._signal_first(signal.SIGINT)

    def kill(self) -> None:
        """End everything inside, now; `end` waits for it."""
        with self._lock:
            self._find_first()
            if self._first is None or _has_ended(self._outer):
                self._signal_group(signal.SIGKILL)
                self._find_first()
            self._signal_first(signal.SIGKILL)  # an outer one that lives sees it, and ends with a code that tells of it

    async def exits(self, seconds: float) -> bool:
        """Whether the outer process has ended by then."""
        await self._wait_for(lambda: self._outer, seconds)
        return _has_ended(self._outer)

    async def _wait_for(self, pidfd: Callable[[], int | None], seconds: float) -> None:
        ended = asyncio.Event()
        with contextlib.suppress(TimeoutError):
            async with time_limit(seconds):
                with self._watch(pidfd, ended):
                    await ended.wait()

    @contextlib.contextmanager
    def _watch(self, pidfd: Callable[[], int | None], ended: asyncio.Event) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        with self._lock:
            found = pidfd()
            own = -1 if found is None or found < 0 else os.dup(found)  # a loop has one reader for each; several wait
        if own < 0:
            ended.set()
            yield
            return
        loop.add_reader(own, ended.set)
        try:
            yield
        finally:
            loop.remove_reader(own)
            os.close(own)

    def end(self, seconds: float = _END_S) -> None:
        """Kill it, wait until nothing is left of it, and let go of it; at most so many seconds."""
        self._kill_and_wake()
        if not _ends(self._outer, seconds / 2):
            self._signal_group(signal.SIGKILL)
            _ends(self._outer, seconds / 4)
        if self._first is not None:
            _ends(self._first, seconds / 4)
        self._release()

    async def end_soon(self, seconds: float = _END_S) -> None:
        """The same, while the loop goes on."""
        self._kill_and_wake()
        if not await self.exits(seconds / 2):
            self._signal_group(signal.SIGKILL)
            await self.exits(seconds / 4)
        await self._wait_for(lambda: self._first, seconds / 4)
        self._release()

    def _end_unheld(self) -> None:
        """Without a pidfd of the outer process, by its number, which is its own until it is reaped."""
        for pipe in self.pipes:  # first: that leaves a file to hold the first process by
            pipe.close()
        os.killpg(self._process.pid, signal.SIGKILL)
        self._find_first()
        self._signal_first(signal.SIGKILL)
        self._process.wait()
        if self._first is not None:
            _ends(self._first, _END_S)
        self._close()

    def disown(self) -> None:
        """In a fork of its starter: let go of it, and leave it alone."""
        self._process.returncode = 0  # or it would complain that it was left running
        self._close()

    def _find_first(self) -> None:
        """Get hold of the first process inside, if bubblewrap has said which it is."""
        if self._first is not None or self._report is None:
            return
        with contextlib.suppress(BlockingIOError):
            self._said += os.read(self._report, 4096)
        if found := _REPORT.search(self._said):
            with contextlib.suppress(OSError):  # no more files may be opened: the next time
                self._first = _open_in(int(found[1]), int(found[2]))
                self._close_report()

    def _signal_first(self, number: signal.Signals) -> None:
        if self._first is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, number)

    def _signal_group(self, number: signal.Signals) -> None:
        if self._outer >= 0:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _kill_and_wake(self) -> None:
        """An outer process that is stopped would not see that the first one ends, and reap it."""
        self.kill()
        with self._lock:
            self._signal_group(signal.SIGCONT)

    def _release(self) -> None:
        with self._lock:
            if self._outer < 0:
                return
            if _has_ended(self._outer):
                self._process.wait()
            else:
                self._process.returncode = -signal.SIGKILL  # or it would complain
                _log.warning("process %d of a sandbox was killed, and does not end", self._process.pid)
            self._close()

    def _close(self) -> None:
        self._close_report()
        for file in (self._outer, self._first):
            if file is not None and file >= 0:
                os.close(file)
        self._outer, self._first = -1, None

    def _close_report(self) -> None:
        if self._report is not None:
            os.close(self._report)
            self._report = None


def _open_in(pid: int, space: int) -> int | None:
    """A pidfd of that process, if it is one in that pid namespace: after its end its number may be another's."""
    try:
        file = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    with contextlib.suppress(OSError):
        if Path(f"/proc/{pid}/ns/pid").stat().st_ino == space:
            return file
    os.close(file)
    return None


def _has_ended(pidfd: int) -> bool:
    return _ends(pidfd, 0)


def _ends(pidfd: int, seconds: float) -> bool:
    """Whether that process ends within so many seconds; below 0 is one that did."""
    if pidfd < 0:
        return True
    look = select.poll()
    look.register(pidfd, select.POLLIN)
    return bool(look.poll(seconds * 1000))
