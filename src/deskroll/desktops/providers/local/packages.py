"""The Debian packages that local desktops use: which are missing, and the line that installs them.

The list itself is `debian-packages.txt` beside this file; `scripts/system-packages` reads the same one.
"""

from __future__ import annotations

import glob
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_LIST = Path(__file__).parent / "debian-packages.txt"


class Package(NamedTuple):
    """One line of the list."""

    name: str
    proof: str
    """A program on PATH, or a path (with `*`) that exists when the package is installed."""
    group: str
    why: str

    @property
    def installed(self) -> bool:
        """Whether its proof is there."""
        if self.proof.startswith("/"):
            return bool(glob.glob(self.proof))  # noqa: PTH207  (an absolute pattern)
        return shutil.which(self.proof) is not None


def listed(*groups: str) -> list[Package]:
    """The packages of these groups, in the list's order."""
    lines = (line.strip() for line in _LIST.read_text().splitlines())
    packages = [Package(*line.split(None, 3)) for line in lines if line and not line.startswith("#")]
    return [package for package in packages if package.group in groups]


def missing(*groups: str) -> list[Package]:
    """Those that are not installed."""
    return [package for package in listed(*groups) if not package.installed]


def install_line(names: Iterable[str]) -> str:
    """The line to run as root."""
    return f"apt-get install -y --no-install-recommends {' '.join(names)}"


XLIB_LINE = "pip install --force-reinstall --no-deps python-xlib"


def wrong_xlib() -> str:
    """What is wrong with the installed Xlib; empty when nothing is.

    pyautogui asks pip for python3-xlib, a fork of 2014 that overwrites python-xlib's files.
    """
    import Xlib  # noqa: PLC0415

    version: tuple[int, ...] = vars(Xlib)["__version__"]  # the type stubs do not have it
    if version >= (0, 33):
        return ""
    return f"Xlib is version {'.'.join(map(str, version))}: python3-xlib has overwritten python-xlib"
