"""The session keyring of a process: keys that the kernel keeps, which a program inherits from whoever started it.

No namespace separates them. What is to see none of its starter's keys gets a keyring of its own before it starts.
"""

from __future__ import annotations

import ctypes
import errno
import os

from deskroll.host.syscalls import numbers

_JOIN_SESSION_KEYRING = 1
_NONE_TO_BE_HAD = (errno.ENOSYS, errno.EPERM)
"""A kernel without keys, and a container that is kept from them: what is started from here is, too."""


def leave_session_keyring() -> None:
    """Give the calling process, and all that it starts, a new and empty session keyring."""
    call = numbers().get("keyctl")
    if call is None:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(call, _JOIN_SESSION_KEYRING, None) < 0 and (error := ctypes.get_errno()) not in _NONE_TO_BE_HAD:
        raise OSError(error, f"cannot make a session keyring: {os.strerror(error)}; kernel.keys.maxkeys bounds them")
