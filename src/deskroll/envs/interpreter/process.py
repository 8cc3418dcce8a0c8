"""One sandboxed interpreter process, seen from outside: asks it to run snippets, and ends it.

Guarantees: what comes from inside is bytes, of which 17 are compared with what was expected and the rest is output of
bounded size; anything else ends the process. `kill` takes effect at once and never blocks; after `end` no process, file
or control group of it is left. Where the worker dies, the sandbox dies with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import os
import secrets
import signal
import socket
from collections.abc import Iterator

from deskroll.clocks import time_limit
from deskroll.envs.interpreter import sandbox
from deskroll.envs.interpreter.output import Output, Said
from deskroll.envs.interpreter.sandbox import Limits
from deskroll.errors import SetupError, plain
from deskroll.host.control_group import ControlGroup
from deskroll.host.sandboxed import Sandboxed

START_TIMEOUT_S = 60.0
"""How long a start may take: far more than it needs, for machines under load."""
GRACE_S = 2.0
"""How long code may take to react to an interrupt."""
_END_S = 10.0
_OURS = 8
"""Processes of bubblewrap and its start, which count too."""
_TOKEN = 16
_CHUNK = 65536
"""Also what a pipe holds: reading so much after an answer gets all that was written before it."""


def make_group(limits: Limits) -> ControlGroup | None:
    """The control group of a new interpreter; None where this process may make none."""
    return ControlGroup.create_own("py", memory_mb=limits.memory_mb, processes=limits.processes + _OURS)


class Outcome(enum.Enum):
    """What became of a snippet."""

    DONE = b"d"
    """It came to its end, be it by an exception."""
    INTERRUPTED = b"i"
    """Its time was over; the interpreter goes on."""
    STUCK = b"s"
    """Its time was over, and it did not react: the interpreter was killed."""
    GONE = b"g"
    """The interpreter ended, or broke off its connection."""


class Process:
    """Starts when it is made; wait for `ready`, and `end` it in any case."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._news = asyncio.Event()
        self._eof = False
        self._garbled = False
        self._files: list[int] = []
        self._group = make_group(limits)
        try:
            self._start()
        except BaseException:
            if self._group is not None:
                self._group.remove()
            raise

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        (printed, printed_inside), (shown, shown_inside) = os.pipe(), os.pipe()
        try:
            entrances = self._group.entrances if self._group is not None else []
            made = sandbox.command(self._limits, theirs.fileno(), shown_inside, entrances)
            inherited = (theirs.fileno(), shown_inside)
            self._sandbox = Sandboxed(made, stdout=printed_inside, stderr=printed_inside, files=inherited)
        except BaseException:
            ours.close()
            for file in (printed, shown):
                os.close(file)
            raise
        finally:
            theirs.close()
            for file in (printed_inside, shown_inside):
                os.close(file)
        self._control, self._printed, self._shown = ours, printed, shown
        self._files = [printed, shown]
        for file in (ours.fileno(), *self._files):
            os.set_blocking(file, False)
        # Where somebody else has killed bubblewrap, what is inside may live on.
        self._loop.add_reader(self._sandbox.outer, self._on_exit)

    async def ready(self) -> None:
        """Wait until it takes snippets; `SetupError` says why it does not."""
        said = Said(1000)
        outcome = await self.run("", START_TIMEOUT_S, said, last=False)
        if outcome is Outcome.DONE and self._sandbox.alive():
            return
        why = plain(said.text()) or f"no answer (status {self._sandbox.exit_code()})"
        raise SetupError(f"the Python interpreter's sandbox does not start: {why}; see `deskroll doctor`")

    async def run(self, source: str, seconds: float, said: Said, *, last: bool) -> Outcome:
        """Run a snippet; `said` gets what it prints and gives. After anything but done or interrupted, end it."""
        token = secrets.token_bytes(_TOKEN)
        body = token + bytes([last]) + source.encode(errors="replace")
        with self._listen(said):
            try:
                async with time_limit(seconds):
                    with contextlib.suppress(ConnectionError):  # gone: its end says how
                        await self._loop.sock_sendall(self._control, len(body).to_bytes(4, "big") + body)
                    outcome = await self._answer(token)
                if outcome is Outcome.INTERRUPTED:
                    outcome = Outcome.DONE  # nobody has interrupted it: the code itself raised that
            except TimeoutError:
                outcome = await self._interrupt(token)
            self._on_output(self._printed, said.printed)
            self._on_output(self._shown, said.shown)
        return outcome

    async def _interrupt(self, token: bytes) -> Outcome:
        self._sandbox.interrupt()
        try:
            async with time_limit(GRACE_S):
                outcome = await self._answer(token)
        except TimeoutError:
            return Outcome.STUCK
        return Outcome.INTERRUPTED if outcome is Outcome.DONE else outcome  # code may end well, and late

    async def _answer(self, token: bytes) -> Outcome:
        while len(self._received) <= _TOKEN and not self._eof:
            self._news.clear()
            await self._news.wait()
        answer = bytes(self._received)
        self._received.clear()
        for outcome in (Outcome.DONE, Outcome.INTERRUPTED):
            if secrets.compare_digest(answer, token + outcome.value):
                return outcome
        self._garbled = bool(answer)
        return Outcome.GONE

    def sound(self) -> bool:
        """Whether it has kept still since its last answer, and lives."""
        try:
            self._control.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return self._sandbox.alive()
        except OSError:
            pass
        return False

    @contextlib.contextmanager
    def _listen(self, said: Said) -> Iterator[None]:
        """Between calls nobody reads: code that goes on printing waits."""
        self._loop.add_reader(self._control.fileno(), self._on_control)
        self._loop.add_reader(self._printed, self._on_output, self._printed, said.printed)
        self._loop.add_reader(self._shown, self._on_output, self._shown, said.shown)
        try:
            yield
        finally:
            for file in (self._control.fileno(), self._printed, self._shown):
                self._loop.remove_reader(file)

    def _on_control(self) -> None:
        try:
            data = self._control.recv(_TOKEN + 2)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._received += data
        # More than an answer is no answer: nothing of it is read before the process is ended.
        if not data or len(self._received) > _TOKEN + 1:
            self._eof = True
            self._loop.remove_reader(self._control.fileno())
        self._news.set()

    def _on_output(self, file: int, output: Output) -> None:
        try:
            data = os.read(file, _CHUNK)
        except BlockingIOError:
            return
        if data:
            output.add(data)
        else:
            self._loop.remove_reader(file)

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._sandbox.outer)
        self._sandbox.kill()

    def kill(self) -> None:
        """End everything inside, now; `end` waits for it."""
        self._sandbox.kill()

    async def how_it_ended(self) -> str:
        """Why an interpreter that is gone went, in words for whoever wrote the code; `SetupError`: not by the code."""
        if self._garbled:
            return "the code wrote to the interpreter's own connection"
        exits = self._sandbox.exits
        if not await exits(GRACE_S) and not (self._sandbox.first_has_ended() and await exits(_END_S)):
            return "the code closed the interpreter's own connection"
        code = self._sandbox.exit_code() or 0
        if self._group is not None and self._group.killed_for_memory():
            return f"the interpreter ran out of memory (limit: {self._limits.memory_mb} MB)"
        if code < 0:  # nothing inside reaches bubblewrap itself
            raise SetupError(f"the Python interpreter's sandbox was killed by signal {-code} of this machine")
        if code > 128 and code - 128 in set(signal.Signals):
            return f"the interpreter died of {signal.Signals(code - 128).name}"
        return f"the code ended the interpreter (exit status {code})"

    async def end(self) -> None:
        """Kill it and wait until nothing is left of it."""
        if self._files:
            self._loop.remove_reader(self._sandbox.outer)
        await self._sandbox.end_soon()
        self._control.close()
        files, self._files = self._files, []
        for file in files:
            os.close(file)
        if self._group is not None:
            await asyncio.to_thread(self._group.remove)
