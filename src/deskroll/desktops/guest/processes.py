"""Programs that run in the desktop on somebody's behalf: time limit, bounded output, no orphan kept waiting for.

A program that starts others in the background ends when it ends itself: its pipes may stay open in a browser's hands
for hours, and nobody waits for those.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from deskroll.desktops.base import RunResult

MAX_OUTPUT = 8 * 1024 * 1024
"""Bytes of each stream that are kept; the rest is read and dropped, with a note."""
_DRAIN_S = 0.25
"""How long to read on after the program has ended, for what is still in the pipe."""
_OOM_FIRST = "500"
"""Programs are given up before the guest when memory runs out."""


class ProgramTimeout(Exception):
    """A program did not end in time and was killed."""


class _Stream:
    """What came out of one pipe, up to the limit."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.dropped = 0

    def add(self, chunk: bytes) -> None:
        """Keep the first `MAX_OUTPUT` bytes, count the rest."""
        room = MAX_OUTPUT - len(self.data)
        self.data += chunk[:room]
        self.dropped += max(0, len(chunk) - room)

    def text(self) -> str:
        """As text, with a note of what was left out."""
        text = self.data.decode(errors="replace")
        return f"{text}\n[{self.dropped} bytes left out]" if self.dropped else text


class _Program(asyncio.SubprocessProtocol):
    """One running program. asyncio's own `Process.wait` also waits for the pipes, which others may hold open."""

    def __init__(self) -> None:
        self.output = {1: _Stream(), 2: _Stream()}
        self.ended = asyncio.Event()
        self.drained = asyncio.Event()
        self.forgotten = False
        """Whether what is printed is of no interest any more."""

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Something was printed."""
        if not self.forgotten:
            self.output[fd].add(data)

    def process_exited(self) -> None:
        """The program itself has ended."""
        self.ended.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Its pipes are closed as well."""
        self.drained.set()


class Programs:
    """Starts programs with the session's environment."""

    def __init__(self, env: dict[str, str], home: Path) -> None:
        self._env = env
        self._home = home

    async def run(
        self, command: Sequence[str] | str, timeout: float, *, cwd: Path | None = None, merge: bool = False
    ) -> RunResult:
        """Run to the end. Raises OSError when it cannot start, `ProgramTimeout` when it does not end."""
        began = time.monotonic()
        transport, program = await self._start(command, cwd, merge=merge)
        try:
            if not program.ended.is_set():  # starting it counts, and may have taken all of its time
                await asyncio.wait_for(program.ended.wait(), timeout - (time.monotonic() - began))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(program.drained.wait(), _DRAIN_S)
        except TimeoutError:
            name = command if isinstance(command, str) else " ".join(command)
            raise ProgramTimeout(f"Command '{name[:200]}' timed out after {timeout:g} seconds") from None
        finally:
            code = transport.get_returncode()
            if code is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(transport.get_pid(), signal.SIGKILL)
            # A program in the background may write to the pipes for hours yet: closing them would kill it.
            program.forgotten = True
        return RunResult(
            returncode=code if code is not None else -1,
            output=program.output[1].text(),
            error=program.output[2].text(),
        )

    async def launch(self, command: Sequence[str] | str) -> None:
        """Start and leave running. Raises OSError when it cannot start."""
        await self._start(command, None, quiet=True)

    async def _start(
        self, command: Sequence[str] | str, cwd: Path | None, *, merge: bool = False, quiet: bool = False
    ) -> tuple[asyncio.SubprocessTransport, _Program]:
        out = asyncio.subprocess.DEVNULL if quiet else asyncio.subprocess.PIPE
        args = ("/bin/sh", "-c", command) if isinstance(command, str) else tuple(command)
        transport, program = await asyncio.get_running_loop().subprocess_exec(
            _Program, *args, env=self._env, cwd=cwd or self._home, stdin=asyncio.subprocess.DEVNULL, stdout=out,
            stderr=asyncio.subprocess.STDOUT if merge else out, start_new_session=True,
        )  # fmt: skip
        with contextlib.suppress(OSError):  # it may have ended already
            Path(f"/proc/{transport.get_pid()}/oom_score_adj").write_text(_OOM_FIRST)
        return transport, program
