"""Makes upstream's environment: a virtual environment with exactly the packages of `packages.lock`.

Guarantees: an environment counts as there only when it is whole and of this Python. What a broken-off installation left
is gone on with; packages that are there already are not fetched again, save where another Python put them. Two that
install at once take turns, and the second finds the work done. The package's own list of requirements (259 packages,
3.6 GB) is not followed.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from deskroll.envs.osworld.evaluate.upstream.place import (
    LOCK,
    current_mark,
    environment_folder,
    find_environment,
    write_mark,
)
from deskroll.errors import MissingDependency, plain
from deskroll.types import Record

_SHOWN = ("Collecting ", "Installing ", "Successfully ", "Requirement already ")
_TAIL = 20
_PASSED = ("PATH", "HOME", "LANG", "TMPDIR", "SSL_CERT_FILE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""Of our own environment; and pip's settings."""


class Installed(Record, frozen=True):
    """What came of an installation."""

    folder: str
    packages: int
    fresh: bool
    """Whether anything had to be done."""


def install(tell: Callable[[str], None]) -> Installed:
    """Make the environment, or finish it; `tell` gets a line whenever something happens."""
    packages = [line for line in LOCK.read_text().splitlines() if line and not line.startswith("#")]
    folder = environment_folder()
    done = Installed(folder=str(folder), packages=len(packages), fresh=False)
    if find_environment() is not None:
        return done
    folder.mkdir(parents=True, exist_ok=True)
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if find_environment() is not None:  # somebody else has made it meanwhile
            return done
        _make_environment(folder, tell)
    return replace(done, fresh=True)


def _make_environment(folder: Path, tell: Callable[[str], None]) -> None:
    anew = _is_of_another_python(folder)
    why = f" anew: another Python made it, and this is {current_mark().python}" if anew else ""
    tell(f"making the environment in {folder}{why}")
    _run([sys.executable, "-m", "venv", "--symlinks", *(["--clear"] if anew else []), str(folder)], tell)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    _run([*pip, "install", "--no-deps", "--prefer-binary", "-r", str(LOCK)], tell)
    check_imports(folder)
    write_mark(folder)


def _is_of_another_python(folder: Path) -> bool:
    """Whether what is there is of no use to this Python: of another version, or of one that is gone."""
    python, library = folder / "bin" / "python", folder / "lib" / f"python{current_mark().python}"
    return python.is_symlink() and not (python.exists() and library.is_dir())


def check_imports(folder: Path) -> None:
    """Raise unless the worker's program imports the package in that environment."""
    worker = Path(__file__).with_name("worker.py")
    _run([str(folder / "bin" / "python"), "-I", "-W", "ignore", str(worker), "--check"], lambda line: None)


def _run(command: list[str], tell: Callable[[str], None]) -> None:
    environment = {n: v for n, v in os.environ.items() if n.upper() in _PASSED or n.startswith("PIP_")}
    last: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
    ) as process:
        for line in process.stdout or ():
            last = [*last[1 - _TAIL :], line.rstrip()]
            if line.startswith(_SHOWN):
                tell(plain(line))
    if process.returncode != 0:
        said = plain("\n".join(last), 4000, keep="\n")
        raise MissingDependency(
            f"`{' '.join(command[:5])} ...` ended with {process.returncode}; to go on where it stopped, run: "
            f"deskroll osworld install\n{said}"
        )
