"""ChildHandle: the run's end of one trainer's process (`child.py`): asks it, hears of its end, ends all of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

from deskroll.clocks import time_limit
from deskroll.errors import TrainerError, plain
from deskroll.host.family import end_marked
from deskroll.host.frames import Frames
from deskroll.train.environment import MARK, trainer_environment
from deskroll.train.wire import Done, Failed, decode_upward

_GONE_S = 5.0
"""How long it takes at most from the end of its socket to its own end."""
_LAST_LINES = 15
_LAST_BYTES = 65_536


class ChildHandle:
    """Made by `start`; `end` it in any case."""

    def __init__(self, process: asyncio.subprocess.Process, mark: str, log: Path) -> None:
        self.process = process
        self._mark = mark
        self._log = log
        self._frames = Frames(self._hear, self._lost)
        self._gone = asyncio.get_running_loop().create_future()
        self._answer: asyncio.Future[Done | Failed] | None = None

    @classmethod
    async def start(cls, python: Path, env: Mapping[str, str], log: Path) -> ChildHandle:
        """Start a process with that Python, which is told nothing yet; what it prints is added to the log."""
        trainer_id = f"{os.getpid()}-{secrets.token_hex(8)}"
        ours, theirs = socket.socketpair()
        log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with theirs, log.open("ab") as out:
                process = await asyncio.create_subprocess_exec(
                    str(python), "-m", "deskroll.train.child", str(theirs.fileno()),
                    env=trainer_environment(env, trainer_id), pass_fds=(theirs.fileno(),),
                    stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out,
                    start_new_session=True,  # a Ctrl-C is for us; we end it
                )  # fmt: skip
        except BaseException as error:
            ours.close()
            if isinstance(error, OSError):
                raise TrainerError(f"{python} cannot be started: {error.strerror}") from error
            raise
        handle = cls(process, f"{MARK}={trainer_id}", log)
        try:
            ours.setblocking(False)
            await asyncio.get_running_loop().create_unix_connection(lambda: handle._frames, sock=ours)
        except BaseException:
            ours.close()
            await asyncio.shield(handle.end())
            raise
        return handle

    async def ask(self, data: bytes) -> Done | Failed:
        """Send a message, and wait for the answer; `TrainerError`, with its last words, where it ends before that."""
        answer: asyncio.Future[Done | Failed] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._frames.send(data)
        try:
            await asyncio.wait([answer, self._gone], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise TrainerError(await self._last_words())
            return answer.result()
        finally:
            self._answer = None

    async def end(self) -> None:
        """Kill it, and whatever it has started; that it has ended already is no failure."""
        self._frames.close()
        try:
            await end_marked(self._mark)
        except TimeoutError as left:
            raise TrainerError(f"processes {left} of a trainer were killed and are still there") from None
        await self.process.wait()

    def _hear(self, data: bytes) -> None:
        if self._answer is not None and not self._answer.done():
            try:
                self._answer.set_result(decode_upward(data))
            except msgspec.MsgspecError as error:
                self._answer.set_result(Failed(message=f"it says what cannot be understood: {error}"))

    def _lost(self) -> None:
        if not self._gone.done():
            self._gone.set_result(None)

    async def _last_words(self) -> str:
        how = "is gone"
        with contextlib.suppress(TimeoutError):
            async with time_limit(_GONE_S):
                code = await self.process.wait()
                how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        last = self._last_lines()
        lines = f"; the end of {self._log}:\n{last}" if last else f"; {self._log} is empty"
        return f"its process {self.process.pid} {how}{lines}"

    def _last_lines(self) -> str:
        try:
            with self._log.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_BYTES))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(plain(line) for line in lines[-_LAST_LINES:])
