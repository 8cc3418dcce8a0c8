"""deskroll runs computer-use agents in parallel over a shared pool of real desktops.

    import deskroll
    episodes = deskroll.run("tasks.jsonl", agent="chat", model="my-model", num_vms=4)     # blocks; notebooks too
    async with deskroll.Runtime.open(resources, store="results/exp1") as runtime:         # a trainer
        async for group in runtime.run(deskroll.Job("train", tasks, spec, group_size=8)):
            ...

See docs/python.md. Nothing is imported before it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deskroll.agents import Agent
    from deskroll.conduct.api import Episodes, run
    from deskroll.desktops.base import Desktop, DesktopSpec
    from deskroll.desktops.pool import Pool
    from deskroll.envs import Env
    from deskroll.errors import DeskrollError, InputError, JobStopped
    from deskroll.models.base import Model
    from deskroll.models.settings import ModelSettings
    from deskroll.rollout.config import Resources
    from deskroll.rollout.group import GroupResult
    from deskroll.rollout.group_policy import FailFast, FillUp, GroupPolicy, MinViable
    from deskroll.rollout.job import Batch, Job
    from deskroll.rollout.runtime import Runtime
    from deskroll.rollout.spec import EpisodeSpec
    from deskroll.service.stream import GroupStream
    from deskroll.store.reader import Run, open_run
    from deskroll.tasks import load_tasks
    from deskroll.types import Episode, GroupEnd, Task

    __version__: str

__all__ = [
    "Agent",
    "Batch",
    "DeskrollError",
    "Desktop",
    "DesktopSpec",
    "Env",
    "Episode",
    "EpisodeSpec",
    "Episodes",
    "FailFast",
    "FillUp",
    "GroupEnd",
    "GroupPolicy",
    "GroupResult",
    "GroupStream",
    "InputError",
    "Job",
    "JobStopped",
    "MinViable",
    "Model",
    "ModelSettings",
    "Pool",
    "Resources",
    "Run",
    "Runtime",
    "Task",
    "__version__",
    "load_tasks",
    "open_run",
    "run",
]

_HOMES = {
    "deskroll.agents": ("Agent",),
    "deskroll.conduct.api": ("Episodes", "run"),
    "deskroll.desktops.base": ("Desktop", "DesktopSpec"),
    "deskroll.desktops.pool": ("Pool",),
    "deskroll.envs": ("Env",),
    "deskroll.errors": ("DeskrollError", "InputError", "JobStopped"),
    "deskroll.models.base": ("Model",),
    "deskroll.models.settings": ("ModelSettings",),
    "deskroll.rollout.config": ("Resources",),
    "deskroll.rollout.group": ("GroupResult",),
    "deskroll.rollout.group_policy": ("FailFast", "FillUp", "GroupPolicy", "MinViable"),
    "deskroll.rollout.job": ("Batch", "Job"),
    "deskroll.rollout.runtime": ("Runtime",),
    "deskroll.rollout.spec": ("EpisodeSpec",),
    "deskroll.service.stream": ("GroupStream",),
    "deskroll.store.reader": ("Run", "open_run"),
    "deskroll.tasks": ("load_tasks",),
    "deskroll.types": ("Episode", "GroupEnd", "Task"),
}
"""Where each public name lives."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """A public name, imported when it is asked for; reading the version costs a tenth of a `--help`."""
    if name == "__version__":
        return _version()
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_HOME_OF[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib import metadata  # noqa: PLC0415

    try:
        return metadata.version("deskroll")
    except metadata.PackageNotFoundError:  # a checkout that was not installed
        return "0+unknown"
