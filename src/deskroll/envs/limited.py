"""Calls of functions within limits: in a process of their own, which may take so much time and memory and no more.

For what works on text that nobody vouches for (a model's formula, a stranger's page). `limited` guarantees: the
caller's event loop never waits for the function; no more of them run at once than there are cores, the others wait
their turn, and their time begins with their turn; a call that is cancelled ends its process; none outlives the calling
process, however that ends; no environment variable of the caller (a key may be among them) is there to be read.

Each call is a fork of a small server (`limited_server`), which is started with the first call, one for each process
that calls, and has imported what the functions need: a call takes milliseconds, not the start of a Python.
"""

from __future__ import annotations

import array
import asyncio
import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence

import msgspec

from deskroll.envs.limited_server import TRAILER, Ask, Ended
from deskroll.errors import DeskrollError, plain
from deskroll.types import Record

_IN_FLIGHT = 32
"""Calls that one loop hands to the server at a time: each holds open files in both."""
_ENDS_S = 5.0
_LAST_WORDS = 1000
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from deskroll.envs.limited_server import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)


class Bounds(Record, frozen=True):
    """What one call may take."""

    seconds: float = 5.0
    """Wall time, from the moment that it is its turn."""
    cpu_seconds: float = 5.0
    """CPU time; the kernel counts whole seconds, rounded up."""
    memory_bytes: int = 512 * 2**20
    """Address space beyond what the process begins with."""
    result_bytes: int = 2**20


class LimitedError(DeskrollError):
    """A function that ran within limits gave no result."""


class LimitExceeded(LimitedError):
    """It took more than it may; the message says of what."""


class FunctionFailed(LimitedError):
    """It raised an exception; the message is the exception's type and text, made printable and cut."""


class FunctionCrashed(LimitedError):
    """Its process died by itself."""


async def limited(
    function: Callable[[bytes], bytes], given: bytes, limits: Bounds, *, preload: Sequence[str] = ()
) -> bytes:
    """Run a module-level function in a process of its own and return what it returns.

    `preload` names modules that the function imports when called: the server imports them once, the caller never does.
    """
    ask = Ask(function=_path(function), preload=tuple(preload), seconds=limits.seconds, cpu_seconds=limits.cpu_seconds,
              memory_bytes=limits.memory_bytes, result_bytes=limits.result_bytes)  # fmt: skip
    async with _home.gate():
        link = await _home.call(msgspec.json.encode(ask))
        try:
            await _send(link, given)
            said = await _receive(link, limits.result_bytes + 1 + TRAILER.size)
        finally:
            link.close()  # a function that still runs is ended by this
    return _result(said, limits)


def _path(function: Callable[[bytes], bytes]) -> str:
    module, name = function.__module__, function.__qualname__
    if not name.isidentifier() or module == "__main__" or getattr(sys.modules.get(module), name, None) is not function:
        raise ValueError(f"{module}.{name} cannot be found by another process; make it a function of a module")
    return f"{module}:{name}"


async def _send(link: socket.socket, given: bytes) -> None:
    try:
        await asyncio.get_running_loop().sock_sendall(link, given)
        link.shutdown(socket.SHUT_WR)
    except (BrokenPipeError, ConnectionResetError, OSError):
        pass  # it ended before it had read everything: what is there to be read says why


async def _receive(link: socket.socket, most: int) -> bytearray:
    said = bytearray()
    while len(said) <= most:
        try:
            data = await asyncio.get_running_loop().sock_recv(link, 2**18)
        except ConnectionResetError:  # it ended before it had read everything
            break
        if not data:
            break
        said += data
    return said


def _result(said: bytearray, limits: Bounds) -> bytes:
    if len(said) < TRAILER.size:
        raise FunctionCrashed(f"the process that runs functions within limits died: {_home.last_words()}")
    ended, code = TRAILER.unpack(said[-TRAILER.size :])
    kind, body = bytes(said[:1]), bytes(said[1 : -TRAILER.size])
    if ended == Ended.TIME:
        raise LimitExceeded(f"it took more than {limits.seconds:g} s")
    if code == -signal.SIGXCPU:
        raise LimitExceeded(f"it took more than {limits.cpu_seconds:g} s of CPU time")
    if code == 0 and ended == Ended.ITSELF:
        match kind:
            case b"R" if len(body) <= limits.result_bytes:
                return body
            case b"E":
                raise FunctionFailed(plain(body.decode(errors="replace")))
            case b"M":
                raise LimitExceeded(f"it took more than {limits.memory_bytes / 2**20:g} MiB of memory")
            case b"L":
                raise LimitExceeded(f"its result has more than {limits.result_bytes} bytes")
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    raise FunctionCrashed(f"its process {how}")


class _Server:
    """The server process, as its caller holds it."""

    def __init__(self) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (closed with it)
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = json.dumps([os.path.abspath(each) for each in sys.path])  # noqa: PTH100  (an empty one is this folder)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _START, path, str(theirs.fileno()), str(os.getpid())],
                pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._output,
                start_new_session=True, env={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        self.control.setblocking(False)

    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def last_words(self) -> str:
        """The end of what it printed."""
        size = os.fstat(self._output.fileno()).st_size
        words = os.pread(self._output.fileno(), _LAST_WORDS, max(0, size - _LAST_WORDS))
        return plain(words.decode(errors="replace"), _LAST_WORDS) or "it said nothing; the next call starts another"

    def end(self) -> None:
        """End it and all that it runs."""
        self.control.close()
        try:
            self._process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()

    def disown(self) -> None:
        """In a fork of its caller: it belongs to somebody else, who must be the only one that holds its socket."""
        self.control.close()
        self._output.close()
        self._process.returncode = 0  # or it would complain that it was left running


class _Home:
    """What this process holds: the server, once there was a call, and a gate for each event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._hooked = False
        self._gates: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            weakref.WeakKeyDictionary()
        )

    def gate(self) -> asyncio.Semaphore:
        """The bound on calls in flight of the running loop."""
        return self._gates.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_IN_FLIGHT))

    async def call(self, ask: bytes) -> socket.socket:
        """Hand a call to the server, and return the socket to whoever will run it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        with theirs:
            files = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))]
            try:
                while True:
                    try:
                        self._ready().control.sendmsg([ask], files)
                    except BlockingIOError:  # it is importing, and loops of several threads share its socket
                        await asyncio.sleep(0.01)
                    except (BrokenPipeError, ConnectionResetError):  # it was killed; alive() will soon know
                        await asyncio.sleep(0.01)
                    else:
                        return ours
            except BaseException:
                ours.close()
                raise

    def last_words(self) -> str:
        """What the server said last."""
        return self._server.last_words() if self._server else ""

    def _ready(self) -> _Server:
        with self._lock:
            if self._server is not None and not self._server.alive():
                self._server.end()
                self._server = None
            if self._server is None:
                self._server = _Server()
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


_home = _Home()
