"""A machine with a network of its own, for tests: run as root, it boots a desktop there and prints what that reaches.

This process goes to new network and mount namespaces. There it has the address 203.0.113.1, a resolver on its loopback,
which knows one name, and another machine, 203.0.113.2, at the other end of a cable, which answers on port 80.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
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
_libc = ctypes.CDLL(None, use_errno=True)


def _unshare(what: int) -> None:
    if _libc.unshare(what) != 0:
        raise OSError(ctypes.get_errno(), "cannot make namespaces")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _be_there(ready: int, go: int) -> None:
    """The other machine: waits for its end of the cable, then serves."""
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
    if _libc.mount(file.name.encode(), target, None, _BIND, None) != 0:
        raise OSError(ctypes.get_errno(), "cannot set a resolver")
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
    heard: list[str] = []
    threading.Thread(target=_resolve, daemon=True).start()
    with socket.create_server(("0.0.0.0", 8000)) as server:

        def listen() -> None:
            while True:
                heard.append(str(server.accept()[1]))

        threading.Thread(target=listen, daemon=True).start()
        try:
            print(json.dumps({"inside": asyncio.run(_look(sys.argv[1])), "heard": heard}))
        finally:
            os.kill(other, 9)


if __name__ == "__main__":
    main()
