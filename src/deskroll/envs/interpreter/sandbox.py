"""What the inside of an interpreter's sandbox looks like, and the command that makes it.

As `host/bubblewrap.py` makes it. Inside: the base Python, and of all site-packages numpy alone; an /etc of its own; no
/proc and no /sys, which would tell about the host; one bounded home in memory. It dies with the process that started
it.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path

from deskroll.errors import MissingDependency
from deskroll.host import bubblewrap
from deskroll.host.bubblewrap import UID, Command, Inside
from deskroll.types import Record

HOME, USER, HOST_NAME = "/home/user", "user", "python"
_PYTHON, _SITE, _INSIDE = "/opt/python", "/opt/site", "/opt/inside.py"
_MB = 1024 * 1024
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


def numpy_folders() -> list[Path]:
    """Where numpy is, with the libraries that its wheel brings along."""
    found = importlib.util.find_spec("numpy")
    if found is None or found.origin is None:
        raise MissingDependency("the environment py needs numpy: pip install 'deskroll[py]'")
    folder = Path(found.origin).parent
    libraries = folder.parent / "numpy.libs"
    return [folder, libraries] if libraries.is_dir() else [folder]


def command(limits: Limits, control: int, shown: int, groups: list[str]) -> Command:
    """The command that starts a sandbox, given the descriptors of its connection and of what it shows; `groups` are the
    files that put a process into its control group."""
    disk = limits.disk_mb * _MB
    inside = Inside(
        host_name=HOST_NAME,
        folders=_folders(),
        rooms={HOME: disk, "/dev/shm": disk},  # noqa: S108
        work=HOME,
        environment=_environment(),
        hidden=_other_packages(),
        etc=("ld.so.cache", "alternatives"),  # the latter says which awk there is
        files={path: text.encode() for path, text in _ETC.items()} | {_INSIDE: _runner()},
        links={"/tmp": HOME[1:]},  # noqa: S108
    )
    sizes = (limits.memory_mb * _MB, limits.processes, disk)
    program = [_python(), "-I", "-S", "-X", "utf8", _INSIDE, *map(str, (control, shown, *sizes)), _SITE, HOME]
    options = ["--die-with-parent", "--as-pid-1"]
    return bubblewrap.command(inside, program, options=options, groups=groups, needed_by="the environment py")


# What does not change while a process runs is found once: a start is paid for by everybody in the loop.
@functools.cache
def _runner() -> bytes:
    return (Path(__file__).parent / "inside.py").read_bytes()


@functools.cache
def _prefix() -> Path:
    return Path(sys.base_prefix).resolve()


def _in_usr() -> bool:
    return _prefix().is_relative_to("/usr")


@functools.cache
def _folders() -> dict[str, str]:
    """Folders of the host that are seen inside, by where, besides /usr."""
    folders = {f"{_SITE}/{folder.name}": str(folder) for folder in numpy_folders()}
    return folders if _in_usr() else {_PYTHON: str(_prefix()), **folders}


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
