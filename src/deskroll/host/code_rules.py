"""The system calls that code in the sandbox may not make, and those that one process there may make for itself alone.

The namespaces hold without it. It closes what they leave open: memory that no file system and no process counts (memfd,
System V), sockets that know no namespaces (vsock), keys, namespaces and mounts of the code's own, looking into other
processes, and taking off the signal by which the sandbox dies with its parent. Everything else is allowed.
"""

from __future__ import annotations

import errno
import socket

from deskroll.host.seccomp import Check, Rules, When, only_families

_NEW_NAMESPACES = 0x7E020000
_PR_SET_PDEATHSIG = 1

RULES = Rules(
    forbidden=(
        "acct", "add_key", "adjtimex", "bpf", "chroot", "clock_adjtime", "clock_settime", "delete_module",
        "fanotify_init", "finit_module", "fsconfig", "fsmount", "fsopen", "fspick", "init_module", "io_uring_enter",
        "io_uring_register", "io_uring_setup", "kcmp", "kexec_file_load", "kexec_load", "keyctl", "memfd_create",
        "memfd_secret", "mount", "mount_setattr", "move_mount", "mq_open", "msgget", "name_to_handle_at",
        "open_by_handle_at", "open_tree", "open_tree_attr", "perf_event_open", "personality", "pidfd_getfd",
        "pivot_root", "process_vm_readv", "process_vm_writev", "ptrace", "quotactl", "quotactl_fd", "reboot",
        "request_key", "semget", "setdomainname", "sethostname", "setns", "settimeofday", "shmget", "swapoff",
        "swapon", "syslog", "umount2", "unshare", "userfaultfd",
    ),
    absent=("clone3",),  # its flags are in memory, where no filter sees them; the C library falls back on clone
    checks={
        "clone": Check(tests=(When(bits=_NEW_NAMESPACES, answer=errno.EPERM),)),
        "prctl": Check(tests=(When(equals=_PR_SET_PDEATHSIG, answer=errno.EPERM),)),
        # All of these know network namespaces.
        "socket": only_families((socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)),
    },
)  # fmt: skip

_TO_ITSELF = (
    "kill", "prlimit64", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "sched_setaffinity", "sched_setattr", "sched_setparam",
    "sched_setscheduler", "tgkill", "tkill",
)  # fmt: skip
"""Their first argument says to which process."""
_SIGNALS = ("kill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "tgkill", "tkill")
"""To these, 0 is the group and not the caller."""
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX = 8, 10, 15
_FIOSETOWN, _SIOCSPGRP = 0x8901, 0x8902


def rules_among_others(pid: int) -> Rules:
    """For the process of that number, which shares a sandbox and a user with others: it does nothing to them.

    Signals (a descriptor can send them as well), limits, priorities, cores, memory; nor does it leave its group, by
    which it is ended. It has no threads, and starts nothing.
    """
    checks = {name: _only((pid,) if name in _SIGNALS else (0, pid)) for name in _TO_ITSELF}
    return Rules(
        forbidden=(
            "ioprio_set", "migrate_pages", "move_pages", "pidfd_open", "pidfd_send_signal", "process_madvise",
            "process_mrelease", "setpgid", "setpriority",
        ),
        checks=checks | {
            "fcntl": _none_of(_F_SETOWN, _F_SETSIG, _F_SETOWN_EX), "ioctl": _none_of(_FIOSETOWN, _SIOCSPGRP),
        },
    )  # fmt: skip


def _only(values: tuple[int, ...]) -> Check:
    return Check(tests=tuple(When(equals=value) for value in values), otherwise=errno.EPERM)


def _none_of(*values: int) -> Check:
    return Check(argument=1, tests=tuple(When(equals=value, answer=errno.EPERM) for value in values))
