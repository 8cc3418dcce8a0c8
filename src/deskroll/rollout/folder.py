"""A run's folder: where a new one is kept, what run.json says of it, and whether an old one may go on.

Guarantees: no two runs share a folder unless somebody chose the name; nothing is written among files that are no run's;
a resume that is refused has written nothing.
"""

from __future__ import annotations

import asyncio
import secrets
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from deskroll import __version__
from deskroll.errors import ConfigError, InputError, StoreError, plain
from deskroll.host.home import expand_home
from deskroll.rollout.changes import refuse_changed_run, resolved
from deskroll.rollout.config import RunConfig
from deskroll.rollout.redaction import masked_command, redacted
from deskroll.rollout.spec import plug_ins
from deskroll.store import Run, RunInfo, RunStore, Storage, config_digest, join, lock, paths
from deskroll.store.info import read_info
from deskroll.store.local import LocalStorage
from deskroll.types import EpisodeKey, Task

_MOST_SHOWN = 3


def new_root(config: RunConfig) -> str:
    """Where a new run is kept: under the name that was chosen, or under one that nobody else has."""
    if config.run_id:
        return join(config.output_dir, config.run_id)
    name = time.strftime("%Y%m%d-%H%M%S")
    if "://" in config.output_dir:
        return join(config.output_dir, f"{name}-{secrets.token_hex(2)}")
    for n in range(1, 1000):
        root = Path(join(config.output_dir, name if n == 1 else f"{name}-{n}"))
        try:
            root.parent.mkdir(parents=True, exist_ok=True)
            root.mkdir()
        except FileExistsError:
            if root.exists():
                continue
            break  # a part of the path is something else: whoever opens the store says what
        except OSError:
            break
        return str(root.absolute())
    else:
        raise StoreError(f"{config.output_dir} holds a thousand runs of {name}; choose a name with --run-id")
    return join(config.output_dir, name)


def refuse_live(root: str, program: str = "deskroll") -> None:
    """Tell at once that a run goes on; only workers of a dead one are worth waiting for."""
    storage = Storage.at(root)
    holder = lock.holder(storage) if isinstance(storage, LocalStorage) else None
    if holder is None or not holder.socket:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(holder.socket)
        except OSError:
            return
    raise InputError(
        f"run {root} is live, in process {holder.pid}: see  {program} status {shlex.quote(root)}  "
        f"(--stop ends it), and resume it when it has ended"
    )


@asynccontextmanager
async def open_run_store(
    config: RunConfig, tasks: Sequence[Task], root: str, prepared: dict[str, str], *, resume: bool, force: bool
) -> AsyncIterator[RunStore]:
    """The run's store: a new one, or that of a run that may go on."""
    questions = {task.id: task.instruction for task in tasks}

    def describe(key: EpisodeKey) -> str:
        return questions.get(key.task, "")

    if not resume:
        await asyncio.to_thread(_refuse_others_files, Storage.at(root))
        info = await _info(root, resolved(config), prepared, plug_ins(config))
        async with RunStore.create(root, info, describe=describe) as store:
            yield store
        return
    if not force:
        refuse_changed_run(config, tasks, Run.open(root), prepared)
    async with RunStore.resume(root, describe=describe) as store:
        yield store


@asynccontextmanager
async def open_store(root: str | Path, settings: dict[str, Any]) -> AsyncIterator[RunStore]:
    """The store of a runtime: in a new folder, or in one that holds a run, which goes on.

    `settings`: what run.json keeps of them, in a new one; secrets are masked here.
    """
    if not str(root).strip():
        raise ConfigError("store is empty; name a folder for the results: a new one, or that of a runtime's run")
    place = expand_home(str(root))
    if await asyncio.to_thread(holds_runtime, place):
        refuse_live(place)
        async with RunStore.resume(place) as store:
            yield store
        return
    info = await _info(place, redacted(settings))
    async with RunStore.create(place, info) as store:
        yield store


def holds_runtime(place: str) -> bool:
    """Whether a folder holds a runtime's run, which goes on then; `InputError` where a runtime can have no store."""
    storage = Storage.at(place)
    if not storage.exists(paths.RUN_JSON):
        _refuse_others_files(storage)
        return False
    if read_info(storage).has_tasks:
        raise InputError(
            f"{place} is a run of deskroll.run, or of deskroll run, and a runtime's jobs would be mixed into it: "
            "give the runtime a store of its own"
        )
    return True


def _refuse_others_files(storage: Storage) -> None:
    """A new run is made in a folder of its own; what a process that was killed at once has left of one is none's."""
    try:
        found = [name for name in storage.list() if name != paths.LOCK]
    except StoreError:  # whoever makes the folder says what is wrong with it
        return
    if found and paths.RUN_JSON not in found:
        names = ", ".join(plain(name) for name in found[:_MOST_SHOWN]) + (", ..." if len(found) > _MOST_SHOWN else "")
        raise InputError(
            f"{storage.shown()} holds no run, and is not empty ({names}): name a folder that is empty or not there yet"
        )


async def _info(
    root: str, settings: dict[str, Any], prepared: dict[str, str] | None = None, code: dict[str, str] | None = None
) -> RunInfo:
    return RunInfo(
        run_id=root.rstrip("/").rpartition("/")[2],
        version=__version__,
        config=settings,
        config_digest=config_digest(settings),
        command=tuple(masked_command(sys.argv)),
        git_commit=await asyncio.to_thread(_git_commit),
        prepared=prepared or {},
        plug_ins=code or {},
    )


def _git_commit() -> str:
    """The commit of deskroll's own sources, where they are a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""
