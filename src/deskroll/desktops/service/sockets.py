"""Where a service listens, and who is at the other end.

Guarantees: a socket that a killed service has left is replaced; one that answers, or anything else at that path, is
never touched; a service that stops removes its own socket only.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web

from deskroll.desktops.service.wire import Listen
from deskroll.errors import InputError

_BACKLOG = 4096


@contextmanager
def listening(listen: Listen) -> Iterator[socket.socket]:
    """A listening socket, on a path (for this user alone) or a port."""
    try:
        if listen.is_unix:
            with _on_path(Path(listen.path)) as listener:
                yield listener
            return
        family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        listener = socket.create_server((listen.host, listen.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise InputError(f"cannot serve on {listen}: {error.strerror or error}") from error
    with listener:
        yield listener


@contextmanager
def _on_path(path: Path) -> Iterator[socket.socket]:
    with contextlib.ExitStack() as stack:
        with _locked(path.parent):
            _clear(path)
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            old = os.umask(0o177)
            try:
                listener.bind(str(path))
            finally:
                os.umask(old)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
            ours = path.stat().st_ino
        try:
            yield listener
        finally:
            with _locked(path.parent), contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == ours:
                    path.unlink()


def _clear(path: Path) -> None:
    """Make room for a socket, where nothing but a dead one is in the way."""
    if path.exists() and not path.is_socket():
        raise InputError(f"cannot serve on unix:{path}: there is something else at that path")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)  # left by a service that was killed
            return
    raise InputError(
        f"a pool is served on unix:{path} already: run on that one (--set pool=unix:{path}), stop it, or listen "
        "somewhere else"
    )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One at a time: between bind and listen, a socket looks like a dead one."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


@contextmanager
def watching_peer(request: web.Request, gone: Callable[[], None]) -> Iterator[None]:
    """Have `gone` called when the process at the other end of a unix socket dies, whoever else has its descriptor."""
    pidfd = _peer_pidfd(request)
    if pidfd is None:
        yield
        return
    loop = asyncio.get_running_loop()

    def ended() -> None:
        loop.remove_reader(pidfd)
        gone()

    loop.add_reader(pidfd, ended)
    try:
        yield
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


def _peer_pidfd(request: web.Request) -> int | None:
    """The process that connected; None over TCP, and where it cannot be seen from here."""
    peer = request.transport.get_extra_info("socket") if request.transport is not None else None
    if peer is None or peer.family != socket.AF_UNIX:
        return None
    pid, _, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if pid <= 0:
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
