"""A machine with a network of its own, for tests: run as root, it boots a desktop there and prints what that reaches.

This process goes to new network and mount namespaces. There it has the address 203.0.113.1, a resolver on its loopback,
which knows one name, and another machine, 203.0.113.2, at the other end of a cable, which answers on port 80. It also
listens itself: on TCP, and to two groups of multicast, as machines do that look for each other's services. Whatever was
sent before it prints is in what it prints: each listener hears a last word of its own first.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.providers.local.provider import LocalProvider

_NEW_NET, _NEW_MOUNTS, _PRIVATE, _BIND = 0x40000000, 0x20000, 16384 | 1 << 18, 4096
HERE, THERE, NAME = "203.0.113.1", "203.0.113.2", b"\x05there\x04test\x00"
GROUPS = (("224.0.0.251", 5353), ("239.255.255.250", 1900))
"""Where machines ask for each other's services: mDNS and SSDP."""
_DIE_WITH_PARENT = 1
_LAST = b"the last word"
_libc = ctypes.CDLL(None, use_errno=True)


def _unshare(what: int) -> None:
    if _libc.unshare(what) != 0:
        raise OSError(ctypes.get_errno(), "cannot make namespaces")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _be_there(ready: int, go: int) -> None:
    """The other machine: waits for its end of the cable, then serves, while this process lives."""
    _libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    _unshare(_NEW_NET)
    os.write(ready, b"1")
    os.read(go, 1)
    _ip("addr", "add", f"{THERE}/24", "dev", "cable1")
    _ip("link", "set", "cable1", "up")
    with socket.create_server((THERE, 80)) as server:
        os.write(ready, b"2")
        while True:
            server.accept()[0].sendall(b"there")


def _resolve() -> None:
    """A resolver that knows where THERE is."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 53))
        while True:
            asked, whence = server.recvfrom(512)
            question = asked[12 : asked.index(0, 12) + 5]
            known, wanted = question.lower().startswith(NAME), question[-4:-2] == b"\0\1"
            record = b"\xc0\x0c\0\1\0\1\0\0\0\5\0\4" + socket.inet_aton(THERE) if known and wanted else b""
            code, count = b"\x81\x80" if known else b"\x81\x83", b"\0\1" if record else b"\0\0"
            server.sendto(asked[:2] + code + b"\0\1" + count + b"\0\0\0\0" + question + record, whence)


class _Ears:
    """Listens on TCP, and on UDP to the groups, to broadcasts and to what is sent to this machine itself."""

    def __init__(self) -> None:
        self._heard: list[str] = []
        self._tcp = socket.create_server(("0.0.0.0", 8000))
        self._udp = [self._join(*group) for group in GROUPS]
        self._threads = [threading.Thread(target=self._take, daemon=True)]
        self._threads += [threading.Thread(target=self._hear, args=(each,), daemon=True) for each in self._udp]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _join(group: str, port: int) -> socket.socket:
        ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        ear.bind(("0.0.0.0", port))
        for device in (HERE, "127.0.0.1"):
            joined = socket.inet_aton(group) + socket.inet_aton(device)
            ear.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
        return ear

    def _take(self) -> None:
        while True:
            visitor, whence = self._tcp.accept()
            with visitor:
                self._heard.append(f"TCP from {whence}")
                if whence[0] == HERE and visitor.recv(100) == _LAST:
                    self._heard.pop()
                    return

    def _hear(self, ear: socket.socket) -> None:
        while (said := ear.recvfrom(100))[0] != _LAST:
            self._heard.append(f"UDP from {said}")

    def heard(self) -> list[str]:
        """All that came until now, from anybody but this process."""
        with socket.create_connection((HERE, 8000)) as last:
            last.sendall(_LAST)
        for group in GROUPS:  # by the way that others would come
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
                last.sendto(_LAST, group)
        for thread in self._threads:
            thread.join(60)
            if thread.is_alive():
                raise RuntimeError("a listener does not hear this machine itself")
        return self._heard


def _set_up() -> int:
    ready_read, ready = os.pipe()
    go_read, go = os.pipe()
    _unshare(_NEW_NET | _NEW_MOUNTS)
    other = os.fork()
    if other == 0:
        _be_there(ready, go_read)
    os.read(ready_read, 1)
    _ip("link", "set", "lo", "up")
    _ip("link", "add", "cable0", "type", "veth", "peer", "name", "cable1", "netns", str(other))
    _ip("addr", "add", f"{HERE}/24", "dev", "cable0")
    _ip("link", "set", "cable0", "up")
    _ip("route", "add", "default", "via", THERE)
    os.write(go, b"1")
    os.read(ready_read, 1)
    _libc.mount(b"none", b"/", None, _PRIVATE, None)
    with tempfile.NamedTemporaryFile("w", delete=False) as file:
        file.write("nameserver 127.0.0.1\n")
    Path(file.name).chmod(0o644)
    target = str(Path("/etc/resolv.conf").resolve()).encode()
    try:
        if _libc.mount(file.name.encode(), target, None, _BIND, None) != 0:
            raise OSError(ctypes.get_errno(), "cannot set a resolver")
    finally:
        Path(file.name).unlink()  # what is mounted stays
    return other


async def _look(code: str) -> object:
    async with LocalProvider() as provider:
        address = await provider.boot(DesktopSpec(width=640, height=480, network=True))
        async with GuestDesktop(address) as desktop:
            done = await desktop.run(["python3", "-c", code])
            if done.returncode:
                raise RuntimeError(done.error)
            return json.loads(done.output)


def main() -> None:
    """Run the code, an argument, in a desktop; print what it printed, and whom this machine heard."""
    other = _set_up()
    threading.Thread(target=_resolve, daemon=True).start()
    ears = _Ears()
    try:
        print(json.dumps({"inside": asyncio.run(_look(sys.argv[1])), "heard": ears.heard()}))
    finally:
        os.kill(other, signal.SIGKILL)


if __name__ == "__main__":
    main()
