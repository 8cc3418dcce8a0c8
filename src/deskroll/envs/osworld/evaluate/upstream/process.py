"""One worker with upstream's evaluators, seen from outside: takes one job at a time, and is ended.

Guarantees: an answer is one line of bounded size that holds its job's token; a worker that is late, dies or talks
nonsense is of no more use, and the job is not scored. After `end` no process and no folder of it is left; where its
owner was killed, the process ends with that, and the folder is removed by whoever makes the next one.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import weakref
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from deskroll.clocks import time_limit
from deskroll.desktops.scratch import scratch_folder
from deskroll.envs.osworld.evaluate.upstream import sandbox
from deskroll.errors import BootError, EvaluatorError, plain
from deskroll.types import Record

START_S = 120.0
"""Importing the package takes about 5 s, and more on a machine under load."""
_LINE = 256 * 1024
_TAIL = 40


class Answer(Record, frozen=True):
    """What a worker says."""

    value: float | None = None
    error: str = ""
    traceback: str = ""
    found: str | None = None
    """What was judged, as its getter gave it; the beginning."""
    expected: str | None = None
    token: str = ""
    spent: bool = False
    """Whether the job may have left something behind in the worker."""


class Worker:
    """A sandbox; `start` it, and `end` it in any case."""

    def __init__(self, environment: Path) -> None:
        self._environment = environment
        self._home = _make_folder()
        self._forget = weakref.finalize(self, shutil.rmtree, self._home, ignore_errors=True)
        self.folder = self._home / "relay"
        """Of the relay, seen inside; outside, the folder around it keeps everybody else away."""
        self.folder.mkdir()
        self.folder.chmod(0o755)
        self.spent = False
        """Whether it may have no more jobs."""
        self._process: asyncio.subprocess.Process | None = None
        self._said: deque[str] = deque(maxlen=_TAIL)
        self._listening: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Wait until it takes jobs."""
        command = sandbox.command(self._environment, self.folder)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command.words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=command.files,
                env={},
                limit=_LINE,
                start_new_session=True,
            )
        finally:
            for file in command.files:
                os.close(file)
        self._listening = asyncio.ensure_future(self._listen())
        await self._read(START_S, "did not start")

    async def ask(self, job: Mapping[str, Any], seconds: float) -> Answer:
        """Do one job; `EvaluatorError` when there is no answer, after which the worker is of no more use."""
        if self._process is None or self._process.stdin is None:
            raise EvaluatorError("the evaluator was not started")
        token = secrets.token_hex(16)
        self._said.clear()
        try:
            self._process.stdin.write(msgspec.json.encode({**job, "token": token}) + b"\n")
            await self._process.stdin.drain()
        except OSError as error:
            raise EvaluatorError(f"the evaluator is gone: {error}; it said: {self.said()}") from None
        answer = await self._read(seconds, "did not finish", token)
        self.spent = answer.spent
        return answer

    async def _read(self, seconds: float, what: str, token: str = "") -> Answer:
        """The answer with that token; no job can write one, so anything else is nonsense."""
        try:
            async with time_limit(seconds):
                answer = await self._line()
        except TimeoutError:
            raise EvaluatorError(f"the evaluator {what} within {seconds:g} s; it said: {self.said()}") from None
        if answer is None or answer.token != token:
            raise EvaluatorError(f"the evaluator answered nonsense; it said: {self.said()}")
        return answer

    async def _line(self) -> Answer | None:
        if self._process is None or self._process.stdout is None:
            raise EvaluatorError("the evaluator was not started")
        try:
            line = await self._process.stdout.readline()
        except ValueError:
            raise EvaluatorError(f"the evaluator answered with more than {_LINE} bytes") from None
        if not line:
            raise EvaluatorError(f"the evaluator ended; it said: {self.said()}")
        try:
            return msgspec.json.decode(line, type=Answer)
        except msgspec.MsgspecError:
            return None

    def said(self) -> str:
        """The end of what it printed."""
        return plain("\n".join(self._said), 4000, keep="\n\t") or "nothing"

    async def _listen(self) -> None:
        if self._process is None or self._process.stderr is None:
            return
        while chunk := await self._process.stderr.read(_LINE):
            self._said.extend(chunk.decode(errors="replace").splitlines()[-_TAIL:])

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process is not None and self._process.returncode is None

    async def end(self) -> None:
        """Kill it, and wait until nothing is left of it."""
        try:
            if self._process is not None:
                if self._process.returncode is None:
                    self._process.kill()
                if self._process.stdin is not None:
                    self._process.stdin.close()
                await self._process.wait()
            if self._listening is not None:
                await asyncio.gather(self._listening, return_exceptions=True)
        finally:
            self._forget()


def _make_folder() -> Path:
    try:
        return scratch_folder("evaluator", "relay/5000.sock")
    except BootError as error:
        raise EvaluatorError(f"OSWorld's evaluators need a place for sockets: {error}") from error
