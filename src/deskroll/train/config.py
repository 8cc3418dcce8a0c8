"""CLIConfig: what people set for a training run: a file, flags, or Python. Every field has a default.

Names and defaults of the first part are those of the document on concurrency (docs/documents.md); what comes of them,
the settings of a runtime and of its jobs, is in `derived.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import Field, SerializationInfo, ValidationInfo, field_serializer, field_validator, model_validator

from deskroll.config import Settings
from deskroll.desktops.settings import MOST_VMS
from deskroll.errors import InputError
from deskroll.host.home import expand_home
from deskroll.importing import place_file
from deskroll.models.plugin import SCRIPTED
from deskroll.models.vllm.config import ModelPoolConfig
from deskroll.rollout.group_policy import GroupPolicy
from deskroll.rollout.weighing import Advantage, Weight
from deskroll.tasks.sources import TaskSourceConfig, read_sources
from deskroll.train.run_settings import RunSettings
from deskroll.train.staleness import Staleness

MODEL_NAME = "Qwen/Qwen3-VL-30B-A3B-Instruct"
_KEYS = {"model": {"api_key"}, "judge": {"api_key"}}
"""What is never written down."""


class CLIConfig(Settings):
    """All of a training run: what is trained, on which tasks, how many at a time, and by whom."""

    model_name: str = Field(default=MODEL_NAME, min_length=1)
    """The model, as its server calls it; with `models`, the folder with it where `models.ckpt_path` names none."""
    max_concurrent_rollouts: int = Field(default=8, ge=1, le=1_000_000)
    """The most groups in flight, over baseline, training and evaluation together."""
    group_size: int = Field(default=4, ge=1, le=10_000)
    """Episodes of each task in training: a group."""
    groups_per_batch: int = Field(default=2, ge=1, le=1_000_000)
    """Groups that one step is taken on."""
    tasks: tuple[TaskSourceConfig, ...] | None = None
    """Tasks to train on: a source, or a list of them, as JSON; none: demo_training."""
    eval_tasks: tuple[TaskSourceConfig, ...] | None = None
    """Tasks to evaluate on; none: see use_default_eval_tasks."""
    use_default_eval_tasks: bool = True
    """Whether, without eval_tasks, 10 of demo_eval are evaluated on; if not, nothing is evaluated."""
    eval_every: int = Field(default=10, ge=0)
    """Steps between evaluations; there is one at the end, too. 0: never."""
    skip_baseline: bool = False
    """Whether the evaluation before the first step is left out."""
    baseline_only: bool = False
    """Whether that evaluation is all that is done."""
    seed: int = 0
    """Of the order of tasks, of sampling and of the trainer."""
    max_turns: int = Field(default=20, ge=1, le=1_000_000)
    """Turns of the agent in an episode."""
    max_tokens: int = Field(default=2048, ge=1)
    """Tokens of one completion."""
    temperature: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Sampling temperature in training."""
    learning_rate: float = Field(default=1e-5, gt=0, allow_inf_nan=False)
    """Of the trainer."""
    kl_penalty_coef: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """How much it costs to move away from the weights of the start; 0: nothing."""
    num_substeps: int = Field(default=1, ge=1)
    """Updates of the weights in a step, each on its share of the batch."""
    lora_rank: int = Field(default=32, ge=0)
    """Rank of the adapter (LoRA) that is trained; 0: all weights are."""
    save_every: int = Field(default=10, ge=0)
    """Of which steps checkpoints are kept for good, besides the last two; 0: of none."""
    load_checkpoint_path: str = ""
    """A folder with weights to start from; empty: those of the model."""
    log_path: str = ""
    """The run's folder; one that holds a training run is resumed. Empty: one in results, named by the time."""
    max_steps_off_policy: int | None = Field(default=None, ge=0)
    """How many steps older than the newest weights those may be that sampled a group (see staleness); none: a batch is
    sampled, a step is taken, in turn."""
    max_task_time_seconds: float = Field(default=1800.0, gt=0, allow_inf_nan=False)
    """Time for the agent's turns in an episode, in seconds."""
    max_turn_time_seconds: float = Field(default=300.0, gt=0, allow_inf_nan=False)
    """The longest that one request to the model, and one turn's actions, may take, in seconds."""

    steps: int = Field(default=100, ge=0)
    """Steps to take; 0: none, only the evaluations."""
    num_rollouts: int | None = Field(default=None, ge=1, le=1_000_000)
    """The most episodes in flight; none: max_concurrent_rollouts x group_size."""
    num_vms: int | None = Field(default=None, ge=1, le=MOST_VMS)
    """The most desktops alive; none: max_concurrent_rollouts x group_size."""
    staleness: Staleness = Staleness.PACE
    """What keeps groups from being too old: pace, wait or withhold."""
    policy: GroupPolicy = GroupPolicy()
    advantage: Advantage = Advantage.CENTRED
    """What a score becomes beside those of its group: centred, or grpo (over their deviation, too)."""
    weight: Weight = Weight.EPISODE
    """What counts alike in a batch: each episode, turn or token."""
    eval_samples: int = Field(default=1, ge=1, le=10_000)
    """Episodes of each task in an evaluation."""
    eval_temperature: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Sampling temperature in evaluations; 0: the likeliest token."""
    agent: str = "chat"
    """The agent: one that `deskroll plugins ls` shows, or your own: FILE.py:CLASS."""
    agent_options: dict[str, Any] = Field(default_factory=dict)
    """Options of the agent."""
    env: str = "osworld"
    """The environment: one that `deskroll plugins ls` shows, or your own: FILE.py:CLASS."""
    env_options: dict[str, Any] = Field(default_factory=dict)
    """Options of the environment."""
    provider: str = "auto"
    """What kind of desktops: auto, or one that `deskroll plugins ls` shows."""
    trainer: str = "grpo-local"
    """Who takes the steps: one that `deskroll plugins ls` shows, or your own: FILE.py:CLASS."""
    trainer_options: dict[str, Any] = Field(default_factory=dict)
    """Options of the trainer."""
    trainer_python: str = ""
    """The Python that the trainer runs in, with its libraries and deskroll; empty: that of `make vllm`."""
    models: ModelPoolConfig | None = None
    """Servers of the model on this machine, which get the weights of each step; none: it is served elsewhere."""
    wandb_project: str = ""
    """A project of Weights & Biases that the numbers of steps and evaluations go to, too; empty: none."""
    wandb_name: str = ""
    """What the run is called there; empty: by its folder."""
    tensorboard: str = ""
    """A folder that the same numbers are written to for TensorBoard; empty: none."""
    run: RunSettings = RunSettings()
    """Any other setting of a run, by its name in docs/settings.md."""

    @field_validator("tasks", "eval_tasks", mode="before")
    @classmethod
    def _read_sources(cls, value: object, info: ValidationInfo) -> object:
        try:
            found = read_sources(value, str(info.field_name))
        except InputError as error:
            raise ValueError(str(error)) from None
        return [found] if isinstance(found, dict | TaskSourceConfig) else found

    @field_validator("tasks", "eval_tasks")
    @classmethod
    def _refuse_none(cls, value: tuple[TaskSourceConfig, ...] | None) -> tuple[TaskSourceConfig, ...] | None:
        if value == ():
            raise ValueError("the list of sources is empty; name one, or leave it out")
        return value

    @field_validator("agent", "env", "trainer")
    @classmethod
    def _place_code(cls, value: str) -> str:
        """A file of code by a path that holds from everywhere, as all paths are kept."""
        return place_file(value)

    @field_validator("load_checkpoint_path", "log_path", "tensorboard")
    @classmethod
    def _place(cls, value: str) -> str:
        return str(Path(expand_home(value)).absolute()) if value and "://" not in value else value

    @field_validator("model_name")
    @classmethod
    def _place_script(cls, value: str) -> str:
        script = value.removeprefix(SCRIPTED)
        return f"{SCRIPTED}{Path(expand_home(script)).absolute()}" if script != value and script else value

    @field_validator("trainer_python")
    @classmethod
    def _expand_home(cls, value: str) -> str:
        return expand_home(value)

    @field_serializer("models", "run")
    def _as_given(self, value: Settings | None, info: SerializationInfo) -> dict[str, Any] | None:
        """What was set and no more: a default is no setting that somebody chose."""
        return None if value is None else value.model_dump(mode=info.mode, exclude_unset=True, exclude=_KEYS)

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        worst = self.max_concurrent_rollouts * self.group_size
        if worst > MOST_VMS and None in (self.num_rollouts, self.num_vms):
            raise ValueError(
                f"max_concurrent_rollouts x group_size is {worst:,} episodes and desktops; set num_rollouts and num_vms"
            )
        if self.group_size < 2 and self.trains:
            raise ValueError("group_size is 1: a score says something beside others of its group; allowed: 2 and more")
        if misfit := self.policy.misfit(self.group_size, evaluate=True):
            raise ValueError(f"{misfit} (group_size is {self.group_size})")
        return self

    @model_validator(mode="after")
    def _check_phases(self) -> Self:
        if self.skip_baseline and self.baseline_only:
            raise ValueError("skip_baseline and baseline_only: nothing would be done; leave one of them out")
        if self.baseline_only and not self.has_eval_tasks:
            raise ValueError("baseline_only needs eval_tasks, and there are none (use_default_eval_tasks is false)")
        if self.wandb_name and not self.wandb_project:
            raise ValueError("wandb_name names a run in a project; set wandb_project, too")
        return self

    @model_validator(mode="after")
    def _check_models(self) -> Self:
        if self.models is None:
            return self
        if elsewhere := [name for name in ("base_url", "endpoints", "pool") if getattr(self.run.model, name)]:
            raise ValueError(f"models serves the model here, and run.model.{elsewhere[0]} says that it is elsewhere")
        if self.models.weights.source:
            raise ValueError("models.weights.source cannot be set: newer weights come from the run's own folder")
        if "enable_lora" in self.models.model_fields_set and self.models.enable_lora is not (self.lora_rank > 0):
            said = str(self.models.enable_lora).lower()
            raise ValueError(f"models.enable_lora is {said}, and lora_rank is {self.lora_rank}; leave the former out")
        return self

    @property
    def trains(self) -> bool:
        """Whether steps are taken at all."""
        return self.steps > 0 and not self.baseline_only

    @property
    def has_eval_tasks(self) -> bool:
        """Whether there is anything to evaluate on."""
        return self.eval_tasks is not None or self.use_default_eval_tasks

    @property
    def evaluates(self) -> bool:
        """Whether there is an evaluation: the baseline, or one after steps."""
        return self.has_eval_tasks and (not self.skip_baseline or (self.trains and self.eval_every > 0))
