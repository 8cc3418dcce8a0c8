"""A run's settings and tasks from what people give: a file, overrides, or a run that is to go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from deskroll.agents import agent_kind, agent_settings
from deskroll.config import load
from deskroll.desktops.base import DesktopSpec
from deskroll.envs import env_kind, env_settings
from deskroll.errors import ConfigError, InputError
from deskroll.rollout.config import RunConfig
from deskroll.store import Run, find_run
from deskroll.tasks import load_tasks
from deskroll.types import Task


def load_run(path: Path | None, overrides: Sequence[str]) -> tuple[RunConfig, list[Task]]:
    """The settings of a new run, checked to the last option, and its tasks."""
    return _checked(load(RunConfig, path, overrides))


def resume_run(given: str, overrides: Sequence[str]) -> tuple[str, RunConfig, list[Task]]:
    """The folder, the settings and the tasks of a run that is to go on."""
    root = find_run(given)
    info = Run.open(root).info
    config, tasks = _checked(load(RunConfig, None, overrides, base=info.config, name=f"{root}/run.json"))
    return root, config, tasks


def _checked(config: RunConfig) -> tuple[RunConfig, list[Task]]:
    if not config.tasks:
        raise InputError("no tasks are given: name a file of tasks (JSON or JSONL), e.g. deskroll run tasks.jsonl")
    path = Path(config.tasks).absolute()
    tasks = load_tasks(path, limit=config.limit)
    agent_settings(agent_kind(config.agent), config.agent_options, config.agent)
    desktop_specs(config, tasks)
    if config.metrics.startswith("unix:"):
        raise ConfigError(f"metrics is {config.metrics!r}; write HOST:PORT, e.g. 127.0.0.1:9400")
    return config.model_copy(update={"tasks": str(path)}), tasks


def desktop_specs(config: RunConfig, tasks: Sequence[Task]) -> list[DesktopSpec]:
    """What desktops the tasks need: one of each kind, the most wanted first; none where no task needs any."""
    kinds = {name: env_kind(name) for name in {task.env or config.env for task in tasks} | {config.env}}
    # The options are those of the run's own environment; a task of another kind has that kind's defaults.
    settings = {
        name: env_settings(kind, config.env_options if name == config.env else {}, name) for name, kind in kinds.items()
    }
    specs: Counter[DesktopSpec] = Counter()
    for task in tasks:
        name = task.env or config.env
        try:
            spec = kinds[name].desktop_spec(task, settings[name])
        except InputError as error:
            raise InputError(f"task {task.id!r}: {error}") from None
        if spec is not None:
            specs[spec] += 1
    return [spec for spec, _ in specs.most_common()]
