"""The caller's side of `limited`: holds the server processes, starts each when there is a call, and ends it.

Guarantees: for each calling process one server for confined functions and one for others, also after a fork; one that
has died is replaced with the next call; to hand over a call or to ask for a sign of life never takes longer than the
patience given. Where bubblewrap can make no sandbox, the log says so once, and confined functions go without.
"""

from __future__ import annotations

import array
import asyncio
import atexit
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref

import msgspec

from deskroll.clocks import time_limit
from deskroll.envs.limited import sandbox
from deskroll.envs.limited.server import PING
from deskroll.errors import plain
from deskroll.host import bubblewrap
from deskroll.host.bubblewrap import Command

_log = logging.getLogger(__name__)

_IN_FLIGHT = 32
"""Calls that one loop hands to the server at a time: each holds open files in both."""
_ENDS_S = 5.0
_LAST_WORDS = 1000
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from deskroll.envs.limited.server import main; main(*map(int, sys.argv[2:]))"
)
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class Lost(Exception):
    """The machine failed a call: the server or the call's process is gone, or could not be had."""


class Server:
    """The server process, as its caller holds it."""

    def __init__(self, *, confined: bool) -> None:
        self._confined = confined
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (closed with it)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        report, info = os.pipe()
        os.set_blocking(report, False)
        self._info = os.fdopen(report, "rb", buffering=0)
        try:
            with theirs:
                self._process = _start(theirs.fileno(), info, self._output.fileno(), confined=confined)
        except BaseException:
            self._release()
            raise
        finally:
            os.close(info)
        self._control.setblocking(False)

    def _release(self) -> None:
        self._control.close()
        self._output.close()
        self._info.close()

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
        if not self._confined:
            self._process.kill()
        elif self.alive() and not self._info.closed and (said := self._info.read(4096)):
            # In a sandbox it is the first process there, and not the one that was started.
            with contextlib.suppress(ProcessLookupError, msgspec.MsgspecError, KeyError):
                os.kill(msgspec.json.decode(said, type=dict[str, int])["child-pid"], signal.SIGKILL)
            self._process.kill()
        else:
            # One that is only half made must not lose bubblewrap, for which it would wait for ever: it comes up, finds
            # its socket closed, and ends.
            self._control.close()

    def end(self) -> None:
        """End it and all that it runs."""
        self._control.close()
        try:
            self._process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        self._release()

    def disown(self) -> None:
        """In a fork of its caller: it belongs to somebody else, who must be the only one that holds its socket."""
        self._release()
        self._process.returncode = 0  # or it would complain that it was left running


def _start(control: int, info: int, output: int, *, confined: bool) -> subprocess.Popen[bytes]:
    path = [os.path.abspath(each) for each in sys.path]  # noqa: PTH100  (an empty one is this folder)
    caller = os.pidfd_open(os.getpid())
    program = ["-I", "-c", _START, json.dumps(path), str(control), str(caller), str(int(confined))]
    files: tuple[int, ...] = ()
    try:
        made = Command(words=(sys.executable, *program), files=())
        if confined:
            made = sandbox.command(program, path, _ENVIRONMENT, info)
        files = made.files
        return subprocess.Popen(
            made.words, pass_fds=(control, caller, info, *files), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=output, start_new_session=True, env={} if confined else _ENVIRONMENT,
        )  # fmt: skip
    finally:
        for file in (caller, *files):
            os.close(file)


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
                    server = self._ready(confined)
                    try:
                        return server.hand(ask), server
                    except (BlockingIOError, BrokenPipeError, ConnectionResetError):
                        # It is importing, and loops of several threads share its socket; or it was just killed.
                        await asyncio.sleep(0.01)
        except TimeoutError:
            if server is not None and not await server.answers(patience):
                server.kill()
            raise Lost(f"the process that runs functions within limits took nothing for {patience:g} s") from None

    def _ready(self, confined: bool) -> Server:
        with self._lock:
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
