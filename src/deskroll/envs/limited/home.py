"""The caller's side of `limited`: holds the server process, starts it when there is a call, and ends it.

Guarantees: one server for each calling process, also after a fork; one that has died is replaced with the next call; to
hand over a call or to ask for a sign of life never takes longer than the patience given.
"""

from __future__ import annotations

import array
import asyncio
import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import weakref

from deskroll.clocks import time_limit
from deskroll.envs.limited.server import PING
from deskroll.errors import plain

_IN_FLIGHT = 32
"""Calls that one loop hands to the server at a time: each holds open files in both."""
_ENDS_S = 5.0
_LAST_WORDS = 1000
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from deskroll.envs.limited.server import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)


class Lost(Exception):
    """The machine failed a call: the server or the call's process is gone, or could not be had."""


class Server:
    """The server process, as its caller holds it."""

    def __init__(self) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (closed with it)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = json.dumps([os.path.abspath(each) for each in sys.path])  # noqa: PTH100  (an empty one is this folder)
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-c", _START, path, str(theirs.fileno()), str(os.getpid())],
                    pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    stderr=self._output, start_new_session=True,
                    env={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                )  # fmt: skip
        except BaseException:
            self._control.close()
            self._output.close()
            raise
        self._control.setblocking(False)

    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def hand(self, message: bytes) -> socket.socket:
        """Send it a message with one end of a new socket, and return the other; raises what `sendmsg` raises."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        try:
            with theirs:
                files = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))]
                self._control.sendmsg([message], files)
        except BaseException:
            ours.close()
            raise
        return ours

    async def answers(self, patience: float) -> bool:
        """Whether it gives a sign of life, or is known to be dead; it gives none while it imports."""
        try:
            async with time_limit(patience):
                while True:
                    try:
                        link = self.hand(PING)
                        break
                    except BlockingIOError:  # it has not read what it was sent
                        await asyncio.sleep(0.05)
                with link:
                    await asyncio.get_running_loop().sock_recv(link, 1)
        except TimeoutError:
            return False
        except OSError:
            pass  # it is dead, which whoever waits for it sees, or no socket is to be had, which says nothing
        return True

    def last_words(self) -> str:
        """The end of what it printed."""
        if self._output.closed:
            return "it was ended"
        size = os.fstat(self._output.fileno()).st_size
        words = os.pread(self._output.fileno(), _LAST_WORDS, max(0, size - _LAST_WORDS))
        return plain(words.decode(errors="replace"), _LAST_WORDS) or "it said nothing"

    def kill(self) -> None:
        """Kill it, and so all that it runs, without waiting."""
        self._process.kill()

    def end(self) -> None:
        """End it and all that it runs."""
        self._control.close()
        try:
            self._process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()

    def disown(self) -> None:
        """In a fork of its caller: it belongs to somebody else, who must be the only one that holds its socket."""
        self._control.close()
        self._output.close()
        self._process.returncode = 0  # or it would complain that it was left running


class _Home:
    """What this process holds: the server, once there was a call, and a gate for each event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: Server | None = None
        self._hooked = False
        self._gates: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            weakref.WeakKeyDictionary()
        )

    def gate(self) -> asyncio.Semaphore:
        """The bound on calls in flight of the running loop."""
        return self._gates.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_IN_FLIGHT))

    async def call(self, ask: bytes, patience: float) -> tuple[socket.socket, Server]:
        """Hand a call to the server, and return the socket to whoever will run it."""
        server: Server | None = None
        try:
            async with time_limit(patience):
                while True:
                    server = self._ready()
                    try:
                        return server.hand(ask), server
                    except (BlockingIOError, BrokenPipeError, ConnectionResetError):
                        # It is importing, and loops of several threads share its socket; or it was just killed.
                        await asyncio.sleep(0.01)
        except TimeoutError:
            if server is not None and not await server.answers(patience):
                server.kill()
            raise Lost(f"the process that runs functions within limits took nothing for {patience:g} s") from None

    def _ready(self) -> Server:
        with self._lock:
            if self._server is not None and not self._server.alive():
                self._server.end()
                self._server = None
            if self._server is None:
                self._server = Server()
            if not self._hooked:
                self._hooked = True
                os.register_at_fork(after_in_child=self._forget)
                atexit.register(self.end)
            return self._server

    def _forget(self) -> None:
        """In a fork: nothing of the parent's is ours."""
        if self._server is not None:
            self._server.disown()
        self._server, self._lock, self._gates = None, threading.Lock(), weakref.WeakKeyDictionary()

    def end(self) -> None:
        """End the server, if there is one."""
        if self._server is not None:
            self._server.end()
            self._server = None


HOME = _Home()
