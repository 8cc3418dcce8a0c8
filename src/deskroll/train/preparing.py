"""A training run before it starts: everything that can be told without a model, a trainer or a desktop is told here.

Guarantees: `prepare` starts nothing and writes nothing. What is wrong is one `InputError` (or `MissingDependency`, with
the line to run) that names the field and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deskroll.agents import NO_MODEL, agent_kind, agents_model
from deskroll.envs.osworld.evaluate.own.named import own_functions
from deskroll.envs.osworld.setup import bundled_files
from deskroll.errors import ConfigError, InputError, SetupError, plain
from deskroll.models.plugin import OPENAI_KIND, SCRIPTED
from deskroll.models.settings import URL_VARIABLE
from deskroll.models.vllm.command import find_vllm
from deskroll.models.vllm.config import ModelPoolConfig
from deskroll.models.weights.checkpoint import read_checkpoint
from deskroll.models.weights.refusal import CheckpointRefused
from deskroll.plugins import load_plugin
from deskroll.rollout.config import Resources, RunConfig
from deskroll.rollout.lacking import lacking_programs
from deskroll.rollout.loading import check_run
from deskroll.rollout.preparing import check_tasks, unjudged
from deskroll.rollout.spec import EpisodeSpec
from deskroll.tasks.sources import JUDGED_BY_MODEL, SourceTasks
from deskroll.train.base import Trainer
from deskroll.train.config import CLIConfig
from deskroll.train.derived import (
    eval_sources,
    eval_spec_of,
    eval_tasks,
    model_pool,
    resources_of,
    run_config,
    spec_of,
    train_sources,
    train_tasks,
)
from deskroll.train.environment import find_trainer_python
from deskroll.train.folder import holds_training, run_folder
from deskroll.train.trackers import trackers_of
from deskroll.types import Task


@dataclass(frozen=True)
class Prepared:
    """A training run that can start, as far as can be told."""

    config: CLIConfig
    folder: str
    """The run's."""
    resumed: bool
    """Whether a training run is there already, which goes on."""
    run: RunConfig
    """The settings of training as those of a run, with what `auto` came to."""
    models: ModelPoolConfig | None
    train_tasks: tuple[Task, ...]
    eval_tasks: tuple[Task, ...]
    train_files: str
    """The folder that training tasks have their files in; empty: nowhere."""
    eval_files: str

    @staticmethod
    def folder_of(files: str) -> Path:
        """Where tasks look for their files: the working folder, where none is named."""
        return Path(files) if files else Path()

    @property
    def resources(self) -> Resources:
        """Of the runtime."""
        return resources_of(self.run)

    @property
    def train_spec(self) -> EpisodeSpec:
        """Of training."""
        return spec_of(self.run)

    @property
    def eval_spec(self) -> EpisodeSpec:
        """Of baseline and evaluations."""
        return eval_spec_of(self.config, self.run)


def prepare(config: CLIConfig, env: Mapping[str, str], *, folder: str = "") -> Prepared:
    """All that a training run needs, checked; `env`: of this process; `folder`: that of a run that goes on."""
    place = folder or run_folder(config)
    resumed = holds_training(place)
    trackers_of(config)  # what each needs must be there
    if config.trains:
        check_trainer(config, env)
    models = _check_models(config, env)
    training, evaluation = train_tasks(config), eval_tasks(config)
    if not training and not evaluation:
        raise InputError("nothing would be done: there are neither steps to take nor tasks to evaluate on")
    run = run_config(config)
    _check_default_eval(config, run, evaluation)
    run, _ = check_run(run, [*training, *evaluation])
    _check_model(config, run, models, env)
    _check_scores(config, run, [*training, *evaluation])
    if lacking := lacking_programs(run, [*training, *evaluation]):
        raise InputError(f"{lacking}; or take other tasks (category, task_ids, file_path)")
    return Prepared(
        config=config, folder=place, resumed=resumed, run=run, models=models,
        train_tasks=tuple(training), eval_tasks=tuple(evaluation),
        train_files=_files("tasks", train_sources(config)), eval_files=_files("eval_tasks", eval_sources(config)),
    )  # fmt: skip


def check_trainer(config: CLIConfig, env: Mapping[str, str]) -> type[Trainer]:
    """The kind of trainer; refused where there is none of that name, with such options, or no Python to run it in."""
    kind = load_plugin("trainer", config.trainer, Trainer)
    kind.check_installed()
    kind.read_options(config.trainer_options, f"trainer_options (trainer {config.trainer})")
    if kind.own_python or config.trainer_python:
        find_trainer_python(config.trainer_python, env)
    return kind


def _check_models(config: CLIConfig, env: Mapping[str, str]) -> ModelPoolConfig | None:
    """The servers; refused where there is no vLLM, or no weights."""
    pool = model_pool(config)
    weights = {"load_checkpoint_path": config.load_checkpoint_path, "models.ckpt_path": pool.ckpt_path if pool else ""}
    for name, path in weights.items():
        try:
            if path:
                read_checkpoint(Path(path))
        except CheckpointRefused as refused:
            raise ConfigError(f"{name}: {refused}") from None
    if pool is not None:
        find_vllm(pool.vllm_command, env)
    return pool


def _check_model(config: CLIConfig, run: RunConfig, pool: ModelPoolConfig | None, env: Mapping[str, str]) -> None:
    """That the agent asks a model, that somebody serves it and, in training, takes the weights of each step."""
    agent = agent_kind(run.agent)
    if agent.protocol == NO_MODEL:
        raise ConfigError(f"agent {run.agent} asks no model, so that there is nothing to train; choose another agent")
    kind, model = agents_model(agent, run.model), run.model
    kind.check_settings(model, "run.model")
    if config.trains and pool is None and not model.pool:
        raise ConfigError(
            f"nobody serves the model {plain(config.model_name)} with the weights of each step: name the folder with "
            "it, and it is served here (--set models.ckpt_path=DIR), or a pool of `deskroll models up` (run.model.pool)"
        )
    elsewhere = model.base_url or model.endpoints or model.pool or model.name.startswith(SCRIPTED)
    if pool is None and kind.protocol == OPENAI_KIND and not elsewhere and not env.get(URL_VARIABLE, "").strip():
        raise ConfigError(
            f"nobody serves the model {plain(model.name)}: name the folder with its weights (--set "
            f"models.ckpt_path=DIR), and it is served here; or say where it is (run.model.base_url, ${URL_VARIABLE})"
        )


def _check_default_eval(config: CLIConfig, run: RunConfig, tasks: Sequence[Task]) -> None:
    """Where nobody named tasks for evaluation, say so with what is wrong with them."""
    if config.eval_tasks is not None or not tasks:
        return
    try:
        check_tasks(run, tasks)
    except InputError as error:
        raise InputError(
            f"the default evaluation tasks are tasks on a desktop, and env is {run.env!r}: {error}; name eval_tasks, "
            "or set use_default_eval_tasks to false"
        ) from None


def _check_scores(config: CLIConfig, run: RunConfig, tasks: Sequence[Task]) -> None:
    """That every task is judged, and not by the very model that learns from it."""
    if unscored := unjudged(run, tasks):
        raise InputError(f"{unscored}; without a score there is nothing to learn from")
    asked = [task.id for task in tasks if JUDGED_BY_MODEL in _metrics(task)]
    asked = asked or ([task.id for task in tasks] if _asks(run) else [])
    if asked and run.judge is None:
        raise InputError(
            f"task {plain(asked[0])!r} is judged by a model ({JUDGED_BY_MODEL}), and the one that is trained cannot "
            "judge itself; set another one: run.judge, e.g. --set run.judge.name=NAME --set run.judge.base_url=URL"
        )


def _metrics(task: Task) -> list[object]:
    func = task.evaluator.get("func")
    return func if isinstance(func, list) else [func]


def _asks(run: RunConfig) -> bool:
    """Whether answers are judged by a model."""
    return bool(run.env_options.get("evaluation_metric") == JUDGED_BY_MODEL)


def _files(name: str, sources: Sequence[SourceTasks]) -> str:
    """The one folder that tasks of a job have their files in."""
    folders = {source.folder: source.name for source in sources if source.folder is not None}
    if len(folders) > 1:  # those whose tasks name no file may be anywhere
        folders = {folder: each for folder, each in folders.items() if _name_files(folder, sources)}
    if len(folders) > 1:
        first, second = list(folders.values())[:2]
        raise InputError(
            f"{name}: tasks of {first} and of {second} name files that come with them, each in a folder of its own, "
            "and a run takes them from one; put these tasks into one folder"
        )
    return str(next(iter(folders), ""))


def _name_files(folder: Path, sources: Sequence[SourceTasks]) -> bool:
    """Whether tasks of that folder name files of it."""
    tasks = [task for source in sources if source.folder == folder for task in source.tasks]
    try:
        return any(any(True for _ in (*bundled_files(task, folder), *own_functions(task.evaluator))) for task in tasks)
    except (InputError, SetupError):  # one that is not there: whoever prepares the task says so
        return True
