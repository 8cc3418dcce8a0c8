"""CLIConfig: its defaults, what comes of it, how it is kept, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deskroll.errors import ConfigError, InputError
from deskroll.field_docs import describe_all
from deskroll.rollout.group_policy import GroupPolicy
from deskroll.rollout.samples import Advantage, Weight
from deskroll.tasks.sources import SourceType, TaskSourceConfig
from deskroll.train import CLIConfig
from deskroll.train.derived import (
    eval_spec,
    eval_tasks,
    model_pool,
    resources,
    start_checkpoint,
    train_spec,
    train_tasks,
)
from deskroll.train.folder import holds_training, keep_settings, kept_settings
from deskroll.train.run_settings import FIELDS
from deskroll.train.sizing import evaluations
from deskroll.train.staleness import Staleness
from deskroll.train.start import with_defaults
from deskroll.types import LogprobsMode

DOCUMENTED: dict[str, object] = {
    "max_concurrent_rollouts": 8, "group_size": 4, "groups_per_batch": 2, "use_default_eval_tasks": True,
    "eval_every": 10, "skip_baseline": False, "baseline_only": False, "seed": 0, "max_turns": 20, "max_tokens": 2048,
    "temperature": 1.0, "learning_rate": 1e-5, "kl_penalty_coef": 0.0, "num_substeps": 1, "lora_rank": 32,
    "save_every": 10, "load_checkpoint_path": "", "log_path": "", "max_steps_off_policy": None,
    "max_task_time_seconds": 1800.0, "max_turn_time_seconds": 300.0, "eval_samples": 1, "eval_temperature": 0.0,
    "staleness": Staleness.PACE, "advantage": Advantage.CENTRED, "weight": Weight.EPISODE, "policy": GroupPolicy(),
}  # fmt: skip


def test_the_defaults_are_the_documented_ones() -> None:
    config = CLIConfig()
    assert {name: getattr(config, name) for name in DOCUMENTED} == DOCUMENTED


def test_every_field_says_what_it_is() -> None:
    assert [each.path for each in describe_all(CLIConfig, closed=("run",)) if len(each.text) < 10] == []
    assert [each.path for each in describe_all(TaskSourceConfig) if len(each.text) < 10] == []


# --- what comes of it ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "rollouts", "vms"),
    [
        ({}, 32, 32),
        ({"max_concurrent_rollouts": 2}, 8, 8),
        ({"max_concurrent_rollouts": 5, "num_vms": 3}, 20, 3),
        ({"num_rollouts": 6, "group_size": 2}, 6, 16),
    ],
)
def test_the_worst_case_is_the_default_and_fewer_hold(fields: dict[str, Any], rollouts: int, vms: int) -> None:
    found = resources(CLIConfig(**fields))
    assert (found.num_rollouts, found.num_vms) == (rollouts, vms)
    assert found.max_concurrent_rollouts == CLIConfig(**fields).max_concurrent_rollouts


def test_training_is_exact_and_sampled_and_evaluation_greedy() -> None:
    config = CLIConfig(temperature=0.7, seed=5, max_tokens=99, policy="min_viable", max_turns=3)
    training, evaluation = train_spec(config), eval_spec(config)
    assert (training.model.temperature, training.model.exact, training.policy) == (0.7, True, GroupPolicy(min_scored=2))
    assert (evaluation.model.temperature, evaluation.model.exact, evaluation.policy) == (0.0, False, GroupPolicy())
    for spec in (training, evaluation):
        assert (spec.model.seed, spec.model.max_tokens, spec.limits.max_turns) == (5, 99, 3)
        assert (spec.limits.max_time, spec.model.timeout) == (1800.0, 300.0)


def test_anything_else_of_a_run_goes_where_it_belongs() -> None:
    config = CLIConfig(
        env="math", agent_options={"max_retries": 1}, max_turn_time_seconds=7,
        run={"model": {"base_url": "http://127.0.0.1:9/v1", "api_key": "sk-1"}, "judge": "j", "min_vms": 0,
             "limits": {"setup_timeout": 5}, "watchdog": {"notice_after": 2}},
    )  # fmt: skip
    spec, found = train_spec(config), resources(config)
    assert spec.model.base_url == "http://127.0.0.1:9/v1"
    assert spec.model.api_key is not None
    assert spec.judge is not None
    assert (spec.env, spec.agent_options, spec.limits.setup_timeout) == ("math", {"max_retries": 1}, 5)
    assert (found.min_vms, found.watchdog.notice_after, found.watchdog.act_timeout) == (0, 2, 7)


def test_the_tasks_of_training_and_of_evaluation() -> None:
    config = CLIConfig()
    assert (len(train_tasks(config)), len(eval_tasks(config))) == (30, 10)
    assert [task.id for task in eval_tasks(config)] == [task.id for task in eval_tasks(CLIConfig(seed=9))]
    assert len(eval_tasks(CLIConfig(eval_tasks='{"source_type": "demo_eval", "limit": 20}'))) == 20


@pytest.mark.parametrize(
    ("fields", "training", "evaluation"),
    [
        ({"steps": 0}, False, True),
        ({"baseline_only": True}, False, True),
        ({"use_default_eval_tasks": False}, True, False),
        ({"skip_baseline": True}, True, True),
        ({"skip_baseline": True, "eval_every": 0}, True, False),
        ({"eval_every": 0}, True, True),
    ],
)
def test_no_tasks_are_read_that_nothing_is_done_with(fields: dict[str, Any], training: bool, evaluation: bool) -> None:
    config = CLIConfig(**fields)
    assert (bool(train_tasks(config)), bool(eval_tasks(config))) == (training, evaluation)


def test_a_task_that_would_be_trained_and_evaluated_on() -> None:
    config = CLIConfig(tasks="demo_all", eval_tasks="demo_eval")
    with pytest.raises(InputError, match=r"20 of 20 evaluation tasks are training tasks, too \('editor-"):
        eval_tasks(config)
    halves = {side: {"source_type": "demo_all", "split_type": side} for side in ("train", "eval")}
    split = CLIConfig(tasks=halves["train"], eval_tasks=halves["eval"])
    assert len(train_tasks(split)) + len(eval_tasks(split)) == 50


def test_servers_as_training_needs_them() -> None:
    config = CLIConfig(models={"ckpt_path": "m", "served_name": "mine"})
    pool = model_pool(config)
    assert pool is not None
    assert (pool.enable_lora, pool.vllm_params["logprobs_mode"]) == (True, "processed_logprobs")
    assert pool.vllm_params["max_lora_rank"] == 32
    model = train_spec(config).model
    assert (model.name, model.logprobs_mode) == ("mine", LogprobsMode.PROCESSED)
    assert str(start_checkpoint(config)) == "m"
    whole = model_pool(CLIConfig(model_name="folder", lora_rank=0, models={}))
    assert whole is not None
    assert (whole.enable_lora, whole.ckpt_path) == (False, "folder")
    assert model_pool(CLIConfig()) is None


@pytest.mark.parametrize(("steps", "every", "count"), [(100, 10, 10), (95, 10, 10), (5, 10, 1), (0, 10, 0), (9, 0, 0)])
def test_how_many_evaluations_there_are(steps: int, every: int, count: int) -> None:
    assert evaluations(steps, every) == count


# --- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FIELDS)
def test_nothing_has_two_places(path: str) -> None:
    name, _, inner = path.partition(".")
    with pytest.raises(ConfigError, match=rf"{path} is set by the field {FIELDS[path]} of the training run"):
        CLIConfig(run={name: {inner: 1} if inner else 1})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"run": {"model": "m"}}, "model.name is set by the field model_name"),
        ({"run": {"evaluate": False}}, "evaluate cannot be set here: training goes by scores"),
        ({"run": {"model": {"exact": False}}}, "model.exact cannot be set here"),
        ({"run": {"limits": {"run_time": 5}}}, "limits.run_time cannot be set here"),
        ({"run": {"model": {"top_p": 0.9}}}, "model.top_p is 0.9: in training every token may be sampled"),
        ({"run": {"model": {"extra": {"top_k": 5}}}}, "model.top_k is 5"),
        (
            {"run": {"model": {"extra": {"temperature": 0.1}}}},
            "model.extra.temperature is set by the field temperature",
        ),
        ({"run": {"nothing": 1}}, "run.nothing: there is no such field"),
        ({"group_size": 1}, "group_size is 1"),
        ({"policy": {"min_scored": 5}}, "policy.min_scored is 5, and a group has 4"),
        ({"skip_baseline": True, "baseline_only": True}, "nothing would be done"),
        ({"baseline_only": True, "use_default_eval_tasks": False}, "baseline_only needs eval_tasks"),
        ({"max_concurrent_rollouts": 100_000}, "is 400,000 episodes and desktops; set num_rollouts and num_vms"),
        ({"models": {"weights": {"source": "x"}}}, "models.weights.source cannot be set"),
        ({"models": {"enable_lora": False}}, "models.enable_lora is false, and lora_rank is 32"),
        ({"models": {}, "run": {"model": {"base_url": "http://a/v1"}}}, "run.model.base_url says that it is elsewhere"),
        ({"tasks": []}, "the list of sources is empty"),
        ({"tasks": 3}, "tasks: input should be a list"),
        ({"temperature": 0}, "temperature: input should be greater than 0"),
        ({"staleness": "async"}, "staleness: input should be 'pace', 'wait' or 'withhold'"),
    ],
)
def test_what_cannot_be_meant(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        CLIConfig(**fields)
    assert words in str(caught.value)


# --- how it is kept --------------------------------------------------------------------------------------

FULL: dict[str, Any] = {
    "model_name": "m", "tasks": {"source_type": "custom", "custom_tasks": ["a"]}, "eval_tasks": "demo_eval",
    "policy": "min_viable", "models": {"ckpt_path": "x"}, "run": {"judge": {"name": "j"}, "min_vms": 0},
    "steps": 3, "staleness": "wait", "max_steps_off_policy": 2, "trainer": "scripted",
    "trainer_options": {"seconds": 1},
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> str:
    """The folder of a runtime's run."""
    (tmp_path / "run.json").write_text('{"run_id": "one"}')
    return str(tmp_path)


def test_what_is_kept_is_what_was_set(run: str) -> None:
    config = CLIConfig(**FULL)
    keep_settings(run, config)
    folder, kept = kept_settings(run, [])
    assert folder == run
    assert kept.model_dump(exclude={"log_path"}) == config.model_dump(exclude={"log_path"})
    assert kept_settings(run, ["steps=9", ("group_size", 8, "--group-size")])[1].steps == 9
    assert holds_training(run)


def test_secrets_are_not_kept_and_asked_for(run: str) -> None:
    secret = {"run": {"model": {"api_key": "sk-hidden"}}, "env_options": {"client_password": "hidden"}}
    keep_settings(run, CLIConfig(**secret))
    assert "hidden" not in Path(run, "train.yaml").read_text()
    with pytest.raises(InputError, match=r"env_options.client_password was a secret .* --set env_options.client_pass"):
        kept_settings(run, [])
    assert kept_settings(run, ["env_options.client_password=x"])[1].env_options == {"client_password": "x"}


def test_a_run_that_is_no_training_run(run: str) -> None:
    with pytest.raises(InputError, match=r"is no training run: it has no train\.yaml"):
        kept_settings(run, [])
    with pytest.raises(InputError, match=r"log_path: .* holds a run that is no training run"):
        holds_training(run)


def test_a_file_of_defaults_counts_where_nothing_else_does(tmp_path: Path) -> None:
    file = tmp_path / "below.yaml"
    file.write_text("steps: 2\ngroup_size: 3\nrun: {min_vms: 0}\n")
    env = {"DESKROLL_TRAIN_CONFIG": str(file)}
    found = with_defaults(CLIConfig(group_size=4, model_name="m"), env)
    assert (found.steps, found.group_size, found.model_name, found.run.min_vms) == (2, 4, "m", 0)
    assert with_defaults(CLIConfig(), {}) == CLIConfig()
    file.write_text("stepps: 2\n")
    with pytest.raises(InputError, match=r"DESKROLL_TRAIN_CONFIG: .*below.yaml:1: stepps: .* did you mean steps\?"):
        with_defaults(CLIConfig(), env)
    assert found.tasks is None
    assert CLIConfig(tasks="demo_all").tasks == (TaskSourceConfig(source_type=SourceType.DEMO_ALL),)
