"""A run's settings and tasks from what people give: a file, overrides, or a run that is to go on.

Guarantees: whatever is wrong and can be told without a model or a desktop is one `InputError`, before anything starts.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from deskroll.agents import agent_kind, agent_settings
from deskroll.config import Override, load
from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.providers import make_provider
from deskroll.desktops.providers.choice import check_name, choose
from deskroll.envs import env_kind
from deskroll.errors import ConfigError, InputError, StoreError
from deskroll.host.home import expand_home
from deskroll.host.listen import Listen
from deskroll.host.tokens import TOKEN_VARIABLE
from deskroll.importing import place_file
from deskroll.models.plugin import SCRIPTED, SCRIPTED_KIND
from deskroll.models.settings import ModelSettings
from deskroll.plugins import Plugin
from deskroll.rollout.config import RunConfig
from deskroll.rollout.preparing import check_tasks, desktops_wanted
from deskroll.rollout.redaction import masked_settings, without_masked
from deskroll.store import Run, find_run
from deskroll.tasks import Selection, is_bundled, load_tasks, tasks_folder
from deskroll.types import Task

_log = logging.getLogger(__name__)
Config = TypeVar("Config", bound=RunConfig)
PHASE = "eval"
"""The phase of `deskroll run`."""


def load_run(path: Path | None, overrides: Sequence[Override]) -> tuple[RunConfig, list[Task]]:
    """The settings of a new run, checked to the last option, and its tasks."""
    return _load_tasks(load(RunConfig, path, overrides))


def resume_run(
    given: str, overrides: Sequence[Override], tasks: list[Task] | None = None
) -> tuple[str, RunConfig, list[Task]]:
    """The folder, the settings and the tasks of a run that is to go on; `tasks` where they come from no file."""
    given = expand_home(given)
    if Path(given).is_file() and Path(given).name != "run.json":
        raise InputError(f"{given} is a file, and no run; name the folder of a run (<output_dir>/<run_id>)")
    try:
        root = find_run(given)
        info = Run.open(root).info
    except StoreError as error:
        raise InputError(str(error)) from error
    name = f"{root}/run.json"
    if not info.config:
        raise InputError(f"{name}: it holds no config, so the run cannot go on; restore it, or start a new run")
    for setting in masked_settings(info.config):
        if setting not in map(_field, overrides):
            raise InputError(f"{name}: {setting} was a secret and is not kept; give it again: --set {setting}=...")
    config = load(RunConfig, None, overrides, base=without_masked(info.config), name=name)
    if not info.has_tasks:
        raise InputError(
            f"{root} is the store of a runtime, whose jobs bring their own tasks: go on with the program that ran it "
            "(deskroll.Runtime.open on that store), or start a new run"
        )
    if tasks is None and not config.tasks:
        raise InputError(
            f"{name}: the tasks of this run came from Python and not from a file: go on with it from there, "
            "deskroll.run(tasks, resume=...), or with the program that ran it"
        )
    return root, *(_load_tasks(config) if tasks is None else check_run(config, tasks))


def _field(override: Override) -> str:
    return override[0] if isinstance(override, tuple) else override.partition("=")[0].strip()


def _load_tasks(config: RunConfig) -> tuple[RunConfig, list[Task]]:
    if not config.tasks:
        raise InputError("no tasks are given: name a file of tasks (JSON or JSONL), e.g. deskroll run tasks.jsonl")
    # A path that holds from everywhere; a suite that is part of a package has its name.
    path = Path(config.tasks) if is_bundled(config.tasks) else Path(config.tasks).absolute()
    root = Path(config.tasks_root).absolute() if config.tasks_root else None
    tasks = load_tasks(path, limit=config.limit, root=root, only=Selection(**config.only.model_dump()))
    return check_run(config.model_copy(update={"tasks": str(path), "tasks_root": str(root or "")}), tasks)


def check_run(config: Config, tasks: list[Task], phase: str = PHASE) -> tuple[Config, list[Task]]:
    """The settings as they will be used, with these tasks, in that phase; `InputError` where they cannot be."""
    models = {"model": _place_script(config.model, _beside(config.tasks, ".script.yaml"), "model")}
    if config.judge is not None:
        models["judge"] = _place_script(config.judge, _beside(config.tasks, ".judge.yaml"), "judge")
    named = {"env": place_file(config.env), "agent": place_file(config.agent)}
    options = {
        "env_options": _place_code(env_kind(named["env"]), config.env_options),
        "agent_options": _place_code(agent_kind(named["agent"]), config.agent_options),
    }
    config = config.model_copy(update=models | named | options)
    agent_settings(agent_kind(config.agent), config.agent_options, config.agent)
    if desktops_wanted(config, tasks, config.tasks):
        config = _with_provider(config)
        _check_provider(config, desktops_wanted(config, tasks, config.tasks))
    else:
        check_name(config.provider)
    check_tasks(config, tasks, config.tasks)
    _check_metrics(config.metrics)
    _check_reserved(config, phase)
    return config, tasks


def _place_code(kind: type[Plugin], options: dict[str, Any]) -> dict[str, Any]:
    """The options, with files of code in them named by paths that hold from everywhere."""
    return {**options, **{name: place_file(value) for name, value in kind.code_of(options).items()}}


def _beside(tasks: str, suffix: str) -> Path:
    """The file that stands beside the tasks, whether they are a file or a folder."""
    if not tasks:
        return Path(f"tasks{suffix}")  # they were given in Python
    return (tasks_folder(tasks) if is_bundled(tasks) else Path(tasks)).with_suffix(suffix)


def _place_script(model: ModelSettings, beside: Path, name: str) -> ModelSettings:
    """The model, with the script that it answers from named by a path that holds from everywhere."""
    model = model.model_copy(update={"kind": place_file(model.kind)})
    if model.kind == SCRIPTED_KIND and not model.name.startswith(SCRIPTED_KIND):
        model = model.model_copy(update={"name": f"{SCRIPTED}{model.name}"})
    if model.name == SCRIPTED_KIND:
        if not beside.is_file():
            raise ConfigError(
                f"{name}.name is 'scripted', and there is no script beside the tasks ({beside}); "
                f"write one, or name one with scripted:FILE"
            )
        return model.model_copy(update={"name": f"{SCRIPTED}{beside}"})
    if not model.name.startswith(SCRIPTED) or model.name == SCRIPTED:
        return model
    script = Path(expand_home(model.name.removeprefix(SCRIPTED))).absolute()
    return model.model_copy(update={"name": f"{SCRIPTED}{script}"})


def _with_provider(config: Config) -> Config:
    """The settings with the provider that the desktops come from; what takes its place is told."""
    if config.pool:
        return config
    choice = choose(config.provider, config.provider_options, os.environ)
    options = dict(config.env_options)
    if choice.substituted:
        snapshot = options.pop("snapshot_name", "")
        _log.warning("%s%s", choice.substituted, f"; nor is snapshot_name ({snapshot})" if snapshot else "")
    update = {"provider": choice.name, "provider_options": choice.options, "env_options": options}
    return config.model_copy(update=update)


def _check_provider(config: RunConfig, wanted: Sequence[tuple[Task, DesktopSpec]]) -> None:
    """That the provider exists and, where it is used, has these options and can make these desktops."""
    name = config.provider
    if config.pool:
        try:
            Listen.parse(config.pool)
        except InputError as error:
            raise ConfigError(f"pool: {error}") from None
    if config.pool or not wanted:
        return
    provider = make_provider(name, config.provider_options)
    # Each spec once, with the first task that wants it.
    for spec, task in {spec: task for task, spec in reversed(wanted)}.items():
        try:
            provider.check_spec(spec)
        except InputError as error:
            raise InputError(f"{config.tasks}: task {task.id!r} on a desktop of provider {name}: {error}") from None


def _check_reserved(config: RunConfig, own: str) -> None:
    """That something is left for the run itself: else it would wait for ever."""
    others = {phase: kept for phase, kept in config.reserved.items() if kept and phase != own}
    if (kept := sum(others.values())) >= (most := config.num_rollouts):
        raise ConfigError(
            f"reserved keeps {kept} of {most} episodes in flight for other phases, and none for {own!r}; "
            f"reserve fewer, or raise num_rollouts"
        )
    if config.max_concurrent_rollouts is not None and len(others) >= config.max_concurrent_rollouts:
        raise ConfigError(
            f"reserved keeps a group in flight for each of {len(others)} other phases, and max_concurrent_rollouts is "
            f"{config.max_concurrent_rollouts}: none is left for {own!r}; reserve for fewer, or raise it"
        )


def _check_metrics(metrics: str) -> None:
    if not metrics:
        return
    try:
        at = Listen.parse(metrics)
    except InputError:
        at = None
    if at is None or at.is_unix:
        raise ConfigError(f"metrics is {metrics!r}; write HOST:PORT, e.g. 127.0.0.1:9400")
    if not os.environ.get(TOKEN_VARIABLE, "").strip():
        raise ConfigError(f"metrics needs a token: set {TOKEN_VARIABLE}, and give it to Prometheus as bearer token")
