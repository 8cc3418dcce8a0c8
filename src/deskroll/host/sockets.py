"""Messages that carry open files from one process to another, over sequenced-packet sockets."""

from __future__ import annotations

import array
import socket
from collections.abc import Sequence

LARGEST = 256 * 1024
"""Bytes of one message."""
MOST_FILES = 16


def send_with_files(sock: socket.socket, message: bytes, files: Sequence[int]) -> None:
    """Send a message with copies of descriptors."""
    sock.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])


def receive_with_files(sock: socket.socket) -> tuple[bytes, list[int]]:
    """Wait for a message; an empty one: the other end is closed. Files that may not be opened here are missing."""
    # Close-on-exec from the first moment: a program that inherited one could pose as somebody else.
    space = socket.CMSG_SPACE(MOST_FILES * array.array("i").itemsize)
    message, ancillary, _, _ = sock.recvmsg(LARGEST, space, socket.MSG_CMSG_CLOEXEC)
    files = array.array("i")
    for level, kind, payload in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files.frombytes(payload[: len(payload) - len(payload) % files.itemsize])
    return message, files.tolist()
