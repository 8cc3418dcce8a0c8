"""What every process that forks others does: share memory with its forks, hear of their ends, and bind them to itself.

For processes of one thread alone: a fork has no other, and what those held locked stays so.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

_PR_SET_PDEATHSIG = 1


def find_function(name: str) -> Callable[..., Any]:
    """The function that is named `module:function`."""
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


def share_memory() -> None:
    """Move all that there is out of the collector's sight: forks then share its pages instead of copying them."""
    gc.collect()
    gc.freeze()


def wake_on_child() -> socket.socket:
    """A socket that can be read from whenever a child has ended."""
    wake, waker = socket.socketpair()
    for each in (wake, waker):
        each.setblocking(False)
    signal.set_wakeup_fd(waker.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return wake


def begin_fork(parent: int | None) -> None:
    """In a fork, first: undo `wake_on_child`, and die with the process that forked it, where that is given."""
    if (waker := signal.set_wakeup_fd(-1)) >= 0:
        os.close(waker)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if parent is not None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before that took effect: nothing would end this fork
            os._exit(70)
