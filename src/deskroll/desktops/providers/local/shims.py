"""The few files that desktops have and the host has not, staged once a version in a folder that all desktops share.

    bin/    python, python3, sudo: first on a desktop's PATH
    site/   pyautogui and what it imports (pure Python), on a desktop's PYTHONPATH

The desktop's own programs run them with the system's Python, so only source goes in, compiled by that Python.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from importlib import metadata
from pathlib import Path

from deskroll import __version__
from deskroll.errors import MissingDependency

_INSIDE = Path(__file__).parent / "inside"
_MODULES = ("pyautogui", "pyscreeze", "pymsgbox", "pytweening", "Xlib", "six")
_DISTRIBUTIONS = ("pyautogui", "pyscreeze", "pymsgbox", "pytweening", "python-xlib", "six")
SYSTEM_PYTHON = Path("/usr/bin/python3")


def stage(root: Path) -> Path:
    """Make the folder unless it is there already, and return it. Several processes may do so at once."""
    folder = root / f"shims-{_fingerprint()}"
    if folder.exists():
        return folder
    part = Path(tempfile.mkdtemp(prefix="shims-part-", dir=root))
    try:
        _fill(part)
        part.chmod(0o755)
        try:
            part.rename(folder)
        except OSError:
            if not folder.exists():  # somebody else was quicker: theirs is as good
                raise
    finally:
        if part.exists():
            shutil.rmtree(part)
    return folder


def _fingerprint() -> str:
    parts = [__version__, str(SYSTEM_PYTHON.resolve())]
    parts += [f"{name} {_version(name)}" for name in _DISTRIBUTIONS]
    parts += [file.read_text() for file in sorted(_INSIDE.glob("*.py"))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError as error:
        raise MissingDependency(f"local desktops need {distribution}: run  pip install 'deskroll[local]'") from error


def _fill(folder: Path) -> None:
    site, programs = folder / "site", folder / "bin"
    site.mkdir()
    programs.mkdir()
    for module in _MODULES:
        _copy_module(module, site)
    shutil.copyfile(_INSIDE / "mouseinfo.py", site / "mouseinfo.py")
    shutil.copyfile(_INSIDE / "sudo.py", programs / "sudo")
    (programs / "sudo").chmod(0o755)
    for name in ("python", "python3"):
        (programs / name).symlink_to(SYSTEM_PYTHON)
    # Everything must be readable by the desktops' users, whatever this process's umask is.
    for path in (site, programs, *site.rglob("*")):
        os.chmod(path, 0o755 if path.is_dir() else 0o644)  # noqa: PTH101
    # Unchecked hashes: the files never change, and their time stamps need not survive.
    subprocess.run(
        [SYSTEM_PYTHON, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", str(site)], check=True
    )


def _copy_module(name: str, site: Path) -> None:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise MissingDependency(f"local desktops need the module {name}: run  pip install 'deskroll[local]'")
    origin = Path(spec.origin)
    if origin.name == "__init__.py":
        ignore = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(origin.parent, site / name, ignore=ignore, copy_function=shutil.copyfile)
    else:
        shutil.copyfile(origin, site / origin.name)
