"""ZygoteHandle: a zygote as whoever started it holds it: started, asked for forks, heard, ended."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO, NamedTuple, Self

import msgspec

from deskroll.errors import DeskrollError, plain
from deskroll.host.sockets import send_with_files
from deskroll.host.zygote.wire import Ended, Forked, Refused, Told

READY_S = 90.0
"""The longest wait for its imports, on a machine under heavy load."""
_LAST_WORDS, _LONGEST_WORDS = 2000, 20_000
_END_S = 5.0
_MOST_WORDS = 16 * 2**20
_FULL_S = 0.01
"""Between two attempts to send to a zygote that has not read what it was sent."""


class Fork(NamedTuple):
    """A process that a zygote has forked."""

    pid: int
    end: asyncio.Future[int]
    """The exit code with which it will have ended, negative for a signal; cancelled where nobody can tell it."""


class ZygoteHandle:
    """Use with `async with`; ending it ends every fork that is bound to it.

    `target` and `prepare` are functions as `process.py` takes them. `forks` says in a word what they are. `keep`:
    descriptors that the zygote and every fork inherit. `environment`: None: that of this process. `refused` is raised
    where no fork can be had at the moment, `gone` where none can be had any more.
    """

    def __init__(
        self, target: str, *, forks: str, refused: type[DeskrollError], gone: type[DeskrollError],
        prepare: str = "", bound: bool = True, keep: tuple[int, ...] = (), environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._functions = [target, prepare] if prepare else [target]
        self._forks, self._bound = forks, bound
        self._refused, self._gone = refused, gone
        self._keep, self._environment = keep, environment
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._output = _open_appended()
        self.gone = ""
        """Why no fork can be had any more; empty while it lives."""
        self._asked: deque[asyncio.Future[Fork]] = deque()
        self._ends: dict[int, asyncio.Future[int]] = {}

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await asyncio.shield(self.__aexit__())
            raise
        return self

    async def _start(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        binding = "bound" if self._bound else "free"
        command = [sys.executable, "-P", "-m", "deskroll.host.zygote.process", str(theirs.fileno()), binding]
        with theirs:
            self._process = subprocess.Popen(  # noqa: ASYNC220  (takes a millisecond)
                [*command, *self._functions], env=self._environment, pass_fds=(theirs.fileno(), *self._keep),
                stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output, start_new_session=True,
            )  # fmt: skip
        self._control.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            word = await asyncio.wait_for(loop.sock_recv(self._control, 64), READY_S)
        except TimeoutError:
            raise self._refused(f"{self} did not come up within {READY_S:g} s") from None
        if not word:
            raise self._refused(f"{self} died: {self.last_words()}")
        loop.add_reader(self._control, self._hear)

    async def __aexit__(self, *exc: object) -> None:
        control, self._control = self._control, None
        if control is not None:
            asyncio.get_running_loop().remove_reader(control)
            control.close()
        if self._process is not None:
            try:
                await asyncio.to_thread(self._process.wait, _END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._lose_all()
        self._output.close()

    def __str__(self) -> str:
        return f"the process that starts {self._forks}s"

    def alive(self) -> bool:
        """Whether it can be asked."""
        return not self.gone and self._process is not None and self._process.poll() is None

    async def fork(self, message: bytes = b"", files: Sequence[int] = ()) -> Fork:
        """A new fork, which gets the message and copies of the descriptors. Those may be closed once this returns."""
        request = bytes([len(files)]) + message
        while True:
            if self._control is None or self.gone:
                raise self._gone(self.gone or f"{self} is not there")
            try:
                send_with_files(self._control, request, files)
                break
            except BlockingIOError:
                await asyncio.sleep(_FULL_S)
            except OSError as error:
                raise self._refused(f"no {self._forks} can be started: {error}") from error
        asked: asyncio.Future[Fork] = asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        return await asked

    def last_words(self) -> str:
        """The last lines that it and its forks printed."""
        start = max(0, self.printed() - _LAST_WORDS)
        words = self.words_since(start)
        return words.partition("\n")[2] or words if start else words  # the first line may be cut

    def printed(self) -> int:
        """How many bytes it and its forks have printed."""
        return os.fstat(self._output.fileno()).st_size

    def words_since(self, printed: int) -> str:
        """What was printed since then; the beginning, where it is much."""
        words = os.pread(self._output.fileno(), _LONGEST_WORDS, printed).decode(errors="replace")
        return plain(words, _LONGEST_WORDS, keep="\n")

    def forget_words(self) -> None:
        """Keep what was printed from growing without end."""
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
            with_it = f", and all {self._forks}s with it" if self._bound else ""
            self.gone = f"{self} was killed{with_it}; {self.last_words()}"
            self._lose_all()
            return
        match msgspec.json.decode(data, type=Told):
            case Forked(pid=pid):
                end = self._ends[pid] = asyncio.get_running_loop().create_future()
                self._answer(Fork(pid, end))
            case Refused(message=message):
                self._answer(self._refused(f"no {self._forks} can be started: {message}"))
            case Ended(pid=pid, code=code):
                if not (end := self._ends.pop(pid)).done():
                    end.set_result(code)

    def _answer(self, answer: Fork | DeskrollError) -> None:
        asked = self._asked.popleft()
        if asked.done():  # whoever asked has gone
            return
        if isinstance(answer, Fork):
            asked.set_result(answer)
        else:
            asked.set_exception(answer)

    def _lose_all(self) -> None:
        """It is gone, and every fork that is bound to it."""
        for asked in self._asked:
            if not asked.done():
                asked.set_exception(self._gone(self.gone or f"{self} is gone"))
        for end in self._ends.values():
            if self._bound and not end.done():
                end.set_result(-9)
            elif not self._bound:
                end.cancel()
        self._asked.clear()
        self._ends.clear()


def _open_appended() -> IO[bytes]:
    """A file in which every line lands at the end: also where it was cut, whoever writes."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the zygote)
    fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_APPEND)
    return file
