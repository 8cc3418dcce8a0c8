"""Nursery: the template process as the coordinator holds it: started, asked for workers, ended."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import subprocess
import sys
import tempfile
from collections import deque
from typing import IO

import msgspec

from deskroll.errors import BackendLost, WorkerLost, plain
from deskroll.rollout.backends.forks import Buried, Forked, Refused, Told, send_socket

READY_S = 90.0
"""The longest wait for its imports, on a machine under heavy load."""
_LAST_WORDS, _LONGEST_WORDS = 2000, 20_000
_BURIED_S = 5.0
_MOST_WORDS = 16 * 2**20


class Nursery:
    """Use with `async with`; ending it ends every worker."""

    def __init__(self, keep: tuple[int, ...] = ()) -> None:
        self._keep = keep
        """Descriptors that it and every worker inherit: the run's lock, which so lasts until the last one is gone."""
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._output = _appended()
        self.gone = ""
        """Why no worker can be had any more, and none is left; empty while it lives."""
        self._asked: deque[asyncio.Future[int]] = deque()
        self._ends: dict[int, asyncio.Future[int]] = {}

    async def __aenter__(self) -> Nursery:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", "-m", "deskroll.rollout.backends.template", str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(  # noqa: ASYNC220  (takes a millisecond)
                command, pass_fds=(theirs.fileno(), *self._keep), stdin=subprocess.DEVNULL, stdout=self._output,
                stderr=self._output, start_new_session=True,
            )  # fmt: skip
        self._control.setblocking(False)
        try:
            word = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self._control, 64), READY_S)
        except TimeoutError:
            await self.__aexit__()
            raise WorkerLost(f"the process that starts workers did not come up within {READY_S:g} s") from None
        except BaseException:
            await self.__aexit__()
            raise
        if not word:
            words = self.last_words()
            await self.__aexit__()
            raise WorkerLost(f"the process that starts workers died: {words}")
        asyncio.get_running_loop().add_reader(self._control, self._hear)
        return self

    async def __aexit__(self, *exc: object) -> None:
        control, self._control = self._control, None
        if control is not None:
            asyncio.get_running_loop().remove_reader(control)
            control.close()
        if self._process is not None:
            try:
                await asyncio.to_thread(self._process.wait, _BURIED_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._lose_all()
        self._output.close()

    async def worker(self) -> tuple[int, socket.socket, asyncio.Future[int]]:
        """A new worker: its pid, the socket to it, and the code with which it will have ended."""
        if self._control is None or self.gone:
            raise BackendLost(self.gone or "the process that starts workers is not there")
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:  # too many files are open
            raise WorkerLost(f"no worker can be started: {error}") from error
        asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        try:
            with theirs:
                send_socket(self._control, theirs)
            pid = await asked
        except OSError as error:
            ours.close()
            self._asked.remove(asked)
            raise WorkerLost(f"no worker can be started: {error}") from error
        except BaseException:
            ours.close()  # a worker that was started all the same sees that, and ends
            raise
        return pid, ours, self._end(pid)

    def last_words(self) -> str:
        """The last lines that workers printed."""
        start = max(0, self.printed() - _LAST_WORDS)
        words = self.words_since(start)
        return words.partition("\n")[2] or words if start else words  # the first line may be cut

    def printed(self) -> int:
        """How many bytes workers have printed."""
        return os.fstat(self._output.fileno()).st_size

    def words_since(self, printed: int) -> str:
        """What workers have printed since then; the beginning, where it is much."""
        words = os.pread(self._output.fileno(), _LONGEST_WORDS, printed).decode(errors="replace")
        return plain(words, _LONGEST_WORDS, keep="\n")

    def forget_words(self) -> None:
        """Keep what workers printed from growing without end."""
        if self.printed() > _MOST_WORDS:
            os.ftruncate(self._output.fileno(), 0)

    def _hear(self) -> None:
        if self._control is None:
            return
        try:
            data = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._control)
            self.gone = f"the process that starts workers was killed, and all workers with it; {self.last_words()}"
            self._lose_all()
            return
        match msgspec.json.decode(data, type=Told):
            case Forked(pid=pid):
                self._end(pid)
                asked = self._asked.popleft()
                if not asked.done():
                    asked.set_result(pid)
            case Refused(message=message):
                asked = self._asked.popleft()
                if not asked.done():
                    asked.set_exception(WorkerLost(f"no worker can be started: {message}"))
            case Buried(pid=pid, code=code):
                end = self._end(pid)
                del self._ends[pid]
                if not end.done():
                    end.set_result(code)

    def _end(self, pid: int) -> asyncio.Future[int]:
        if pid not in self._ends:
            self._ends[pid] = asyncio.get_running_loop().create_future()
        return self._ends[pid]

    def _lose_all(self) -> None:
        """It is gone, and every worker with it."""
        for asked in self._asked:
            if not asked.done():
                asked.set_exception(BackendLost(self.gone or "the process that starts workers is gone"))
        for end in self._ends.values():
            if not end.done():
                end.set_result(-9)
        self._asked.clear()
        self._ends.clear()


def _appended() -> IO[bytes]:
    """A file in which every line lands at the end: also where it was cut, whoever writes."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the nursery)
    fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_APPEND)
    return file
