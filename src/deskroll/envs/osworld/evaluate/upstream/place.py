"""Where upstream's environment is, and whether it is whole."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import msgspec

from deskroll.envs.osworld.evaluate.upstream.names import VERSION
from deskroll.errors import plain
from deskroll.types import Record

LOCK = Path(__file__).with_name("packages.lock")
"""Every package of the environment, by its exact version."""
_MARK = "installed.json"


class Mark(Record, frozen=True):
    """What an environment was made from; written last."""

    version: str
    lock: str
    """Digest of the lock file."""
    python: str
    """Version of the Python that it was made by and for, such as 3.11."""


def environment_folder() -> Path:
    """Where `deskroll osworld install` puts it: below `$XDG_DATA_HOME`, or `~/.local/share`."""
    data = os.environ.get("XDG_DATA_HOME", "")
    base = Path(data) if data.startswith("/") else Path.home() / ".local" / "share"
    return base / "deskroll" / f"osworld-{VERSION}"


def current_mark() -> Mark:
    """The mark of an environment as this version wants it."""
    lock = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    return Mark(version=VERSION, lock=lock, python=f"{sys.version_info.major}.{sys.version_info.minor}")


def find_environment() -> Path | None:
    """The environment's folder; None where it is not there, half made, of another lock file or another Python."""
    folder = environment_folder()
    return folder if _read_mark(folder) == current_mark() else None


def missing() -> str:
    """Why there is no environment, in words, and what to do."""
    found, python = _read_mark(environment_folder()), current_mark().python
    if found is not None and found.python != python:
        return (
            f"OSWorld's own evaluators are installed for Python {plain(found.python)}, and this is Python {python}; "
            "run: deskroll osworld install"
        )
    return "OSWorld's own evaluators are not installed; run: deskroll osworld install"


def _read_mark(folder: Path) -> Mark | None:
    try:
        return msgspec.json.decode((folder / _MARK).read_bytes(), type=Mark)
    except (OSError, msgspec.MsgspecError):
        return None


def write_mark(folder: Path) -> None:
    """Say that an environment is whole."""
    part = folder / f"{_MARK}.part"
    part.write_bytes(msgspec.json.encode(current_mark()))
    part.replace(folder / _MARK)
