"""What the forks of the tests' zygotes do."""

from __future__ import annotations

import os
import socket
import time

PREPARED: list[int] = []


def prepare() -> None:
    """Run once, in the zygote."""
    PREPARED.append(os.getpid())


def answer(message: bytes, *files: int) -> int:
    """Tell at the first descriptor what was given, and end with that many."""
    with socket.socket(fileno=files[0]) as link:
        link.send(b"%d %d %s" % (len(files), os.getppid() in PREPARED, message))
    return len(files)


def linger(_message: bytes, link: int) -> None:
    """Say so, and stay."""
    os.write(link, b"here")
    time.sleep(3600)


def fail(message: bytes) -> None:
    """As a bug would."""
    raise ValueError(message.decode())
