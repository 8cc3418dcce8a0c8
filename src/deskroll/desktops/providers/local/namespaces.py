"""Entering the namespaces of a running bubblewrap sandbox, and giving up all privilege there.

The guest is forked from a process that has imported it already; bubblewrap can only `exec`. So bubblewrap makes the
sandbox, and the fork joins it: the user namespace that owns the mounts first (it grants the right to enter the
others), then the rest, then the inner user namespace in which the desktop's programs run.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

_NS_GET_USERNS = 0xB701
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_LAST_CAPABILITY = 63
_CAPABILITY_VERSION_3 = 0x20080522
_CLONE_NEWNS = 0x20000
_MS_NOSUID, _MS_NOEXEC, _MS_REMOUNT, _MS_REC, _MS_PRIVATE = 2, 8, 32, 16384, 1 << 18
_JOINED = ("mnt", "net", "ipc", "uts", "cgroup", "pid")

_libc = ctypes.CDLL(None, use_errno=True)


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapData(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def set_process_name(name: str) -> None:
    """Name this process as `ps` and `top` show it (15 bytes)."""
    _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that they can be waited for."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def hide_origin(name: str) -> None:
    """Overwrite the command line and environment that this process was started with, and close it to its neighbours.

    A fork inside a sandbox still carries both from the host, where `ps` and /proc would show them. Afterwards no other
    process of the desktop can look into this one's memory either.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    arg_start, arg_end, env_start, env_end = map(int, fields[45:49])
    size = arg_end - arg_start
    ctypes.memmove(arg_start, name.encode()[: size - 1].ljust(size, b"\0"), size)
    ctypes.memset(env_start, 0, env_end - env_start)
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def become(uid: int) -> None:
    """Drop from root to `uid`, for good. Does nothing for a process that is not root."""
    if os.getuid() != 0 or uid == 0:
        return
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # Changing ids makes a process undumpable, and then even its own /proc/self is closed to it.
    _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def join(pid: int, as_owner: Callable[[], None]) -> None:
    """Enter every namespace of process `pid`. Its pid namespace takes effect for children only: fork afterwards.

    `as_owner` is called on the way, inside, with the rights of the mounts' owner.
    """
    files = {name: os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in _JOINED}
    inner = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    outer = fcntl.ioctl(files["mnt"], _NS_GET_USERNS)
    # Where the kernel knows no such namespaces, the caller is in it already: joining would need its owner's rights.
    foreign = {name: file for name, file in files.items() if not _is_own(name, file)}
    enter(outer, "user (outer)")
    for name, file in foreign.items():
        enter(file, name)
    as_owner()
    if os.fstat(inner).st_ino != os.fstat(outer).st_ino:
        enter(inner, "user (inner)")
    for file in (*files.values(), inner, outer):
        os.close(file)
    os.chdir("/")


def _is_own(name: str, file: int) -> bool:
    return Path(f"/proc/self/ns/{name}").stat().st_ino == os.fstat(file).st_ino


def join_owner(file: int) -> None:
    """Enter the user namespace to which another namespace belongs, and so have every right over that one."""
    owner = fcntl.ioctl(file, _NS_GET_USERNS)
    enter(owner, "user (outer)")
    os.close(owner)


def cover_folder(folder: str) -> None:
    """Put an empty folder over one of the host's, for this process and its children alone. Needs root."""
    _require(_libc.unshare(_CLONE_NEWNS), f"cannot cover {folder}")
    _require(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), f"cannot cover {folder}")
    options = b"mode=0755,size=65536"
    _require(_libc.mount(b"none", folder.encode(), b"tmpfs", _MS_NOSUID, options), f"cannot cover {folder}")


def enter(file: int, name: str) -> None:
    """Enter one namespace; its name is for the error."""
    _require(_libc.setns(file, 0), f"cannot enter the sandbox's {name} namespace")


def _require(result: int, failure: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{failure}: {os.strerror(error)}")


def limit_terminals(most: int) -> None:
    """Let the terminals of this mount namespace be so many at most; the machine has a few thousand, for all."""
    options = f"max={most},ptmxmode=0666,mode=620".encode()  # but for the first, as bubblewrap has mounted it
    flags = _MS_REMOUNT | _MS_NOSUID | _MS_NOEXEC
    _require(_libc.mount(b"devpts", b"/dev/pts", None, flags, options), "cannot limit the number of terminals")


def drop_capabilities() -> None:
    """Give up every capability and the ability to gain any, as bubblewrap does for what it starts."""
    for capability in range(_LAST_CAPABILITY + 1):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = _CapHeader(_CAPABILITY_VERSION_3, 0)
    nothing = (_CapData * 2)()
    _require(_libc.capset(ctypes.byref(header), nothing), "cannot give up privileges")
    _require(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "cannot give up privileges")
