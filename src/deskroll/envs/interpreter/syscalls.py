"""The system calls that code in the sandbox may not make, as a filter that the kernel runs (seccomp, classic BPF).

The namespaces hold without it. It closes what they leave open: memory that no file system and no process counts (memfd,
System V), sockets that know no namespaces (vsock), namespaces and mounts of the code's own, looking into other
processes, and taking off the signal by which the sandbox dies with its parent. Everything else is allowed.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _JEQ, _JGE, _JSET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data; both machines are little-endian
_NEW_NAMESPACES = 0x7E020000
_PR_SET_PDEATHSIG = 1
_FAMILIES = (1, 2, 10)
"""AF_UNIX, AF_INET, AF_INET6: all of them know network namespaces."""

# Forbidden, by number on (x86_64, aarch64).
_FORBIDDEN: Mapping[str, tuple[int, int]] = {
    "acct": (163, 89), "add_key": (248, 217), "adjtimex": (159, 171), "bpf": (321, 280), "chroot": (161, 51),
    "clock_adjtime": (305, 266), "clock_settime": (227, 112), "delete_module": (176, 106),
    "fanotify_init": (300, 262), "finit_module": (313, 273), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fsopen": (430, 430), "fspick": (433, 433), "init_module": (175, 105), "io_uring_setup": (425, 425),
    "kcmp": (312, 272), "kexec_file_load": (320, 294), "kexec_load": (246, 104), "keyctl": (250, 219),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "mount": (165, 40), "mount_setattr": (442, 442),
    "move_mount": (429, 429), "mq_open": (240, 180), "msgget": (68, 186), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "open_tree": (428, 428), "perf_event_open": (298, 241),
    "personality": (135, 92), "pidfd_getfd": (438, 438), "pivot_root": (155, 41), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "ptrace": (101, 117), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "reboot": (169, 142), "request_key": (249, 218), "semget": (64, 190), "setdomainname": (171, 162),
    "sethostname": (170, 161), "setns": (308, 268), "settimeofday": (164, 170), "shmget": (29, 194),
    "swapoff": (168, 225), "swapon": (167, 224), "syslog": (103, 116), "umount2": (166, 39), "unshare": (272, 97),
    "userfaultfd": (323, 282),
}  # fmt: skip
_CLONE, _CLONE3, _SOCKET, _PRCTL = (56, 220), (435, 435), (41, 198), (157, 167)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_X32 = 0x40000000


def seccomp_filter(machine: str = "") -> bytes | None:
    """The filter as bubblewrap takes it; None where this kind of machine has no table of numbers here."""
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return None
    column, arch = known
    code = [
        _op(_LOAD, _ARCH),
        _op(_JEQ, arch, 1, 0),
        _refuse(errno.EPERM),  # 32-bit programs have numbers of their own
        _op(_LOAD, _NUMBER),
        _op(_JGE, _X32, 0, 1),
        _refuse(errno.ENOSYS),
        *_when(_CLONE3[column], [_refuse(errno.ENOSYS)]),  # its flags are in memory; the C library falls back on clone
        *_when(_CLONE[column], [_argument(), _op(_JSET, _NEW_NAMESPACES, 0, 1), _refuse(errno.EPERM), _allow()]),
        *_when(_PRCTL[column], [_argument(), _op(_JEQ, _PR_SET_PDEATHSIG, 0, 1), _refuse(errno.EPERM), _allow()]),
        *_when(_SOCKET[column], _socket_families()),
    ]
    for numbers in _FORBIDDEN.values():
        code += _when(numbers[column], [_refuse(errno.EPERM)])
    return b"".join([*code, _allow()])


def _socket_families() -> list[bytes]:
    checks = [
        _op(_JEQ, family, len(_FAMILIES) - place, 0)  # over the other checks and the refusal
        for place, family in enumerate(_FAMILIES)
    ]
    return [_argument(), *checks, _refuse(errno.EAFNOSUPPORT), _allow()]


def _when(number: int, then: list[bytes]) -> list[bytes]:
    return [_op(_JEQ, number, 0, len(then)), *then]


def _argument() -> bytes:
    return _op(_LOAD, _FIRST_ARGUMENT)


def _refuse(error: int) -> bytes:
    return _op(_RETURN, _ERRNO | error)


def _allow() -> bytes:
    return _op(_RETURN, _ALLOW)


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)
