"""The device that a desktop with the network has, made before its stack takes it, with a filter of addresses.

Guarantees: nothing leaves by it but what is for the stack itself (the gateway and the name server) and questions for
their hardware addresses: no multicast. For a socket that names its device, the kernel sends multicast whatever the
routes say, the stack would repeat it on the host, and the host's own listeners would hear it. The filter is part of the
device, which only whoever administers the namespace can change.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import struct
from collections.abc import Iterable
from pathlib import Path

TUN = Path("/dev/net/tun")
_SET_DEVICE, _SET_PERSISTENT, _SET_FILTER = 0x400454CA, 0x400454CB, 0x400454D1
_TAP, _WITHOUT_HEADER = 0x0002, 0x1000
_EVERYBODY = bytes([0xFF] * 6)
"""Who has an address is asked of everybody."""
_STACKS_OWN = b"\x52\x55"
"""What the hardware addresses of libslirp begin with; the address that it answers for follows."""


def make_device(name: str, answering: Iterable[str]) -> None:
    """Make it in the network namespace that this process is in; the stack answers for these addresses."""
    allowed = [_EVERYBODY, *(_STACKS_OWN + ipaddress.IPv4Address(each).packed for each in answering)]
    file = os.open(TUN, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(file, _SET_DEVICE, struct.pack("=16sH22x", name.encode(), _TAP | _WITHOUT_HEADER))
        fcntl.ioctl(file, _SET_FILTER, struct.pack("=HH", 0, len(allowed)) + b"".join(allowed))
        fcntl.ioctl(file, _SET_PERSISTENT, 1)
    finally:
        os.close(file)
