"""What local desktops need from a machine, checked by trying it."""

from __future__ import annotations

import importlib.util
import platform
from pathlib import Path

from deskroll.desktops.providers.local import network, packages, shims
from deskroll.errors import DeskrollError, MissingDependency
from deskroll.host import bubblewrap
from deskroll.host.control_group import can_make_groups
from deskroll.host.runtime_folder import runtime_root
from deskroll.host.syscalls import MACHINES, numbers
from deskroll.types import Record

_MODULES = {
    "Xlib": "python-xlib", "dbus_fast": "dbus-fast", "numpy": "numpy", "PIL": "pillow", "isal": "isal", "av": "av",
    "mss": "mss", "pyautogui": "pyautogui",
}  # fmt: skip


class Check(Record, frozen=True):
    """One thing that was looked at."""

    name: str
    ok: bool
    found: str
    fix: str = ""
    """What to run or do; empty when nothing is to be done."""
    required: bool = True
    """Whether local desktops work without it."""


def run_checks() -> list[Check]:
    """All checks, in the order in which one would mend them."""
    return [
        _check_packages("local", "programs of a desktop", required=True),
        _check_packages("demo", "programs for the demo", required=False),
        _check_modules(),
        _check_system_python(),
        check_namespaces(),
        _check_filters(),
        _check_network(),
        _check_limits(),
        _check_folder(),
        _check_memory(),
    ]


def _check(name: str, found: str, fix: str = "", *, required: bool = True) -> Check:
    """A check that is not passed as long as there is something to mend."""
    return Check(name=name, ok=not fix, found=found, fix=fix, required=required)


def _check_packages(group: str, name: str, *, required: bool) -> Check:
    missing = packages.missing(group)
    if not missing:
        return _check(name, f"all {len(packages.listed(group))} installed", required=required)
    found = "missing: " + ", ".join(f"{package.name} ({package.why})" for package in missing)
    return _check(name, found, packages.install_line(each.name for each in missing), required=required)


def require_modules() -> None:
    """Refuse to begin where a library is missing: every boot would fail."""
    check = _check_modules()
    if not check.ok:
        raise MissingDependency(f"provider 'local' needs Python modules, {check.found}: {check.fix}")


def _check_modules() -> Check:
    missing = [pip for module, pip in _MODULES.items() if importlib.util.find_spec(module) is None]
    if missing:
        return _check("Python modules", f"missing: {', '.join(missing)}", "pip install 'deskroll[local]'")
    if wrong := packages.wrong_xlib():
        return _check("Python modules", wrong, packages.XLIB_LINE)
    return _check("Python modules", f"all {len(_MODULES)} installed")


def _check_system_python() -> Check:
    path = shims.SYSTEM_PYTHON
    if path.exists():
        return _check("Python inside desktops", str(path))
    fix = packages.install_line(["python3"])
    return _check("Python inside desktops", f"{path} is not there: scripts cannot run", fix)


def check_namespaces() -> Check:
    """Whether bubblewrap can make namespaces here, as the user that desktops run as."""
    fix = (
        "allow user namespaces (sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000; on Ubuntu "
        "also kernel.apparmor_restrict_unprivileged_userns=0), or run desktops without a sandbox: --isolation none"
    )
    if found := bubblewrap.what_forbids_it():
        return _check("namespaces", found, fix)
    return _check("namespaces", "bubblewrap makes its own for each desktop")


def _check_filters() -> Check:
    """Whether system calls are filtered: on some kinds of machines there is no filter."""
    if numbers():
        return _check("system calls", "filtered in each sandbox", required=False)
    found = f"not filtered in any sandbox: their numbers on {platform.machine()} are not known here"
    fix = f"for programs that you do not trust, use a machine of one of these kinds: {', '.join(MACHINES)}"
    return _check("system calls", found, fix, required=False)


def _check_network() -> Check:
    what, line = network.missing()
    if not what:
        return _check("network=true", "slirp4netns is each desktop's own way out", required=False)
    return _check("network=true", f"it needs {what}", line, required=False)


def _check_limits() -> Check:
    if can_make_groups():
        return _check("memory limits", "a control group for each desktop", required=False)
    fix = "nothing, unless you want that: then run as root"
    return _check("memory limits", "for each process, not for a desktop as a whole", fix, required=False)


def _check_folder() -> Check:
    try:
        root = runtime_root()
    except DeskrollError as error:
        return _check("folder for sockets", str(error), "export DESKROLL_RUNTIME_DIR=FOLDER")
    return _check("folder for sockets", str(root))


def _check_memory() -> Check:
    lines = Path("/proc/meminfo").read_text().splitlines()
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    free = kilobytes["MemAvailable"] // 1024
    # Measured: an idle desktop has 40 MB of its own; with a small program in it, 80.
    found = f"{free} MB available: room for about {free // 80} desktops with small programs"
    return _check("memory", found, "" if free >= 400 else "free some memory", required=False)
