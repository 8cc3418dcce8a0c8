"""Desktops with the network: each its own, a way out, and no way to this host or to each other."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.providers.local import network
from deskroll.desktops.providers.local.provider import LocalProvider
from deskroll.errors import MissingDependency
from tests.desktops.conftest import Boot, keeper_of
from tests.waiting import eventually

SPEC = DesktopSpec(width=640, height=480, network=True)
needs_network = pytest.mark.skipif(bool(network.missing()[0]), reason="this machine can give no desktop the network")
needs_root = pytest.mark.skipif(os.getuid() != 0 or not shutil.which("ip"), reason="only root can make another network")

KNOCK = """
import errno, json, select, socket, struct, sys
ADDRESSES, PORT, NAME = json.loads(sys.argv[1])
BIND_TO_DEVICE, UNICAST_IF, OPTIONS = 25, 50, 4
def plain(s, a): s.connect((a, PORT))
def bound(s, a):
    s.setsockopt(socket.SOL_SOCKET, BIND_TO_DEVICE, b"tap0")
    s.connect((a, PORT))
def chosen(s, a):
    s.setsockopt(socket.IPPROTO_IP, UNICAST_IF, struct.pack("!I", socket.if_nametoindex("tap0")))
    s.connect((a, PORT))
def routed(s, a):  # a loose source route: to the gateway, and from there
    s.setsockopt(socket.IPPROTO_IP, OPTIONS, b"\\x83\\x07\\x04" + socket.inet_aton(a) + b"\\0")
    s.connect(("10.0.2.2", PORT))
def nearby(s, a):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)
    s.connect((a, PORT))
def broadcast(s, a):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    bound(s, a)
waiting = {}
for address in (*ADDRESSES, "255.255.255.255", "224.0.0.1"):
    for way in (plain, bound, chosen, routed, nearby, broadcast):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            s = socket.socket(socket.AF_INET, kind)
            s.setblocking(False)
            waiting[s] = f"{address} {way.__name__} {kind!r}"
            try:
                try: way(s, address)
                except BlockingIOError: pass
                if kind is socket.SOCK_DGRAM: s.send(b"knock")
            except OSError: del waiting[s]
reached = []
with socket.socket(socket.AF_UNIX) as s:
    try:
        s.connect(chr(0) + NAME)
        reached.append("abstract")
    except OSError: pass
while waiting and (ready := select.select(list(waiting), [], [], 2.0)[0]):
    for s in ready:
        what = waiting.pop(s)
        try:
            if s.recv(10): reached.append(what)
        except OSError: pass
# What the stack does, it does in the order in which it was asked: when it has refused this, it has done all before.
with socket.socket() as s:
    s.settimeout(60)
    try: s.connect(("10.0.2.2", PORT))
    except OSError as error: last = errno.errorcode.get(error.errno, str(error))
    else: last = "connected"
print(json.dumps({"reached": reached, "last": last}))
"""
SERVE = """
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(sys.argv[1].encode())
http.server.HTTPServer(("", 9222), Answer).serve_forever()
"""


class Host:
    """Listens on every address of this machine, TCP and UDP, and on an abstract socket; notes who comes."""

    def __init__(self) -> None:
        self.visits: list[str] = []
        self.name = f"deskroll-test-{secrets.token_hex(4)}"
        self._tcp = socket.create_server(("0.0.0.0", 0))
        self.port = self._tcp.getsockname()[1]
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("0.0.0.0", self.port))
        self._abstract = socket.socket(socket.AF_UNIX)
        self._abstract.bind("\0" + self.name)
        self._abstract.listen()
        self._threads = [
            threading.Thread(target=self._take, args=(self._tcp,)),
            threading.Thread(target=self._take, args=(self._abstract,)),
            threading.Thread(target=self._hear),
        ]
        for each in self._threads:
            each.start()

    def _take(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                visitor, whence = server.accept()
                self.visits.append(f"TCP {whence!r}")
                visitor.sendall(b"in")
                visitor.close()

    def _hear(self) -> None:
        while (heard := self._udp.recvfrom(100))[0]:
            self.visits.append(f"UDP {heard}")
            self._udp.sendto(b"in", heard[1])

    def all_visits(self) -> list[str]:
        """Who has come until now: each listener takes one after the other, and this call comes last."""
        with socket.create_connection(("127.0.0.1", self.port), 60) as tcp:
            assert tcp.recv(10) == b"in", "the host does answer whoever reaches it"
            own = [f"TCP {tcp.getsockname()!r}"]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.settimeout(60)
            udp.sendto(b"last", ("127.0.0.1", self.port))
            assert udp.recv(10) == b"in"
        with socket.socket(socket.AF_UNIX) as abstract:
            abstract.settimeout(60)
            abstract.bind("")  # any name of its own
            abstract.connect("\0" + self.name)
            assert abstract.recv(10) == b"in"
            own.append(f"TCP {abstract.getsockname()!r}")
        return [each for each in self.visits if each not in own and "b'last'" not in each]

    def close(self) -> None:
        """Stop listening, and wait until nobody does."""
        for each in (self._tcp, self._abstract):
            each.shutdown(socket.SHUT_RDWR)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", ("127.0.0.1", self.port))
        for thread in self._threads:
            thread.join()
        for each in (self._tcp, self._abstract, self._udp):
            each.close()


@pytest.fixture
def host() -> Iterator[Host]:
    listening = Host()
    yield listening
    listening.close()


def own_addresses() -> list[str]:
    """Every IPv4 address of this machine."""
    found = [each.address for all_of in psutil.net_if_addrs().values() for each in all_of]
    return [each for each in found if each.count(".") == 3]


@needs_network
async def test_two_desktops_with_the_network_see_neither_each_other_nor_the_host(boot: Boot, host: Host) -> None:
    one, two = await asyncio.gather(boot(SPEC), boot(SPEC))
    for desktop in (one, two):  # the same port in both, as of Chromium's debugging
        await desktop.launch(["python3", "-c", SERVE, desktop.id])
    for desktop in (one, two):
        await eventually(lambda desktop=desktop: _says_its_id(desktop), f"{desktop.id} reaches its own server")
    addresses = [*own_addresses(), "0.0.0.0", "10.0.2.2", "10.0.2.3", "169.254.169.254", "10.0.2.100"]
    knock = ["python3", "-c", KNOCK, json.dumps([addresses, host.port, host.name])]
    done = await asyncio.gather(one.run(knock), two.run(knock))
    said = [(each.error, json.loads(each.output)) for each in done]
    assert said == [("", {"reached": [], "last": "ENETUNREACH"})] * 2
    assert host.all_visits() == []


async def _says_its_id(desktop: GuestDesktop) -> bool:
    code = "import urllib.request as u; print(u.urlopen('http://localhost:9222').read().decode())"
    return (await desktop.run(["python3", "-c", code])).output.strip() == desktop.id


FIB_TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     |-- 10.8.0.1
        /32 link UNICAST
        /32 host LOCAL
Local:
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.1
           /32 host LOCAL
     |-- 192.168.1.0
        /24 link UNICAST
     |-- 192.168.1.7
        /32 host LOCAL
     |-- 192.168.1.255
        /32 link BROADCAST
     |-- 198.51.100.0
        /24 host LOCAL
"""


def test_the_hosts_own_addresses_are_read_from_its_routes() -> None:
    assert network.own_addresses(FIB_TRIE) == ["10.8.0.1/32", "192.168.1.7/32", "198.51.100.0/24"]


REACH = """
import json, socket, struct
def reach(address, port, device=b""):
    try:
        with socket.socket() as s:
            s.settimeout(30 if port == 80 else 0.5)
            if device: s.setsockopt(socket.SOL_SOCKET, 25, device)
            s.connect((address, port))
            return s.recv(10).decode()
    except OSError as error: return type(error).__name__
print(json.dumps({
    "out": reach("203.0.113.2", 80),
    "by name": reach("there.test", 80),
    "resolver's host": [reach(address, 8000, device) for address in ("10.0.2.3", "10.0.2.2", "203.0.113.1", "127.0.0.1")
                        for device in (b"", b"tap0")],
    "unknown": reach("nowhere.test", 80),
}))
"""
CALL = """
import json, socket, struct, sys
TAP = socket.if_nametoindex("tap0")
def plain(s): pass
def bound(s): s.setsockopt(socket.SOL_SOCKET, 25, b"tap0")
def by_address(s): s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("10.0.2.100"))
def by_index(s): s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack("=4s4si", b"", b"", TAP))
def far(s):
    bound(s)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 64)
def given(s, address): s.sendmsg([b"call"], [(socket.IPPROTO_IP, 8, struct.pack("=i4s4s", TAP, b"", b""))], 0, address)
sent = []
for port in (5353, 1900):
    for to in ("224.0.0.251", "239.255.255.250", "224.0.0.1", "232.1.1.1", "255.255.255.255", "203.0.113.255",
               "10.0.2.255", "203.0.113.1", "127.0.0.1"):
        for way in (plain, bound, by_address, by_index, far, given):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
                try:
                    if way is given: given(s, (to, port))
                    else:
                        way(s)
                        s.sendto(b"call", (to, port))
                    sent.append(f"{to} {way.__name__}")
                except OSError: pass
# What the stack does, it does in the order in which it was asked: this comes last.
with socket.create_connection(("203.0.113.2", 80), 30) as s: last = s.recv(10).decode()
print(json.dumps({"sent": sent, "last": last}))
"""


def in_another_network(code: str) -> dict[str, Any]:
    """What a desktop prints there, and whom the machine that it is on has heard meanwhile."""
    command = [sys.executable, "-m", "tests.desktops.other_network", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@needs_network
@needs_root
def test_it_leads_out_and_names_are_found_where_the_resolver_is_on_loopback() -> None:
    found = in_another_network(REACH)
    inside = found["inside"]
    assert (inside["out"], inside["by name"], inside["unknown"]) == ("there", "there", "gaierror")
    assert "" not in inside["resolver's host"] and "there" not in inside["resolver's host"]
    assert found["heard"] == []


@needs_network
@needs_root
def test_what_is_sent_to_everybody_does_not_reach_who_listens_on_the_host() -> None:
    found = in_another_network(CALL)
    assert found["inside"]["last"] == "there"
    assert "224.0.0.251 bound" in found["inside"]["sent"], "its own kernel lets it go"
    assert found["heard"] == []


@needs_network
async def test_the_way_out_dies_with_its_desktop(boot: Boot, provider: LocalProvider) -> None:
    desktop = await boot(SPEC)
    ways = [each for each in keeper_of(desktop.address).children() if each.name() == "slirp4netns"]
    assert len(ways) == 1
    assert os.getuid() != 0 or ways[0].uids().effective != 0, "it is not root"
    await provider.stop(desktop.id)
    assert not ways[0].is_running()


def test_without_its_program_the_network_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependency, match="network=true needs slirp4netns, which is not installed; run as root:"):
        LocalProvider().check_spec(SPEC)
    LocalProvider().check_spec(DesktopSpec())
