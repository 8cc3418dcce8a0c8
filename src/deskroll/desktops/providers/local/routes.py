"""Routes of the network namespace that this process is in, set through the kernel's own interface (rtnetlink)."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Iterable

_NETLINK_ROUTE, _NEW_ROUTE = 0, 24
_REQUEST, _ACK, _CREATE, _REPLACE = 0x1, 0x4, 0x400, 0x100
_MAIN_TABLE, _STATIC, _UNREACHABLE, _DESTINATION = 254, 4, 7, 1
_HEADER = struct.Struct("=IHHII")
"""Length, type, flags, number and sender of a message."""
_ROUTE = struct.Struct("=BBBBBBBBI")
"""Family, bits of destination and source, tos, table, protocol, scope, kind, flags."""
_ADDRESS = struct.Struct("=HH4s")


def make_unreachable(networks: Iterable[str]) -> None:
    """Let nothing lead to these networks, whatever else the table says; raises `OSError`."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_ROUTE) as kernel:
        for text in networks:
            network = ipaddress.IPv4Network(text)
            kernel.send(_message(network))
            error: int = struct.unpack_from("=i", kernel.recv(65536), _HEADER.size)[0]
            if error:
                raise OSError(-error, f"no route to {network} can be set: {os.strerror(-error)}")


def _message(network: ipaddress.IPv4Network) -> bytes:
    route = _ROUTE.pack(socket.AF_INET, network.prefixlen, 0, 0, _MAIN_TABLE, _STATIC, 0, _UNREACHABLE, 0)
    address = _ADDRESS.pack(_ADDRESS.size, _DESTINATION, network.network_address.packed)
    length = _HEADER.size + len(route) + len(address)
    return _HEADER.pack(length, _NEW_ROUTE, _REQUEST | _ACK | _CREATE | _REPLACE, 1, 0) + route + address
