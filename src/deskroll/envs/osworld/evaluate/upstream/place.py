"""Where upstream's environment is, and whether it is whole."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

from deskroll.envs.osworld.evaluate.upstream.names import VERSION
from deskroll.types import Record

LOCK = Path(__file__).with_name("packages.lock")
"""Every package of the environment, by its exact version."""
_MARK = "installed.json"


class Mark(Record, frozen=True):
    """What an environment was made from; written last."""

    version: str
    lock: str
    """Digest of the lock file."""


def environment_folder() -> Path:
    """Where `deskroll osworld install` puts it: below `$XDG_DATA_HOME`, or `~/.local/share`."""
    data = os.environ.get("XDG_DATA_HOME", "")
    base = Path(data) if data.startswith("/") else Path.home() / ".local" / "share"
    return base / "deskroll" / f"osworld-{VERSION}"


def wanted() -> Mark:
    """The mark of an environment as this version wants it."""
    return Mark(version=VERSION, lock=hashlib.sha256(LOCK.read_bytes()).hexdigest())


def find_environment() -> Path | None:
    """The environment's folder; None where it is not there, half made or made from another lock file."""
    folder = environment_folder()
    try:
        found = msgspec.json.decode((folder / _MARK).read_bytes(), type=Mark)
    except (OSError, msgspec.MsgspecError):
        return None
    return folder if found == wanted() else None


def mark(folder: Path) -> None:
    """Say that an environment is whole."""
    part = folder / f"{_MARK}.part"
    part.write_bytes(msgspec.json.encode(wanted()))
    part.replace(folder / _MARK)
