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

from deskroll.errors import InputError
from deskroll.host.home import expand_home
from deskroll.host.runtime_folder import LONGEST_SOCKET_PATH
from deskroll.types import Record

_BACKLOG = 4096


class Listen(Record, frozen=True):
    """Where a service listens: a unix socket, or a TCP port."""

    path: str = ""
    host: str = ""
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> Listen:
        """Read `unix:PATH`, `HOST:PORT` or `http://HOST:PORT`."""
        if text.startswith("unix:"):
            path = expand_home(text.removeprefix("unix:"))
            if not path or len(path.encode()) > LONGEST_SOCKET_PATH:
                raise InputError(f"{text!r} is not a socket; write unix:PATH of at most {LONGEST_SOCKET_PATH} bytes")
            return cls(path=path)
        host, _, port = text.removeprefix("http://").rstrip("/").rpartition(":")
        if not host.strip("[]") or not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > 65535:
            raise InputError(f"{text!r} is not an address; write unix:PATH, or HOST:PORT with a port up to 65535")
        return cls(host=host.strip("[]"), port=int(port))

    @property
    def is_unix(self) -> bool:
        """Whether it is a unix socket."""
        return bool(self.path)

    @property
    def url(self) -> str:
        """The start of every request's address."""
        if self.path:
            return "http://localhost"
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else self.url


@contextmanager
def open_listener(listen: Listen, *, instead: str) -> Iterator[socket.socket]:
    """A listening socket, on a path (for this user alone) or a port; `instead`: what to do where the path is taken."""
    try:
        if listen.is_unix:
            with _open_on_path(Path(listen.path), instead) as listener:
                yield listener
            return
        family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        listener = socket.create_server((listen.host, listen.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise InputError(f"cannot serve on {listen}: {error.strerror or error}") from error
    with listener:
        yield listener


@contextmanager
def _open_on_path(path: Path, instead: str) -> Iterator[socket.socket]:
    with contextlib.ExitStack() as stack:
        with _lock(path.parent):
            _clear(path, instead)
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
            with _lock(path.parent), contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == ours:
                    path.unlink()


def _clear(path: Path, instead: str) -> None:
    """Make room for a socket, where nothing but a dead one is in the way."""
    if path.exists() and not path.is_socket():
        raise InputError(f"cannot serve on unix:{path}: there is something else at that path")
    if is_served(path):
        raise InputError(f"something is served on unix:{path} already: {instead}")
    path.unlink(missing_ok=True)  # left by a service that was killed


def is_served(path: Path) -> bool:
    """Whether anybody answers on a unix socket; one that a killed service has left is nobody."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """One at a time: between bind and listen, a socket looks like a dead one."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


@contextmanager
def watch_peer(connection: socket.socket | None, gone: Callable[[], None]) -> Iterator[None]:
    """Have `gone` called when the process at the other end of a unix socket dies, whoever else has its descriptor."""
    pidfd = _open_peer(connection)
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


def _open_peer(peer: socket.socket | None) -> int | None:
    """The process that connected; None over TCP, and where it cannot be seen from here."""
    if peer is None or peer.family != socket.AF_UNIX:
        return None
    pid, _, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if pid <= 0:
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
