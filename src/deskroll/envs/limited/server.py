"""The server behind `limited`: one process, small and single-threaded, that forks one for each call.

It shares with the zygote how forks are made (`host/forking.py`), and is none: it bounds how many run at once and what
each may take, kills what is late or wanted no more with all that it started, and answers for it, inside a sandbox.

Guarantees: at most as many forks at once as there are cores, in the order of asking; a fork whose time is up, or whose
caller closed its end of the socket, is killed with all that it started; the server ends with its caller, and with the
process that holds its sandbox, and all forks with it. Time that a fork waits for a core is not counted. A fork holds no
open file but its call's socket, and what it prints is dropped. It reads what it is given from that socket, and answers
there with a letter and a body: `R` result, `E` exception, `M` out of memory, `L` the result is too large. The server
then adds how it ended, and closes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import errno
import importlib
import math
import os
import resource
import select
import signal
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import msgspec

from deskroll.host import seccomp
from deskroll.host.code_rules import rules_among_others
from deskroll.host.forking import begin_fork, find_function, share_memory, wake_on_child
from deskroll.host.keyring import leave_session_keyring
from deskroll.host.sockets import receive_with_files
from deskroll.types import Record

TRAILER = struct.Struct("<Bid")
"""How a fork ended (`Ended`), its exit code, negative for a signal, and its CPU time in seconds."""
PING = b"?"
"""Asks for a sign of life, which is a byte on the socket that comes with it."""
OUTER = b"!"
"""Comes with a pidfd: when that process ends, the server does."""
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38


class Ended(enum.IntEnum):
    """Who ended a fork."""

    ITSELF = 0
    TIME = 1
    UNBEGUN = 2
    """There was none: what it needs could not be imported, or no process was to be had."""


class Ask(Record, frozen=True):
    """One call: which function, within which limits."""

    function: str
    """As `module:name`."""
    preload: tuple[str, ...]
    seconds: float
    cpu_seconds: float
    memory_bytes: int
    result_bytes: int
    alone: bool
    """It may start no process and no thread, and do nothing to others: nothing of it stays behind, or disturbs them."""


@dataclass
class _Call:
    ask: Ask
    link: socket.socket
    pid: int = 0
    began: float = 0.0
    until: float = math.inf
    ended: Ended = Ended.ITSELF
    last: bytes = b""
    """What remains to be said to its caller, once it is over."""


class _Server:
    def __init__(self, control: socket.socket, caller: int) -> None:
        self._control = control
        self._masters = {caller}  # pidfds: numbers would mean nothing in a sandbox
        self._waiting: deque[_Call] = deque()
        self._running: dict[int, _Call] = {}
        self._links: dict[int, _Call] = {}
        """Every call that is under way, by the number of its socket."""
        self._most = len(os.sched_getaffinity(0))
        self._pid = os.getpid()
        self._poll = select.poll()
        self._wake = wake_on_child()
        self._imported: set[str] = set()

    def serve(self) -> None:
        """Run calls until the caller is gone, or what holds the sandbox."""
        # The control socket alone does not tell: where the caller has forked, its forks may hold it, too.
        for fd in (*self._masters, self._control.fileno(), self._wake.fileno()):
            self._poll.register(fd, select.POLLIN)
        while True:
            for fd, _ in self._poll.poll(self._patience_ms()):
                if fd in self._masters or (fd == self._control.fileno() and not self._take()):
                    return
                if fd == self._wake.fileno():
                    self._wake.recv(4096)
                elif call := self._links.get(fd):
                    self._abandon(call) if not call.last else self._finish(call)
            self._bury()
            self._end_late_ones()
            self._start()

    def kill_all(self) -> None:
        """End every fork."""
        for call in self._running.values():
            _kill(call.pid)

    def _patience_ms(self) -> float | None:
        until = min((call.until for call in self._running.values()), default=math.inf)
        return None if until == math.inf else max(0.0, (until - time.monotonic()) * 1000 + 1)

    def _take(self) -> bool:
        data, files = receive_with_files(self._control)
        if not data:
            return False
        if not files:  # this process may open no more: the caller sees its socket closed
            return True
        if data == OUTER:
            self._masters.add(files[0])
            self._poll.register(files[0], select.POLLIN)
            return True
        if data == PING:
            with socket.socket(fileno=files[0]) as link, contextlib.suppress(OSError):
                link.send(PING, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            return True
        call = _Call(msgspec.json.decode(data, type=Ask), socket.socket(fileno=files[0]))
        self._links[call.link.fileno()] = call
        self._poll.register(call.link, 0)  # nothing but that the caller has closed it
        self._waiting.append(call)
        return True

    def _start(self) -> None:
        while self._waiting and len(self._running) < self._most:
            call = self._waiting.popleft()
            if _is_gone(call.link):
                self._close(call, b"", 0, 0.0)
                continue
            try:
                function = self._find(call.ask)
                pid = os.fork()
            except Exception as error:  # noqa: BLE001  (an import may fail in any way, and the caller shall read how)
                call.ended = Ended.UNBEGUN
                self._close(call, _error_body(error), 0, 0.0)
                continue
            if pid == 0:
                _run(call, function, self._pid)
            with contextlib.suppress(OSError):  # it does the same: whoever comes first
                os.setpgid(pid, pid)
            call.pid, call.began = pid, time.monotonic()
            call.until = call.began + call.ask.seconds
            self._running[pid] = call

    def _find(self, ask: Ask) -> Callable[[bytes], bytes]:
        for each in (*ask.preload, ask.function.partition(":")[0]):
            if each not in self._imported:
                importlib.import_module(each)
                self._imported.add(each)
                share_memory()
        return find_function(ask.function)

    def _end_late_ones(self) -> None:
        now = time.monotonic()
        for call in self._running.values():
            if call.until <= now:
                call.until = call.began + call.ask.seconds + _seconds_waited(call.pid)
            if call.until <= now:
                call.ended, call.until = Ended.TIME, math.inf
                _kill(call.pid)

    def _abandon(self, call: _Call) -> None:
        """Its caller has gone."""
        if call.pid:
            self._poll.unregister(call.link)
            _kill(call.pid)
        else:
            self._waiting.remove(call)
            self._close(call, b"", 0, 0.0)

    def _bury(self) -> None:
        while self._running:
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if dead is None:
                return
            _kill(dead.si_pid)  # what it may have started; before its number can be anybody else's
            pid, status, usage = os.wait4(dead.si_pid, 0)
            if call := self._running.pop(pid, None):
                self._close(call, b"", os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime)

    def _close(self, call: _Call, said: bytes, code: int, cpu: float) -> None:
        call.last = said + TRAILER.pack(call.ended, code, cpu)
        self._finish(call)

    def _finish(self, call: _Call) -> None:
        """Say how it ended, as soon as the caller has read enough of the result to leave room for that."""
        try:
            call.link.send(call.last, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            self._poll.register(call.link, select.POLLOUT)
            return
        except OSError:
            pass  # the caller has gone
        del self._links[call.link.fileno()]
        with contextlib.suppress(KeyError):  # it is no longer looked at where the caller had gone
            self._poll.unregister(call.link)
        call.link.close()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _is_gone(link: socket.socket) -> bool:
    """Whether the caller has closed its end."""
    poll = select.poll()
    poll.register(link, 0)
    return bool(poll.poll(0))


def _seconds_waited(pid: int) -> float:
    """Seconds that a process was ready to run and had no core; 0 where the kernel does not tell."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as schedstat:  # noqa: PTH123  (as below)
            return int(schedstat.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _error_body(error: BaseException) -> bytes:
    return b"E" + f"{type(error).__name__}: {str(error)[:2000]}".encode(errors="replace")


def _run(call: _Call, function: Callable[[bytes], bytes], server: int) -> NoReturn:
    """In the fork: run the function; never returns."""
    try:
        os.setpgid(0, 0)
        begin_fork(server)
        _let_go(call.link.fileno())
        os.environ.clear()
        said = _answer(call, function)
        call.link.setblocking(True)
        call.link.sendall(said)
        os._exit(0)
    except BaseException:  # noqa: BLE001  (a fork must never come back from here)
        os._exit(70)


def _let_go(keep: int) -> None:
    """Close every file but one, and drop what is printed."""
    os.dup2(1, 2)
    for fd in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208  (a fork should import nothing)
        if fd > 2 and fd != keep:
            with contextlib.suppress(OSError):
                os.close(fd)


def _answer(call: _Call, function: Callable[[bytes], bytes]) -> bytes:
    given = bytearray()
    while data := call.link.recv(2**18):
        given += data
    _confine(call.ask)
    try:
        result = function(bytes(given))
        return b"R" + result if len(result) <= call.ask.result_bytes else b"L"
    except MemoryError:
        return b"M"
    except BaseException as error:  # noqa: BLE001  (whatever it raises is its caller's to read)
        return b"M" if _for_memory(error) else _error_body(error)


def _for_memory(error: BaseException | None) -> bool:
    """Whether it was raised for want of memory, which C code often reports badly."""
    while error is not None:
        if isinstance(error, MemoryError | SystemError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            return True
        error = error.__cause__ or error.__context__
    return False


def _confine(ask: Ask) -> None:
    with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123  (a fork should import nothing)
        begun = int(statm.read().split()[0]) * resource.getpagesize()
    cpu = max(1, math.ceil(ask.cpu_seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    resource.setrlimit(resource.RLIMIT_AS, (begun + ask.memory_bytes,) * 2)
    if ask.alone:
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        _leave_others_alone()


def _leave_others_alone() -> None:
    """Calls that run at the same time share the sandbox: this one does nothing to them."""
    code = seccomp.program(rules_among_others(os.getpid()))
    if code is not None:
        if ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError("cannot give up gaining privileges")
        seccomp.install(code)


def main(control: int, caller: int, confined: int) -> None:
    """Serve over the socket of that number, for a caller whose pidfd has the other."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if confined:
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # no fork looks into this process, or into another
    else:
        leave_session_keyring()  # no call reaches any in a sandbox
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server = _Server(socket.socket(fileno=control), caller)
    try:
        server.serve()
    finally:
        server.kill_all()
