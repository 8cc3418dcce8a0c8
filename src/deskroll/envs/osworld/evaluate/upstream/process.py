"""One worker with upstream's evaluators, seen from outside: takes one job at a time, and is ended.

Guarantees: an answer is one line of bounded size that holds its job's token; a worker that is late, dies or talks
nonsense is of no more use, and the job is not scored. After `end` no process and no folder of it is left; where its
owner was killed, the process ends with that, and the folder is removed by whoever makes the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import subprocess
import weakref
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from deskroll.clocks import time_limit
from deskroll.envs.osworld.evaluate.upstream import sandbox
from deskroll.errors import BootError, EvaluatorError, plain
from deskroll.host.runtime_folder import make_scratch_folder
from deskroll.host.sandboxed import Sandboxed
from deskroll.types import Record

START_S = 120.0
"""Importing the package takes about 5 s, and more on a machine under load."""
_LINE = 256 * 1024
_TAIL = 40
_LOOK_S = 60.0


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
        self._sandbox: Sandboxed | None = None
        self._talk: _Talk | None = None
        self._said: deque[str] = deque(maxlen=_TAIL)
        self._listening: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Wait until it takes jobs."""
        command = sandbox.command(self._environment, self.folder)
        pipe = subprocess.PIPE
        self._sandbox = Sandboxed(command, stdin=pipe, stdout=pipe, stderr=pipe)
        self._talk = talk = await _talk_to(self._sandbox)
        self._listening = asyncio.ensure_future(self._listen(talk))
        self._watching = asyncio.ensure_future(self._watch(self._sandbox))
        await self._read(talk, START_S, "did not start")

    async def ask(self, job: Mapping[str, Any], seconds: float) -> Answer:
        """Do one job; `EvaluatorError` when there is no answer, after which the worker is of no more use."""
        if self._talk is None:
            raise EvaluatorError("the evaluator was not started")
        token = secrets.token_hex(16)
        self._said.clear()
        try:
            self._talk.jobs.write(msgspec.json.encode({**job, "token": token}) + b"\n")
            await self._talk.jobs.drain()
        except OSError as error:
            raise EvaluatorError(f"the evaluator is gone: {error}; it said: {self.said()}") from None
        answer = await self._read(self._talk, seconds, "did not finish", token)
        self.spent = answer.spent
        return answer

    async def _read(self, talk: _Talk, seconds: float, what: str, token: str = "") -> Answer:
        """The answer with that token; no job can write one, so anything else is nonsense."""
        try:
            async with time_limit(seconds):
                line = await talk.answers.readline()
        except TimeoutError:
            raise EvaluatorError(f"the evaluator {what} within {seconds:g} s; it said: {self.said()}") from None
        except ValueError:
            raise EvaluatorError(f"the evaluator answered with more than {_LINE} bytes") from None
        if not line:
            raise EvaluatorError(f"the evaluator ended; it said: {self.said()}")
        with contextlib.suppress(msgspec.MsgspecError):
            answer = msgspec.json.decode(line, type=Answer)
            if answer.token == token:
                return answer
        raise EvaluatorError(f"the evaluator answered nonsense; it said: {self.said()}")

    def said(self) -> str:
        """The end of what it printed."""
        return plain("\n".join(self._said), 4000, keep="\n\t") or "nothing"

    async def _listen(self, talk: _Talk) -> None:
        while chunk := await talk.said.read(_LINE):
            self._said.extend(chunk.decode(errors="replace").splitlines()[-_TAIL:])

    async def _watch(self, sandboxed: Sandboxed) -> None:
        """Where somebody else has killed bubblewrap, what is inside may live on, and a job wait for it."""
        while not await sandboxed.exits(_LOOK_S):
            pass
        sandboxed.kill()

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._sandbox is not None and self._sandbox.alive()

    async def end(self) -> None:
        """Kill it, and wait until nothing is left of it."""
        try:
            if self._watching is not None:
                self._watching.cancel()
            if self._sandbox is not None:
                await self._sandbox.end_soon()
            if self._listening is not None:
                self._listening.cancel()
                await asyncio.gather(self._listening, return_exceptions=True)
        finally:
            if self._talk is not None:
                self._talk.close()
            self._forget()


@dataclass(frozen=True)
class _Talk:
    """The standard streams of a worker."""

    jobs: asyncio.StreamWriter
    answers: asyncio.StreamReader
    said: asyncio.StreamReader
    transports: tuple[asyncio.BaseTransport, ...]

    def close(self) -> None:
        for each in self.transports:
            each.close()


async def _talk_to(sandboxed: Sandboxed) -> _Talk:
    loop = asyncio.get_running_loop()
    readers = [asyncio.StreamReader(limit=_LINE) for _ in range(3)]
    jobs, answers, said = protocols = [asyncio.StreamReaderProtocol(each) for each in readers]
    transports: list[asyncio.BaseTransport] = []
    stdin, stdout, stderr = sandboxed.pipes
    try:
        writing, _ = await loop.connect_write_pipe(lambda: jobs, stdin)
        transports.append(writing)
        for pipe, protocol in ((stdout, answers), (stderr, said)):
            transports.append((await loop.connect_read_pipe(lambda p=protocol: p, pipe))[0])  # type: ignore[misc]
    except BaseException:
        for each in transports:
            each.close()
        for pipe in sandboxed.pipes[len(transports) :]:
            pipe.close()
        raise
    writer = asyncio.StreamWriter(writing, protocols[0], None, loop)
    return _Talk(writer, readers[1], readers[2], tuple(transports))


def _make_folder() -> Path:
    try:
        return make_scratch_folder("evaluator", "relay/5000.sock")
    except BootError as error:
        raise EvaluatorError(f"OSWorld's evaluators need a place for sockets: {error}") from error
