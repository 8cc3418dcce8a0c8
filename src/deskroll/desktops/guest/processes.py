"""Programs that run in the desktop on somebody's behalf: time limit, bounded output, no orphan kept waiting for.

A program that starts others in the background ends when it ends itself: its pipes may stay open in a browser's hands
for hours, and nobody waits for those.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
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

    async def read(self, reader: asyncio.StreamReader) -> None:
        """Read to the end, keep the first `MAX_OUTPUT` bytes."""
        while chunk := await reader.read(65536):
            room = MAX_OUTPUT - len(self.data)
            self.data += chunk[:room]
            self.dropped += max(0, len(chunk) - room)

    def text(self) -> str:
        """As text, with a note of what was left out."""
        text = self.data.decode(errors="replace")
        return f"{text}\n[{self.dropped} bytes left out]" if self.dropped else text


class Programs:
    """Starts programs with the session's environment."""

    def __init__(self, env: dict[str, str], home: Path) -> None:
        self._env = env
        self._home = home
        self._launched: set[asyncio.Task[int]] = set()

    async def run(
        self, command: Sequence[str] | str, timeout: float, *, cwd: Path | None = None, merge: bool = False
    ) -> RunResult:
        """Run to the end. Raises OSError when it cannot start, `ProgramTimeout` when it does not end."""
        process = await self._start(command, cwd, merge)
        streams = (_Stream(), _Stream())
        readers = [
            asyncio.create_task(stream.read(pipe))
            for stream, pipe in zip(streams, (process.stdout, process.stderr), strict=True)
            if pipe is not None
        ]
        try:
            returncode = await asyncio.wait_for(process.wait(), timeout)
            await asyncio.wait(readers, timeout=_DRAIN_S)
        except TimeoutError:
            name = command if isinstance(command, str) else " ".join(command)
            raise ProgramTimeout(f"Command '{name[:200]}' timed out after {timeout:g} seconds") from None
        finally:
            if process.returncode is None:
                _kill_group(process.pid)
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
            _close_pipes(process)
        return RunResult(returncode=returncode, output=streams[0].text(), error=streams[1].text())

    async def launch(self, command: Sequence[str] | str) -> int:
        """Start and leave running; returns its pid. Raises OSError when it cannot start."""
        process = await self._start(command, None, merge=False, quiet=True)
        task = asyncio.create_task(process.wait())
        self._launched.add(task)
        task.add_done_callback(self._launched.discard)
        return process.pid

    async def _start(
        self, command: Sequence[str] | str, cwd: Path | None, merge: bool, quiet: bool = False
    ) -> asyncio.subprocess.Process:
        out = asyncio.subprocess.DEVNULL if quiet else asyncio.subprocess.PIPE
        args = ("/bin/sh", "-c", command) if isinstance(command, str) else tuple(command)
        process = await asyncio.create_subprocess_exec(
            *args, env=self._env, cwd=cwd or self._home, stdin=asyncio.subprocess.DEVNULL, stdout=out,
            stderr=asyncio.subprocess.STDOUT if merge else out, start_new_session=True,
        )  # fmt: skip
        with contextlib.suppress(OSError):  # it may have ended already
            Path(f"/proc/{process.pid}/oom_score_adj").write_text(_OOM_FIRST)
        return process


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _close_pipes(process: asyncio.subprocess.Process) -> None:
    # The pipes may be open in a background program still; asyncio would keep our ends for as long.
    transport = process._transport  # type: ignore[attr-defined]
    transport.close()
