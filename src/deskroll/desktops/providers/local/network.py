"""The way out of a desktop that has the network: slirp4netns, between the desktop's own namespace and plain sockets.

A desktop with the network has a network namespace and a loopback of its own, as every desktop has, and one more device.
What its programs send there, slirp4netns does for them on the host, as the desktop's own user and without privileges.

Guarantees: nothing of this host can be reached that way: neither its loopback nor any address that it has when the
desktop boots, nor who listens on it to multicast or broadcasts, nor what answers a machine about itself (link-local
addresses, clouds' metadata). Nothing inside may change what sees to that:
- Routes of the namespace lead nowhere for such addresses.
- A socket that names its device is not bound by them: the kernel takes the address for one on the same wire, and asks
  by ARP who has it. slirp4netns answers for its gateway and its name server only, so nothing is ever sent.
- Multicast needs no such answer: the device drops it (`tap.py`). Broadcasts reach slirp4netns, whose sockets may send
  none on the host.
The stack ends with the keeper, however that ends.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import shutil
import stat
from pathlib import Path

from deskroll.desktops.providers.local import namespaces, packages, routes, tap
from deskroll.errors import MissingDependency, plain
from deskroll.host.control_group import ControlGroup
from deskroll.types import Record

DEVICE = "tap0"
_NETWORKS = ("10.0.2.0/24", "10.0.3.0/24", "172.31.254.0/24")
"""Addresses of the desktop's side, the first that this host does not use itself."""
_NOWHERE = (
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",  # link-local: most clouds tell a machine its secrets there
    "168.63.129.16/32",  # Azure's
    "100.100.100.200/32",  # Aliyun's
    "192.0.0.192/32",  # Oracle's
    "224.0.0.0/4",
    "240.0.0.0/4",
)


class Plan(Record, frozen=True):
    """The addresses of one desktop with the network."""

    network: str
    """Of the desktop's side."""
    blocked: tuple[str, ...]
    """Where nothing leads."""

    @property
    def gateway(self) -> str:
        """Where slirp4netns takes what is for everywhere else."""
        return str(ipaddress.ip_network(self.network)[2])

    @property
    def name_server(self) -> str:
        """Where slirp4netns takes questions for the host's own resolver, wherever that is."""
        return str(ipaddress.ip_network(self.network)[3])


def missing() -> tuple[str, str]:
    """What this machine lacks to give a desktop the network, and the line that mends it; empty: nothing."""
    if absent := packages.missing("network"):
        return "slirp4netns, which is not installed", packages.install_line(each.name for each in absent)
    if not tap.TUN.exists():
        return f"{tap.TUN}, which is not there", "modprobe tun"
    if os.getuid() != 0 and not os.access(tap.TUN, os.R_OK | os.W_OK):
        return f"{tap.TUN}, which only root may use", f"chmod 0666 {tap.TUN}"
    return "", ""


def require() -> None:
    """Raise `MissingDependency` unless this machine can give a desktop the network."""
    what, line = missing()
    if what:
        raise MissingDependency(f"a desktop with network=true needs {what}; run as root:  {line}")


def plan() -> Plan:
    """What a desktop that boots now may reach and may not."""
    own = own_addresses(Path("/proc/net/fib_trie").read_text())
    free = (each for each in _NETWORKS if not any(_overlap(each, other) for other in own))
    return Plan(network=next(free, _NETWORKS[0]), blocked=(*_NOWHERE, *own))


def _overlap(one: str, other: str) -> bool:
    return ipaddress.IPv4Network(one).overlaps(ipaddress.IPv4Network(other))


def own_addresses(routes_of_host: str) -> list[str]:
    """The addresses that lead to this host itself, loopback's aside, as the kernel's table has them."""
    found, address = set(), ""
    for line in routes_of_host.splitlines():
        words = line.split()
        if words[0] == "|--":
            address = words[1]
        elif words[-1] == "LOCAL" and not address.startswith("127."):
            found.add(f"{address}{words[0]}")
    return sorted(found)


class WayOut:
    """The stack of one desktop, a child of this process. It ends when this is closed, or this process dies."""

    def __init__(self, pid: int, lifeline: int, ready: int, says: int) -> None:
        self.pidfd = os.pidfd_open(pid)
        self.ready = ready
        """Says a byte when the network is there, and ends without when it cannot be."""
        self._lifeline = lifeline
        self._says = says

    def said(self) -> str:
        """The end of what it printed."""
        with contextlib.suppress(BlockingIOError):
            return plain(os.read(self._says, 65536).decode(errors="replace")[-500:])
        return ""

    def close(self) -> None:
        """Let go of it; the caller buries its children."""
        for file in (self.pidfd, self._lifeline, self.ready, self._says):
            os.close(file)


def connect(plan: Plan, uid: int, sandbox_pid: int, group: ControlGroup | None) -> WayOut:
    """Start the stack of a sandbox as `uid`."""
    net = os.open(f"/proc/{sandbox_pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    ready, tell = os.pipe()
    until, lifeline = os.pipe()
    says, output = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)  # what nobody reads is lost, and holds nothing up
    pid = os.fork()
    if pid == 0:
        _run(plan, uid, group, {"net": net, "ready": tell, "until": until, "output": output})
    for file in (net, tell, until, output):
        os.close(file)
    return WayOut(pid, lifeline, ready, says)


def _run(plan: Plan, uid: int, group: ControlGroup | None, files: dict[str, int]) -> None:
    try:
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        for standard in (1, 2):
            os.dup2(files["output"], standard)
        if group is not None:
            group.enter()
        _show_tun(uid)
        namespaces.become(uid)
        namespaces.join_owner(files["net"])
        _prepare(plan, files["net"])
        command = [
            "slirp4netns", "--configure", "--mtu=65520", "--disable-host-loopback", "--enable-sandbox",
            "--enable-seccomp", f"--cidr={plan.network}", f"--ready-fd={files['ready']}", f"--exit-fd={files['until']}",
            "--netns-type=path", f"/proc/self/fd/{files['net']}", DEVICE,
        ]  # fmt: skip
        for name in ("net", "ready", "until"):
            os.set_inheritable(files[name], True)
        os.execve(shutil.which(command[0]) or command[0], command, {})  # noqa: S606
    except OSError as error:
        os.write(2, str(error).encode())
    finally:
        os._exit(127)


def _show_tun(uid: int) -> None:
    """Let the desktop's user, whom root has made, use the device for such networks where only root may.

    In a mount namespace of this process alone; the host's own device stays as it is.
    """
    if os.getuid() != 0 or uid == 0 or tap.TUN.stat().st_mode & 0o006 == 0o006:
        return
    number = tap.TUN.stat().st_rdev
    namespaces.cover_folder(str(tap.TUN.parent))
    os.umask(0)
    os.mknod(tap.TUN, stat.S_IFCHR | 0o666, number)


def _prepare(plan: Plan, net: int) -> None:
    """Make the device and set the routes, from a process of its own: nobody comes back from that namespace."""
    if (pid := os.fork()) == 0:
        code = 1
        try:
            namespaces.enter(net, "net")
            tap.make_device(DEVICE, (plan.gateway, plan.name_server))
            routes.make_unreachable(plan.blocked)
            code = 0
        except OSError as error:
            os.write(2, str(error).encode())
        finally:
            os._exit(code)
    if os.waitpid(pid, 0)[1] != 0:
        raise OSError("; its device or its routes could not be set")
