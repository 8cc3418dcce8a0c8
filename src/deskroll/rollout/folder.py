"""A run's folder: where a new one is kept, what run.json says of it, and whether an old one may go on.

Guarantees: no two runs share a folder unless somebody chose the name; a resume that is refused has written nothing.
"""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from deskroll import __version__
from deskroll.agents import agent_kind, agent_settings
from deskroll.envs import env_kind, env_settings
from deskroll.errors import DeskrollError, InputError, StoreError
from deskroll.host.home import expand_home
from deskroll.models.settings import ModelSettings
from deskroll.rollout.config import Resources, RunConfig, differences
from deskroll.rollout.loading import PHASE
from deskroll.rollout.plan import changed_tasks
from deskroll.rollout.redaction import masked_command, redacted, without_masked
from deskroll.rollout.spec import plug_ins
from deskroll.store import Run, RunInfo, RunStore, Storage, config_digest, join, paths
from deskroll.store.results import known_questions
from deskroll.types import EpisodeKey, Task


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


def _resolved(config: RunConfig) -> dict[str, Any]:
    """The settings as run.json keeps them; the key is not among them."""
    return redacted(config.model_dump(mode="json", exclude={"model": {"api_key"}, "judge": {"api_key"}}))


@asynccontextmanager
async def open_run_store(
    config: RunConfig, tasks: Sequence[Task], root: str, prepared: dict[str, str], *, resume: bool, force: bool
) -> AsyncIterator[RunStore]:
    """The run's store: a new one, or that of a run that may go on."""
    questions = {task.id: task.instruction for task in tasks}

    def describe(key: EpisodeKey) -> str:
        return questions.get(key.task, "")

    if not resume:
        resolved = _resolved(config)
        info = await _info(root, resolved, prepared, plug_ins(config))
        async with RunStore.create(root, info, describe=describe) as store:
            yield store
        return
    _refuse_changes(config, tasks, root, prepared, force=force)
    async with RunStore.resume(root, describe=describe) as store:
        yield store


@asynccontextmanager
async def open_store(root: str | Path, resources: Resources, questions: dict[str, str]) -> AsyncIterator[RunStore]:
    """The store of a runtime: in a new folder, or in one that holds a run, which goes on.

    `questions`: what is asked in each task, by its id; those of earlier starts are added here.
    """
    place = expand_home(str(root))
    storage = Storage.at(place)

    def describe(key: EpisodeKey) -> str:
        return questions.get(key.task, "")

    if await asyncio.to_thread(storage.exists, paths.RUN_JSON):
        questions |= await asyncio.to_thread(known_questions, storage)
        async with RunStore.resume(place, describe=describe) as store:
            yield store
        return
    resolved = redacted(resources.model_dump(mode="json"))
    async with RunStore.create(place, await _info(place, resolved), describe=describe) as store:
        yield store


async def _info(
    root: str, resolved: dict[str, Any], prepared: dict[str, str] | None = None, code: dict[str, str] | None = None
) -> RunInfo:
    return RunInfo(
        run_id=root.rstrip("/").rpartition("/")[2],
        version=__version__,
        config=resolved,
        config_digest=config_digest(resolved),
        command=tuple(masked_command(sys.argv)),
        git_commit=await asyncio.to_thread(_git_commit),
        prepared=prepared or {},
        plug_ins=code or {},
    )


def _refuse_changes(
    config: RunConfig, tasks: Sequence[Task], root: str, prepared: dict[str, str], *, force: bool
) -> None:
    """Before anything is written: a run that cannot go on as it was begun stays as it is."""
    run = Run.open(root)
    changed = differences(_whole(run.info.config), _whole(_resolved(config)))
    other_tasks = changed_tasks(run.index, PHASE, 0, tasks)
    changed += other_tasks
    now = plug_ins(config)
    changed += [
        f"{name.rpartition(':')[0]} has changed"
        for name, digest in run.info.plug_ins.items()
        if name in now and now[name] != digest
    ]
    changed += [
        f"what env {name} works with (documents, pages, files beside the tasks) has changed"
        for name, digest in prepared.items()
        if digest != run.info.prepared.get(name, digest) and not other_tasks  # other tasks work with other files
    ]
    if changed and not force:
        shown = "\n  ".join(changed[:10]) + (f"\n  ... and {len(changed) - 10} more" if len(changed) > 10 else "")
        raise InputError(
            f"run {run.info.run_id} cannot go on as it was begun:\n  {shown}\n"
            f"start a new run, or go on all the same with --force"
        )


def _whole(resolved: dict[str, Any]) -> dict[str, Any]:
    """Settings with the defaults of all options filled in: to name a default is no change."""
    try:
        env = env_settings(env_kind(resolved["env"]), without_masked(resolved["env_options"]), "")
        agent = agent_settings(agent_kind(resolved["agent"]), without_masked(resolved["agent_options"]), "")
    except (DeskrollError, KeyError):  # of another version of deskroll: compared as they are
        return resolved
    options = redacted({"env_options": env.model_dump(mode="json"), "agent_options": agent.model_dump(mode="json")})
    defaults = ModelSettings().model_dump(mode="json")
    models = {name: {**defaults, **resolved[name]} for name in ("model", "judge") if resolved.get(name)}
    return {**resolved, **options, **models}


def _git_commit() -> str:
    """The commit of deskroll's own sources, where they are a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""
