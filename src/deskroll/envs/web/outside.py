"""What lies outside of the process: names, sockets and variables; and the guard between them and a page's address.

Guarantees of `guarded`: a connection is made only to an address that was checked, the very one that its name was
resolved to for this connection; a second look at the name, which may say something else by then, does not happen.
Names are looked up by threads that do nothing else: a name server that is slow to answer delays no other work.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from deskroll.envs.web.addresses import is_public
from deskroll.envs.web.errors import PageError
from deskroll.errors import plain

AddressInfo = tuple[Any, Any, int, str, tuple[Any, ...]]
"""Family, type, protocol, canonical name and socket address, as `getaddrinfo` gives them."""
_LOOKUPS = 32
"""Names that a process looks up at a time; a look-up that nobody waits for any more goes on until it ends by itself."""


class Resolver(Protocol):
    """Turns names into addresses."""

    async def addresses(self, host: str) -> Sequence[str]:
        """The IP addresses of a host; none, or an `OSError`, where there is no such host."""


def look_up(host: str) -> Sequence[str]:
    """The IP addresses that the system knows of a host; blocks for as long as its name servers take."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class SystemResolver:
    """The resolver of this machine, or whatever else blocks while it looks a name up."""

    def __init__(self, look_up: Callable[[str], Sequence[str]] = look_up) -> None:
        self._look_up = look_up

    async def addresses(self, host: str) -> Sequence[str]:
        """What the system says."""
        return await asyncio.get_running_loop().run_in_executor(_threads(os.getpid()), self._look_up, host)


@functools.cache
def _threads(pid: int) -> ThreadPoolExecutor:
    """The threads that look names up in the process of that id: a fork has none of its parent's."""
    return ThreadPoolExecutor(_LOOKUPS, "deskroll-names")


def open_socket(info: AddressInfo) -> socket.socket:
    """A new socket that fits to an address; not connected yet."""
    return socket.socket(info[0], info[1], info[2])


def is_own(address: str) -> bool:
    """Whether an IP address is one of this machine's: what listens there may take its visitors for friends."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class Outside:
    """The world around an environment; tests hand in their own."""

    resolver: Resolver = field(default_factory=SystemResolver)
    open_socket: Callable[[AddressInfo], socket.socket] = open_socket
    """Makes the socket for one connection to one address."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    is_own: Callable[[str], bool] = is_own
    """Whether an IP address is one of this machine's."""


def guarded(outside: Outside, *, trusted: bool) -> aiohttp.TCPConnector:
    """A connector that reaches public addresses only; with `trusted`, any."""

    def socket_of(info: AddressInfo) -> socket.socket:
        if not trusted:
            _refuse_private(str(info[4][0]), outside)
        return outside.open_socket(info)

    return aiohttp.TCPConnector(
        resolver=_Checked(outside, trusted=trusted),
        socket_factory=socket_of,
        use_dns_cache=False,
        force_close=True,  # nothing is kept from one page to the next
        limit=0,
    )


class _Checked(AbstractResolver):
    """A resolver whose every answer was checked; one bad address among good ones spoils all."""

    def __init__(self, outside: Outside, *, trusted: bool) -> None:
        self._outside = outside
        self._trusted = trusted

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a host, checked."""
        found = await self._outside.resolver.addresses(host)
        if not found:
            raise PageError("there is no such host")
        if not self._trusted:
            for address in found:
                _refuse_private(address, self._outside)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in found
        ]

    async def close(self) -> None:
        """Nothing is held."""


def _refuse_private(address: str, outside: Outside) -> None:
    if not is_public(address) or outside.is_own(address):
        raise PageError(f"the host leads to {plain(address, 60)}, which is not a public address; it is not visited")
