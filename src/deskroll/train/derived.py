"""What a training run's settings come to: the resources of its runtime, the specs of its jobs, their tasks.

Pure, but for reading files of tasks. Whether all of it can be run is `preparing.py`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deskroll.config import check
from deskroll.errors import InputError, plain
from deskroll.models.vllm.config import ModelPoolConfig
from deskroll.models.vllm.flags import flag_name
from deskroll.rollout.config import Resources, RunConfig
from deskroll.rollout.group_policy import GroupPolicy
from deskroll.rollout.spec import EpisodeLimits, EpisodeSpec
from deskroll.tasks.sources import SourceTasks, SourceType, TaskSourceConfig, load_sources
from deskroll.train.config import CLIConfig
from deskroll.types import LogprobsMode, Task

DEFAULT_EVAL = TaskSourceConfig(source_type=SourceType.DEMO_EVAL, limit=10)
DEFAULT_TRAIN = TaskSourceConfig(source_type=SourceType.DEMO_TRAINING)
_LOGPROBS = "logprobs-mode"
_RANK = "max-lora-rank"
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM takes for it; its own default is too small for ours."""


def resources(config: CLIConfig) -> Resources:
    """Of the one runtime of all phases."""
    return resources_of(run_config(config))


def train_spec(config: CLIConfig) -> EpisodeSpec:
    """Of training: exact tokens, the policy, the temperature of training."""
    return spec_of(run_config(config))


def eval_spec(config: CLIConfig) -> EpisodeSpec:
    """Of baseline and evaluations: greedy, unless eval_temperature says otherwise, and no member is given up."""
    return eval_spec_of(config, run_config(config))


def train_tasks(config: CLIConfig) -> list[Task]:
    """What is trained on; none where no step is taken."""
    return [task for source in train_sources(config) for task in source.tasks]


def eval_tasks(config: CLIConfig) -> list[Task]:
    """What is evaluated on; none where nothing is. `InputError` where a task of them is trained on, too."""
    found = [task for source in eval_sources(config) for task in source.tasks]
    trained = {task.id for task in train_tasks(config)}
    if both := [task.id for task in found if task.id in trained]:
        raise InputError(
            f"{len(both)} of {len(found)} evaluation tasks are training tasks, too ({plain(both[0])!r}, for one): an "
            "evaluation is of tasks that are not trained on; change tasks or eval_tasks, e.g. by split_type"
        )
    return found


def train_sources(config: CLIConfig) -> list[SourceTasks]:
    """The tasks of training by where they come from."""
    return _loaded("tasks", config.tasks or (DEFAULT_TRAIN,)) if config.trains else []


def eval_sources(config: CLIConfig) -> list[SourceTasks]:
    """The tasks of evaluations by where they come from."""
    return _loaded("eval_tasks", config.eval_tasks or (DEFAULT_EVAL,)) if config.evaluates else []


def _loaded(name: str, sources: Sequence[TaskSourceConfig]) -> list[SourceTasks]:
    try:
        return load_sources(sources)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def run_config(config: CLIConfig) -> RunConfig:
    """The settings of training as those of a run: resources and spec in one, as whoever checks them wants it."""
    worst = config.max_concurrent_rollouts * config.group_size
    given: dict[str, Any] = config.run.model_dump(exclude_unset=True)
    given |= {
        name: getattr(config, name)
        for name in (
            "max_concurrent_rollouts", "group_size", "policy", "agent", "agent_options", "env", "env_options",
            "provider",
        )
    }  # fmt: skip
    given |= {"num_rollouts": config.num_rollouts or worst, "num_vms": config.num_vms or worst}
    given["model"] = {**given.get("model", {}), **_model(config)}
    given["limits"] = {
        **given.get("limits", {}), "max_turns": config.max_turns, "max_time": config.max_task_time_seconds,
    }  # fmt: skip
    given["watchdog"] = {**given.get("watchdog", {}), "act_timeout": config.max_turn_time_seconds}
    return check(RunConfig, given, "run")


def _model(config: CLIConfig) -> dict[str, Any]:
    pool = model_pool(config)
    own = {
        "name": config.model_name if pool is None else pool.served_name, "temperature": config.temperature,
        "max_tokens": config.max_tokens, "seed": config.seed, "timeout": config.max_turn_time_seconds, "exact": True,
    }  # fmt: skip
    if pool is not None:
        own["logprobs_mode"] = {flag_name(name): value for name, value in pool.vllm_params.items()}[_LOGPROBS]
    return own


def model_pool(config: CLIConfig) -> ModelPoolConfig | None:
    """The servers, as training needs them: log-probabilities of what was sampled from, adapters where such are trained.

    Where newer weights come from is added by whoever knows the run's folder.
    """
    if config.models is None:
        return None
    params = dict(config.models.vllm_params)
    if _LOGPROBS not in map(flag_name, params):
        params["logprobs_mode"] = LogprobsMode.PROCESSED.value
    if config.lora_rank and _RANK not in map(flag_name, params):
        params["max_lora_rank"] = next((most for most in _RANKS if most >= config.lora_rank), _RANKS[-1])
    return config.models.model_copy(
        update={
            "ckpt_path": config.models.ckpt_path or config.model_name,
            "vllm_params": params,
            "enable_lora": config.lora_rank > 0,
        }
    )


def start_checkpoint(config: CLIConfig) -> Path:
    """The folder with the weights that training begins with."""
    served = config.models.ckpt_path if config.models is not None else ""
    return Path(config.load_checkpoint_path or served or config.model_name)


def resources_of(run: RunConfig) -> Resources:
    """The part that is a runtime's."""
    return Resources(**{name: getattr(run, name) for name in Resources.model_fields})


def spec_of(run: RunConfig) -> EpisodeSpec:
    """The part that is a job's."""
    limits = EpisodeLimits(**{name: getattr(run.limits, name) for name in EpisodeLimits.model_fields})
    return EpisodeSpec(**{name: getattr(run, name) for name in EpisodeSpec.model_fields} | {"limits": limits})


def eval_spec_of(config: CLIConfig, run: RunConfig) -> EpisodeSpec:
    """The same for evaluations."""
    model = run.model.model_copy(update={"temperature": config.eval_temperature, "exact": False})
    return spec_of(run).model_copy(update={"model": model, "policy": GroupPolicy()})
