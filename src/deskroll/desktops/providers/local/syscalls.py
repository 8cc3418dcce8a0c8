"""The system calls that programs in a desktop may not make.

The namespaces hold without it. It closes what they leave open or what no program of a desktop needs: keys and sockets
that know no namespaces, interfaces of the kernel that are made for its administrators. Programs may still make
namespaces of their own, as browsers, bubblewrap and flatpak do, and mount there what bubblewrap mounts: but nothing
that holds devices, for a devpts of one's own would have room for all terminals of the machine.

One mount is neither made nor refused: that with the flags nosuid and noexec and no others. bubblewrap asks so for its
devpts, and gives up where it gets none. A filter sees the flags of a mount, not what is to be mounted or where. So
whatever else a program mounts with just these two flags in a namespace of its own (a tmpfs, say) is not there either,
though the program is told that it is: it finds the folder as it was before. That lets nothing in, as the call is never
made; with nodev as well, the mount is a real one.
"""

from __future__ import annotations

import errno
import socket

from deskroll.host.seccomp import PRETEND, Check, Rules, When, only_families

_FLAGS = 3
"""The argument of `mount` that is looked at."""
_NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _MOVE, _REC, _SILENT = 2, 4, 8, 32, 1 << 12, 1 << 13, 1 << 14, 1 << 15
_PROPAGATION = 0b1111 << 17
_BUBBLEWRAPS_DEVPTS = _NOSUID | _NOEXEC
_EVERYTHING = 0xFFFFFFFF

_MOUNT = Check(
    argument=_FLAGS,
    tests=(
        When(bits=_NODEV),
        When(bits=_REMOUNT, answer=errno.EPERM),  # would take that off again
        When(bits=_BIND | _MOVE),  # of what is mounted already, with the flags that it has
        # The sandboxes of bubblewrap get an empty folder, and go without terminals.
        When(equals=_BUBBLEWRAPS_DEVPTS, answer=PRETEND),
        When(bits=_EVERYTHING & ~(_PROPAGATION | _REC | _SILENT), answer=errno.EPERM),
        When(bits=_PROPAGATION),
    ),
    otherwise=errno.EPERM,
)

RULES = Rules(
    forbidden=(
        "acct", "add_key", "bpf", "clock_settime", "delete_module", "finit_module", "init_module", "io_uring_enter",
        "io_uring_register", "io_uring_setup", "kexec_file_load", "kexec_load", "keyctl", "open_by_handle_at",
        "perf_event_open", "quotactl", "quotactl_fd", "reboot", "request_key", "settimeofday", "swapoff", "swapon",
        "syslog", "userfaultfd",
    ),
    # Programs then mount with `mount`, whose flags a filter sees.
    absent=(
        "fsconfig", "fsmount", "fsopen", "fspick", "mount_setattr", "move_mount", "open_tree", "open_tree_attr",
    ),
    checks={
        "mount": _MOUNT,
        # All of these know network namespaces.
        "socket": only_families((socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)),
    },
)  # fmt: skip
