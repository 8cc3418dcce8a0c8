"""What the inside of an interpreter's sandbox looks like, and the command that makes it.

Inside: namespaces of its own (user, pid, network, ipc, host name, control group), loopback as the only network; /usr
and the base Python read-only, of all site-packages numpy alone; an /etc of its own; no /proc and no /sys, which would
tell about the host; one bounded home in memory. Code runs as uid 1000 without capabilities, in an environment that
holds nothing of the worker's. It dies with the process that started it.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import sys
from pathlib import Path

from deskroll.envs.interpreter import launch
from deskroll.envs.interpreter.syscalls import RULES
from deskroll.errors import MissingDependency
from deskroll.host import seccomp
from deskroll.types import Record

HOME, USER, UID, HOST_NAME = "/home/user", "user", 1000, "python"
_PYTHON, _SITE, _INSIDE = "/opt/python", "/opt/site", "/opt/inside.py"
_HOST_UID = 65534
"""Where the worker is root, its interpreters are nobody, on the host too."""
_MB = 1024 * 1024
# What does not change while a process runs is found once: a start is paid for by everybody in the loop.
_SMALL = str(_MB)
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
_ETC = {
    "/etc/passwd": f"{USER}:x:{UID}:{UID}:{USER}:{HOME}:/bin/sh\n",
    "/etc/group": f"{USER}:x:{UID}:\n",
    "/etc/hosts": f"127.0.0.1 localhost {HOST_NAME}\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


class Limits(Record, frozen=True):
    """What one interpreter may use."""

    timeout: float = 30.0
    """Seconds for one call."""
    memory_mb: int = 1024
    """Memory of all of its processes together."""
    processes: int = 64
    """Processes and threads."""
    disk_mb: int = 256
    """Room for files in its home, and as much again in /dev/shm."""
    output_chars: int = 10_000
    """Characters of a call's output that are shown."""


class Command(Record, frozen=True):
    """How to start one sandbox."""

    words: tuple[str, ...]
    files: tuple[int, ...]
    """Descriptors that it inherits, for the caller to close."""


def numpy_folders() -> list[Path]:
    """Where numpy is, with the libraries that its wheel brings along."""
    found = importlib.util.find_spec("numpy")
    if found is None or found.origin is None:
        raise MissingDependency("the environment py needs numpy: pip install 'deskroll[py]'")
    folder = Path(found.origin).parent
    libraries = folder.parent / "numpy.libs"
    return [folder, libraries] if libraries.is_dir() else [folder]


def command(limits: Limits, control: int, shown: int, info: int, groups: list[str]) -> Command:
    """The command that starts a sandbox, given the descriptors of its connection, of what it shows, and of bubblewrap's
    own report; `groups` are the files that put a process into its control group."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise MissingDependency(
            "the environment py needs bubblewrap: apt-get install -y --no-install-recommends bubblewrap"
        )
    as_root = os.getuid() == 0
    folders = _folders()
    sources = [f"{launch.STAGE}/{place}" for place in range(len(folders))] if as_root else list(folders)
    files = {path: _memory_file(text.encode()) for path, text in _ETC.items()}
    files[_INSIDE] = _memory_file((Path(__file__).parent / "inside.py").read_bytes())
    args = _arguments(limits, dict(zip(sources, folders.values(), strict=True)), files)
    args += ["--info-fd", str(info)]
    kept = list(files.values())
    if (filtered := _filter()) is not None:
        kept.append(_memory_file(filtered))
        args += ["--seccomp", str(kept[-1])]
    sizes = (limits.memory_mb * _MB, limits.processes, limits.disk_mb * _MB)
    program = [_python(), "-I", "-S", "-X", "utf8", _INSIDE, *map(str, (control, shown, *sizes)), _SITE, HOME]
    words = [bwrap, *args, "--", *program]
    if as_root:
        launcher = [sys.executable, "-I", "-S", launch.__file__, str(_HOST_UID), "\n".join(groups), "\n".join(folders)]
        words = launcher + words
    return Command(words=tuple(words), files=tuple(kept))


@functools.cache
def _filter() -> bytes | None:
    return seccomp.program(RULES)


def _arguments(limits: Limits, binds: dict[str, str], files: dict[str, int]) -> list[str]:
    disk = str(limits.disk_mb * _MB)
    args = ["--unshare-all", "--new-session", "--die-with-parent", "--as-pid-1", "--uid", str(UID), "--gid", str(UID)]
    args += ["--hostname", HOST_NAME, "--dev", "/dev", "--ro-bind", "/usr", "/usr"]
    args += _system_folders()
    for source, target in binds.items():
        args += ["--ro-bind", source, target]
    for folder in _other_packages():
        args += ["--size", _SMALL, "--tmpfs", folder, "--remount-ro", folder]
    args += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    for path, file in files.items():
        args += ["--perms", "0444", "--file", str(file), path]
    for path in (HOME, "/dev/shm"):  # noqa: S108
        args += ["--perms", "0700", "--size", disk, "--tmpfs", path]
    args += ["--symlink", HOME[1:], "/tmp", "--chdir", HOME]  # noqa: S108
    for name, value in _environment().items():
        args += ["--setenv", name, value]
    # What is left of the root and of /dev is memory without a limit of its own: nobody needs to write there.
    return [*args, "--remount-ro", "/dev", "--remount-ro", "/"]


@functools.cache
def _system_folders() -> list[str]:
    args = []
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        if Path("/", name).is_symlink():
            args += ["--symlink", f"usr/{name}", f"/{name}"]
        elif Path("/", name).exists():
            args += ["--ro-bind", f"/{name}", f"/{name}"]
    return args


@functools.cache
def _prefix() -> Path:
    return Path(sys.base_prefix).resolve()


def _in_usr() -> bool:
    return _prefix().is_relative_to("/usr")


@functools.cache
def _folders() -> dict[str, str]:
    """Folders of the host that are seen inside, and where, besides /usr."""
    folders = {str(folder): f"{_SITE}/{folder.name}" for folder in numpy_folders()}
    return folders if _in_usr() else {str(_prefix()): _PYTHON, **folders}


@functools.cache
def _python() -> str:
    """The base Python, as it is called inside."""
    program = Path(sys.executable).resolve()
    inner = program.relative_to(_prefix()) if program.is_relative_to(_prefix()) else Path("bin", _VERSION)
    return str((_prefix() if _in_usr() else Path(_PYTHON)) / inner)


@functools.cache
def _other_packages() -> list[str]:
    """Folders of packages that would be seen along with /usr or the base Python, as they are called inside."""
    seen = {"/usr": "/usr", "/usr/local": "/usr/local"} | ({} if _in_usr() else {str(_prefix()): _PYTHON})
    return [
        inside + str(folder).removeprefix(host)
        for host, inside in seen.items()
        for kind in ("site-packages", "dist-packages")
        for folder in Path(host, "lib").glob(f"python3*/{kind}")
        if not folder.is_symlink()
    ]


def _environment() -> dict[str, str]:
    python = str(Path(_python()).parent)
    found = {
        "HOME": HOME,
        "USER": USER,
        "LANG": "C.UTF-8",
        "PATH": f"{python}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": _SITE,  # for programs that the code starts
        "PYTHONUTF8": "1",
    }
    if not _in_usr():
        found["LD_LIBRARY_PATH"] = f"{_PYTHON}/lib"
    # Many interpreters share the machine: each computes with one thread unless its code says otherwise.
    return found | {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL")}


def _memory_file(content: bytes) -> int:
    file = os.memfd_create("deskroll")
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    return file
