"""One call of a function within limits: asks the server for it and says what came of it, as a result or an error.

Guarantees: what the function did and what the machine did to it are different errors; only the second is tried again.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable, Sequence

import msgspec

from deskroll.envs.limited.home import HOME, Lost, Server
from deskroll.envs.limited.server import TRAILER, Ask, Ended
from deskroll.errors import DeskrollError, FailureKind, SetupError, plain
from deskroll.types import Record

_ATTEMPTS = 2
_OWN_FAULT = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGSYS}
"""Signals that a process brings upon itself; any other that ends it came from somebody else."""


class Bounds(Record, frozen=True):
    """What one call may take."""

    seconds: float = 30.0
    """Time from its turn on, less what it waited for a core: the limit for what sleeps rather than computes."""
    cpu_seconds: float = 5.0
    """CPU time; the kernel counts whole seconds, rounded up."""
    memory_bytes: int = 512 * 2**20
    """Address space beyond what the process begins with."""
    result_bytes: int = 2**20


class Budget:
    """CPU time that several calls share, in seconds."""

    def __init__(self, cpu_seconds: float) -> None:
        self.cpu_seconds = cpu_seconds
        self.used = 0.0

    @property
    def left(self) -> float:
        """What remains of it."""
        return max(0.0, self.cpu_seconds - self.used)


class LimitedError(DeskrollError):
    """A function that ran within limits gave no result."""


class LimitExceeded(LimitedError):
    """It took more than it may; the message says of what."""


class BudgetSpent(LimitExceeded):
    """The calls that share a budget have used it up."""


class FunctionFailed(LimitedError):
    """It raised an exception; the message is the exception's type and text, made printable and cut."""


class FunctionCrashed(LimitedError):
    """Its process died by its own doing."""


class LimitedLost(SetupError):
    """The machine did not let it run: whatever it was asked, that is not to blame."""

    kind = FailureKind.LIMITED_LOST


async def limited(
    function: Callable[[bytes], bytes], given: bytes, limits: Bounds, *,
    preload: Sequence[str] = (), budget: Budget | None = None, patience: float = 30.0, confined: bool = True,
) -> bytes:  # fmt: skip
    """Run a module-level function in a process of its own and return what it returns.

    `preload` names modules that the function imports when called: the server imports them once, the caller never does.
    `patience`: seconds after which a server that says nothing is asked for a sign of life, and within which it must
    give one. `confined`: in a sandbox, where there are no files but those that Python imports from,
    without processes and threads of its own.
    """
    path, why = _path(function), ""
    async with HOME.gate():
        for _ in range(_ATTEMPTS):
            if budget is not None and not budget.left:
                raise _spent(budget)
            cpu = min(limits.cpu_seconds, budget.left) if budget else limits.cpu_seconds
            ask = Ask(function=path, preload=tuple(preload), seconds=limits.seconds, cpu_seconds=cpu,
                      memory_bytes=limits.memory_bytes, result_bytes=limits.result_bytes, alone=confined)  # fmt: skip
            try:
                return _result(await _said(ask, given, patience, confined), ask, limits, budget)
            except (Lost, OSError) as error:  # an OSError: no process or socket is to be had
                why = str(error)
    raise LimitedLost(f"a function cannot be run within limits on this machine; tried {_ATTEMPTS} times, last: {why}")


def _path(function: Callable[[bytes], bytes]) -> str:
    module, name = function.__module__, function.__qualname__
    if not name.isidentifier() or module == "__main__" or getattr(sys.modules.get(module), name, None) is not function:
        raise ValueError(f"{module}.{name} cannot be found by another process; make it a function of a module")
    return f"{module}:{name}"


async def _said(ask: Ask, given: bytes, patience: float, confined: bool) -> bytearray:
    link, server = await HOME.call(msgspec.json.encode(ask), patience, confined=confined)
    try:
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(_watch(server, patience))
            await _send(link, given)
            said = await _receive(link, ask.result_bytes + 1 + TRAILER.size)
            watch.cancel()
    finally:
        link.close()  # a function that still runs is ended by this
    if len(said) < TRAILER.size:
        raise Lost(f"the process that runs functions within limits died; {server.last_words()}")
    return said


async def _watch(server: Server, patience: float) -> None:
    """Kill a server that gives no sign of life, and what is left of one whose sandbox was: its calls then end."""
    while not await server.ends(patience) and await server.answers(patience):
        pass
    server.kill()


async def _send(link: socket.socket, given: bytes) -> None:
    try:
        await asyncio.get_running_loop().sock_sendall(link, given)
        link.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # it ended before it had read everything: what is there to be read says why


async def _receive(link: socket.socket, most: int) -> bytearray:
    said = bytearray()
    while len(said) <= most:
        try:
            data = await asyncio.get_running_loop().sock_recv(link, 2**18)
        except OSError:  # it ended before it had read everything
            break
        if not data:
            break
        said += data
    return said


def _spent(budget: Budget) -> BudgetSpent:
    return BudgetSpent(f"the {budget.cpu_seconds:g} s of CPU time for all of them were used up")


def _result(said: bytearray, ask: Ask, limits: Bounds, budget: Budget | None) -> bytes:
    ended, code, cpu = TRAILER.unpack(said[-TRAILER.size :])
    kind, body = bytes(said[:1]), bytes(said[1 : -TRAILER.size])
    last = budget is not None and ask.cpu_seconds >= budget.left
    if budget is not None:
        budget.used += cpu
    if ended == Ended.UNBEGUN:
        raise Lost(plain(body.decode(errors="replace")))
    if ended == Ended.TIME:
        raise LimitExceeded(f"it took more than {limits.seconds:g} s")
    if code == -signal.SIGXCPU:
        if budget is not None and last:
            budget.used = max(budget.used, budget.cpu_seconds)  # the kernel ends by ticks, and may report a little less
        if budget is not None and ask.cpu_seconds < limits.cpu_seconds:
            raise _spent(budget)
        raise LimitExceeded(f"it took more than {limits.cpu_seconds:g} s of CPU time")
    if code == 0:
        match kind:
            case b"R" if len(body) <= limits.result_bytes:
                return body
            case b"E":
                raise FunctionFailed(plain(body.decode(errors="replace")))
            case b"M":
                raise LimitExceeded(f"it took more than {limits.memory_bytes / 2**20:g} MiB of memory")
            case b"L":
                raise LimitExceeded(f"its result has more than {limits.result_bytes} bytes")
    if code < 0 and -code not in _OWN_FAULT:
        raise Lost(f"its process was killed by signal {-code}")
    raise FunctionCrashed(f"its process {f'was killed by signal {-code}' if code < 0 else f'ended with code {code}'}")
