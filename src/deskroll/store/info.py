"""RunInfo: what `run.json` holds, written once when a run is made."""

from __future__ import annotations

import hashlib
import os
import platform
import time
from typing import Any

import msgspec

from deskroll.errors import StoreError, plain
from deskroll.store import paths
from deskroll.store.storage import Storage
from deskroll.types import Record


def this_machine() -> dict[str, str | int]:
    """This machine, in a few words."""
    return {"system": platform.platform(), "architecture": platform.machine(), "cpus": os.cpu_count() or 0}


class RunInfo(Record, frozen=True):
    """What a run was made with."""

    run_id: str
    created_at: float = msgspec.field(default_factory=time.time)
    """Seconds since the epoch."""
    version: str = ""
    """deskroll's."""
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    """As it was resolved, with secrets masked."""
    config_digest: str = ""
    prepared: dict[str, str] = msgspec.field(default_factory=dict)
    """A digest of what each environment found besides tasks and settings: documents, pages."""
    plug_ins: dict[str, str] = msgspec.field(default_factory=dict)
    """The agent and the environment, where they are named by a file, each with the digest of that file."""
    command: tuple[str, ...] = ()
    git_commit: str = ""
    python: str = msgspec.field(default_factory=platform.python_version)
    machine: dict[str, Any] = msgspec.field(default_factory=this_machine)

    @property
    def has_tasks(self) -> bool:
        """Whether it is a run over one list of tasks; a runtime, whose jobs bring theirs, has no setting for them."""
        return "tasks" in self.config


def config_digest(config: object) -> str:
    """The digest of settings: the same for the same values, in whatever order."""
    data = msgspec.json.encode(config, order="deterministic")
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def encode(info: RunInfo) -> bytes:
    """The content of `run.json`."""
    return msgspec.json.format(msgspec.json.encode(info), indent=2) + b"\n"


def read_info(storage: Storage) -> RunInfo:
    """The run.json of a run; StoreError with advice where there is none."""
    if not storage.exists(paths.RUN_JSON):
        raise StoreError(
            f"{storage.shown()} is not a run: it has no {paths.RUN_JSON}. "
            "Name the folder of a run (<output_dir>/<run_id>)"
        )
    try:
        return msgspec.json.decode(storage.read(paths.RUN_JSON), type=RunInfo)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreError(f"{storage.shown(paths.RUN_JSON)} cannot be read ({plain(str(error))}): restore it") from error
