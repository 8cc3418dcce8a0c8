"""The command that starts a sandbox: bubblewrap's, and before it, for root, that of `launch.py`.

Every sandbox has: namespaces of its own (user, pid, network, ipc, host name, control group), with loopback as the only
network; /usr and the folders that it names, read-only; bounded folders in memory, and nothing else that can be written
to; a filter of system calls. Unless it asks for them, it has no terminals and no /proc. What runs there is uid 1000
without capabilities; where root starts it by `launch.py`, nobody on the host. What the sandbox is made of is not on the
command line, which everything inside could read, and which would tell paths of the host.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from deskroll.errors import MissingDependency
from deskroll.host import launch, seccomp
from deskroll.host.code_rules import RULES
from deskroll.host.seccomp import Rules
from deskroll.types import Record

UID = 1000
_SEALED = ("--remount-ro", "/dev", "--remount-ro", "/")
"""The last arguments, after every file was put in its place: what is left of the root and of /dev is memory without a
limit of its own, and nobody needs to write there."""
_HOST_UID = 65534
_SMALL = str(1024 * 1024)
_PROBE = "bwrap --unshare-all --uid 1000 --ro-bind / / --proc /proc --dev /dev true"
_PROBE_S = 20.0


class Inside(Record, frozen=True):
    """What programs in a sandbox see and may use."""

    host_name: str
    folders: Mapping[str, str]
    """What is seen of the host, by where it is seen, besides /usr."""
    rooms: Mapping[str, int]
    """Folders in memory that may be written to, with their size in bytes."""
    work: str
    """The folder to begin in."""
    environment: Mapping[str, str] = {}
    modes: Mapping[str, str] = {}
    """Permissions of rooms that are not the owner's alone, and of files that are not for everybody to read."""
    closed: Sequence[str] = ()
    """Folders of its own in which nobody makes anything."""
    hidden: Sequence[str] = ()
    """Folders that would be seen along with others, and are to be empty."""
    files: Mapping[str, bytes] = {}
    """Files of its own."""
    links: Mapping[str, str] = {}
    """Symbolic links: path and target."""
    etc: Sequence[str] = ("ld.so.cache",)
    """What is seen of the host's /etc, where it is there."""
    processes: bool = False
    """Whether there is a /proc, which tells about processes inside, and about the machine."""
    terminals: bool = False
    """Whether programs may have terminals, which are the machine's, and few."""
    rules: Rules = RULES
    """What programs may not call."""
    needs: Sequence[str] = ()
    """System calls that the rules forbid, and that are allowed here."""


class Command(Record, frozen=True):
    """How to start one sandbox."""

    words: tuple[str, ...]
    files: tuple[int, ...] = ()
    """Descriptors that it inherits, for whoever starts it to `close`."""
    report: int = -1
    """Where bubblewrap's own report can be read, without waiting: for whoever starts it to close. Below 0: nowhere."""

    def close(self) -> None:
        """Close what it inherits: it was started, or will not be."""
        for file in self.files:
            os.close(file)


def command(inside: Inside, program: Sequence[str], *, options: Sequence[str] = (), groups: Sequence[str] = (),
            launched: bool = True, needed_by: str) -> Command:  # fmt: skip
    """The command that runs a program in a sandbox, for `Sandboxed` to start.

    `options`: more of bubblewrap's own; `groups`: files that put a process into its control group, for root;
    `launched`: whether root starts it by `launch.py`, else whoever starts it has given up root before; `needed_by`: for
    the message where there is no bubblewrap.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise MissingDependency(f"{needed_by} needs bubblewrap: apt-get install -y --no-install-recommends bubblewrap")
    as_root = launched and os.getuid() == 0
    sources = list(inside.folders.values())
    staged = [f"{launch.STAGE}/{place}" for place in range(len(sources))] if as_root else sources
    binds = dict(zip(inside.folders, staged, strict=True))
    with contextlib.ExitStack() as opened:  # what is open is closed again, unless all goes well
        files = {path: _hold(_make_file(content), opened) for path, content in inside.files.items()}
        args = [*options, *_arguments(inside, binds, files)]
        inherited = list(files.values())
        if (filtered := _filter(inside.rules, tuple(inside.needs))) is not None:
            inherited.append(_hold(_make_file(filtered), opened))
            args += ["--seccomp", str(inherited[-1])]
        report, told = (_hold(file, opened) for file in os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK))
        args += ["--info-fd", str(told)]
        inherited.append(_hold(_make_file(b"".join(arg.encode() + b"\0" for arg in args)), opened))
        words = [bwrap, "--args", str(inherited[-1]), "--", *program]
        if as_root:
            given = [str(_HOST_UID), str(len(groups)), *groups, str(len(sources)), *sources]
            words = [sys.executable, "-I", "-S", launch.__file__, *given, *words]
        opened.pop_all()
        return Command(words=tuple(words), files=(*inherited, told), report=report)


def _hold(file: int, until: contextlib.ExitStack) -> int:
    until.callback(os.close, file)
    return file


def _arguments(inside: Inside, binds: Mapping[str, str], files: Mapping[str, int]) -> list[str]:
    args = ["--unshare-all", "--new-session", "--uid", str(UID), "--gid", str(UID), "--hostname", inside.host_name]
    if inside.processes:
        args += ["--proc", "/proc"]
    args += ["--dev", "/dev"]
    if not inside.terminals:
        args += ["--size", _SMALL, "--tmpfs", "/dev/pts", "--remount-ro", "/dev/pts"]
    args += _system_folders()
    for path, size in inside.rooms.items():
        args += ["--perms", inside.modes.get(path, "0700"), "--size", str(size), "--tmpfs", path]
    for path in inside.closed:
        args += ["--perms", "0555", "--dir", path]
    for target, source in binds.items():
        args += ["--ro-bind", source, target]
    for folder in inside.hidden:
        args += ["--size", _SMALL, "--tmpfs", folder, "--remount-ro", folder]
    for name in inside.etc:
        args += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for path, file in files.items():
        args += ["--perms", inside.modes.get(path, "0444"), "--file", str(file), path]
    for path, target in inside.links.items():
        args += ["--symlink", target, path]
    args += ["--chdir", inside.work]
    for name, value in inside.environment.items():
        args += ["--setenv", name, value]
    return [*args, *_SEALED]


def _filter(rules: Rules, needs: tuple[str, ...]) -> bytes | None:
    forbidden = tuple(name for name in rules.forbidden if name not in needs)
    return seccomp.program(Rules(forbidden=forbidden, absent=rules.absent, checks=rules.checks))


# What does not change while a process runs is found once: a start is paid for by everybody in the loop.
@functools.cache
def _system_folders() -> tuple[str, ...]:
    """The arguments that show the host's programs and libraries, read-only."""
    args = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        if Path("/", name).is_symlink():
            args += ["--symlink", f"usr/{name}", f"/{name}"]
        elif Path("/", name).exists():
            args += ["--ro-bind", f"/{name}", f"/{name}"]
    return tuple(args)


def _make_file(content: bytes) -> int:
    """A file in memory with that content, to be read from its beginning."""
    file = os.memfd_create("deskroll")
    try:
        with os.fdopen(file, "wb", closefd=False) as whole:
            whole.write(content)
        os.lseek(file, 0, os.SEEK_SET)
    except BaseException:
        os.close(file)
        raise
    return file


def what_forbids_it() -> str:
    """Why bubblewrap can make no sandbox here, as the user that code runs as; empty where it can."""
    as_user = {"user": _HOST_UID, "group": _HOST_UID, "extra_groups": ()} if os.getuid() == 0 else {}
    try:
        done = subprocess.run(  # type: ignore[call-overload]
            _PROBE.split(), capture_output=True, text=True, timeout=_PROBE_S, check=False, **as_user
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not run: {error}"
    return f"bubblewrap cannot make any: {done.stderr.strip()}" if done.returncode else ""
