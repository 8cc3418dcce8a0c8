"""The caller's side of `limited`: holds the server processes, starts each when there is a call, and ends it.

Guarantees: for each calling process one server for confined functions and one for others, also after a fork; one that
has died is replaced with the next call; to hand over a call or to ask for a sign of life never takes longer than the
patience given. Where bubblewrap can make no sandbox, the log says so once, and confined functions go without.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import logging
import os
import socket
import sys
import tempfile
import threading
import weakref

from deskroll.clocks import time_limit
from deskroll.envs.limited import sandbox
from deskroll.envs.limited.server import OUTER, PING
from deskroll.errors import plain
from deskroll.host import bubblewrap
from deskroll.host.bubblewrap import Command
from deskroll.host.sandboxed import Sandboxed
from deskroll.host.sockets import send_with_files

_log = logging.getLogger(__name__)

_IN_FLIGHT = 32
"""Calls that one loop hands to the server at a time: each holds open files in both."""
_LAST_WORDS = 1000
START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from deskroll.envs.limited.server import main; main(*map(int, sys.argv[2:]))"
)
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class Lost(Exception):
    """The machine failed a call: the server or the call's process is gone, or could not be had."""


class Server:
    """The server process, as its caller holds it."""

    def __init__(self, *, confined: bool) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (closed with it)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        try:
            with theirs:
                self._sandbox = _start(theirs.fileno(), self._output.fileno(), confined=confined)
        except BaseException:
            self._release()
            raise
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is dead, which the first call sees
                send_with_files(self._control, OUTER, [self._sandbox.outer])
        except BaseException:
            self.end()
            raise

    def _release(self) -> None:
        self._control.close()
        self._output.close()

    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._sandbox.alive()

    async def ends(self, seconds: float) -> bool:
        """Whether the process that was started, with or around the server, ends within that time."""
        return await self._sandbox.exits(seconds)

    def hand(self, message: bytes) -> socket.socket:
        """Send it a message with one end of a new socket, and return the other; raises what `sendmsg` raises."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        try:
            with theirs:
                send_with_files(self._control, message, [theirs.fileno()])
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
        self._sandbox.kill()

    def end(self) -> None:
        """End it and all that it runs."""
        self._sandbox.end()
        self._release()

    def disown(self) -> None:
        """In a fork of its caller: it belongs to somebody else, who must be the only one that holds its socket."""
        self._sandbox.disown()
        self._release()


def _start(control: int, output: int, *, confined: bool) -> Sandboxed:
    path = [os.path.abspath(each) for each in sys.path]  # noqa: PTH100  (an empty one is this folder)
    caller = os.pidfd_open(os.getpid())
    program = ["-I", "-c", START, json.dumps(path), str(control), str(caller), str(int(confined))]
    try:
        made = Command(words=(sys.executable, *program))
        if confined:
            made = sandbox.command(program, path, _ENVIRONMENT)
        environment = {} if confined else _ENVIRONMENT
        return Sandboxed(made, stderr=output, files=(control, caller), environment=environment)
    finally:
        os.close(caller)


class _Home:
    """What this process holds: the servers, once there was a call, and a gate for each event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servers: dict[bool, Server] = {}
        """By whether they are confined."""
        self._open = False
        """Whether this machine has no sandboxes; known with the first server that wants one."""
        self._hooked = False
        self._gates: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            weakref.WeakKeyDictionary()
        )

    def gate(self) -> asyncio.Semaphore:
        """The bound on calls in flight of the running loop."""
        return self._gates.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_IN_FLIGHT))

    async def call(self, ask: bytes, patience: float, *, confined: bool) -> tuple[socket.socket, Server]:
        """Hand a call to the server, and return the socket to whoever will run it."""
        server: Server | None = None
        try:
            async with time_limit(patience):
                while True:
                    try:
                        with self._lock:  # no other thread ends it meanwhile
                            server = self._ready(confined)
                            return server.hand(ask), server
                    except (BlockingIOError, BrokenPipeError, ConnectionResetError):
                        # It is importing, and loops of several threads share its socket; or it was just killed.
                        await asyncio.sleep(0.01)
        except TimeoutError:
            if server is not None and not await server.answers(patience):
                server.kill()
            raise Lost(f"the process that runs functions within limits took nothing for {patience:g} s") from None

    def _ready(self, confined: bool) -> Server:
        server = self._servers.get(confined)
        if server is not None and not server.alive():
            self._servers.pop(confined).end()
            server = None
        if server is None:
            server = self._servers[confined] = Server(confined=confined and self._can_confine())
        if not self._hooked:
            self._hooked = True
            os.register_at_fork(after_in_child=self._forget)
            atexit.register(self.end)
        return server

    def _can_confine(self) -> bool:
        if not self._open and (why := bubblewrap.what_forbids_it()):
            self._open = True
            _log.warning("what comes from strangers is read without a sandbox: %s; see `deskroll doctor`", why)
        return not self._open

    def _forget(self) -> None:
        """In a fork: nothing of the parent's is ours."""
        for server in self._servers.values():
            server.disown()
        self._servers, self._lock, self._gates = {}, threading.Lock(), weakref.WeakKeyDictionary()

    def end(self) -> None:
        """End the servers that there are."""
        while self._servers:
            self._servers.popitem()[1].end()


HOME = _Home()
