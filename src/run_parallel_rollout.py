"""The script that the users' documents name: many rollouts over a pool of desktops, from a shell or from Python.

Thin, over `deskroll.rollout`: it knows the documents' names and defaults, and turns them into a `RunConfig`. Every
option has an effect, or is refused with a reason; none is ignored. For a checkout; it is not in the wheel.

    python src/run_parallel_rollout.py --data_path data/osworld_examples.jsonl --num_rollouts 10 --num_vms 5 \\
        --use_resource_pool
    python src/run_parallel_rollout.py --mode math --data benchmarks/math_tasks.jsonl --num-rollouts 10
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

_SRC = str(Path(__file__).resolve().parent)
if _SRC not in sys.path:
    sys.path.insert(0, _SRC)  # so that `from src.run_parallel_rollout import ...` finds its neighbours, too

try:
    import click

    from deskroll.conduct.program import run_command
    from deskroll.errors import ConfigError, InputError
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] == "deskroll":
        raise
    sys.exit(
        f"this Python ({sys.executable}) has no module {error.name!r}: run `make setup` in the checkout, then\n"
        f"`source .venv/bin/activate`, and start the script again"
    )

if TYPE_CHECKING:
    from benchmark import Benchmark
    from deskroll.conduct.run import Ended
    from deskroll.rollout.config import RunConfig
    from deskroll.store.results import Result
    from deskroll.types import Task

# What is heavy is imported where it is used, so that --help answers at once.

logger = logging.getLogger("deskroll.run_parallel_rollout")

_DESKTOP_MODE = "osworld"


@dataclass
class ParallelRolloutConfig:
    """What a run is made of; names and defaults are the documents'."""

    num_rollouts: int = 5
    num_vms: int = 3
    env_mode: str = _DESKTOP_MODE
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    agent_config_dict: dict[str, Any] = field(default_factory=dict)
    output_dir: str = "results"
    use_resource_pool: bool = True


class RolloutRecord(TypedDict):
    """What came of one task."""

    task_id: str
    question: str
    answer: str | None
    messages: list[dict[str, Any]]
    """The conversation, as it was sent; images by the names of their files."""
    success: bool | None
    """Whether its score is 1; None where it was not scored."""
    error: str | None
    evaluation_score: float | None
    """None: not scored, which is no 0; `error` says why."""


def run_parallel_rollout(config: ParallelRolloutConfig, benchmark: Benchmark) -> list[RolloutRecord]:
    """Run every task of the benchmark; one record for each, in its order.

    Ctrl-C releases all desktops and is raised again; what was done by then is in the run's folder.
    """
    records, ended = _rollout(config, benchmark)
    if ended.interrupted:
        raise KeyboardInterrupt
    return records


def _rollout(config: ParallelRolloutConfig, benchmark: Benchmark) -> tuple[list[RolloutRecord], Ended]:
    """Run, with what goes wrong told by the names that the documents have."""
    try:
        _check_kinds(config)
        return _run(config, benchmark)
    except InputError as error:
        raise type(error)(_in_own_names(str(error))) from None


def _run(config: ParallelRolloutConfig, benchmark: Benchmark) -> tuple[list[RolloutRecord], Ended]:
    from deskroll.conduct.console import stderr  # noqa: PLC0415
    from deskroll.conduct.log_lines import LogLines  # noqa: PLC0415
    from deskroll.conduct.loops import run_to_end  # noqa: PLC0415
    from deskroll.conduct.run import conduct  # noqa: PLC0415
    from deskroll.models.settings import load_env  # noqa: PLC0415

    load_env(Path.cwd())
    save = _flag(config.agent_config_dict, "save_results", default=True)
    folder = os.fspath(config.output_dir) if save else tempfile.mkdtemp(prefix="deskroll-unsaved-")
    try:
        with LogLines(stderr()):
            run, tasks = _run_config(config, benchmark, folder)
        ended = run_to_end(conduct(run, tasks))
        records = _records(ended, benchmark.tasks)
        with LogLines(stderr()):
            _log_end(records, ended, saved=save)
    finally:
        if not save:
            shutil.rmtree(folder, ignore_errors=True)
    return records, ended


def _log_end(records: list[RolloutRecord], ended: Ended, *, saved: bool) -> None:
    scores = [each["evaluation_score"] for each in records if each["evaluation_score"] is not None]
    logger.info(
        "parallel rollout %s: %d tasks, %d scored, %d succeeded, mean score %s; %s",
        "interrupted" if ended.interrupted else "finished",
        len(records),
        len(scores),
        sum(each["success"] is True for each in records),
        f"{sum(scores) / len(scores):.3f}" if scores else "none",
        f"results in {ended.folder}" if saved else "nothing was saved (save_results is false)",
    )


def _records(ended: Ended, tasks: list[Task]) -> list[RolloutRecord]:
    from deskroll.store import Run  # noqa: PLC0415
    from deskroll.store.results import Result  # noqa: PLC0415
    from deskroll.types import UNJUDGED  # noqa: PLC0415

    run = Run.open(ended.folder)
    outcomes = {episode.key.task: episode for episode in run.outcomes()}
    records = []
    for task in tasks:
        episode = outcomes.get(task.id)
        if episode is None:  # the run was interrupted before its turn came
            records.append(_record(task, None, [], "it did not run"))
            continue
        messages = [json.loads(each) for each in run.attempt(episode.key, episode.attempt).messages()]
        result = Result.of(episode, task.instruction)
        unscored = result.reason if result.score is None else None
        if episode.score == UNJUDGED:
            unscored = f"{UNJUDGED.reason} (evaluate_results is False)"
        records.append(_record(task, result, messages, result.error or unscored))
    return records


def _record(task: Task, result: Result | None, messages: list[dict[str, Any]], error: str | None) -> RolloutRecord:
    return RolloutRecord(
        task_id=task.id,
        question=task.instruction,
        answer=result.answer if result else None,
        messages=messages,
        success=result.success if result else None,
        error=error,
        evaluation_score=result.score if result else None,
    )


# --- the documents' names, one place each ---------------------------------------------------------------------------

_AGENT = {
    "model_name": "model.name",
    "max_turns": "limits.max_turns",
    "max_retries": "agent_options.max_retries",
    "evaluation_metric": "env_options.evaluation_metric",
    "evaluate_results": "evaluate",
}
"""Keys of agent_config_dict, and the settings that they stand for; `save_results` is this script's own."""
_AGENT_DEFAULTS = {"model_name": "gpt-4", "max_turns": 50, "max_retries": 3, "evaluation_metric": "exact_match"}
_DESKTOPS = ("provider_name", "path_to_vm", "headless", "region")
"""Keys of env_kwargs that say where desktops come from; all others are options of the environment itself."""
_DESKTOP_DEFAULTS = {"enable_recording": True}


def _run_config(config: ParallelRolloutConfig, benchmark: Benchmark, output_dir: str) -> tuple[RunConfig, list[Task]]:
    """The run that the documents' names describe, checked to the last option."""
    from deskroll.config import check  # noqa: PLC0415
    from deskroll.rollout.config import RunConfig  # noqa: PLC0415
    from deskroll.rollout.loading import check_run  # noqa: PLC0415

    settings: dict[str, Any] = {
        "tasks": str(benchmark.data_path),
        "env": config.env_mode,
        "num_rollouts": config.num_rollouts,
        "output_dir": output_dir,
        "env_options": {},
    }
    if config.env_mode == _DESKTOP_MODE:
        settings |= _desktops(config)
    elif desktops := [name for name in config.env_kwargs if name in _DESKTOPS]:
        raise ConfigError(f"env_kwargs: {desktops[0]} belongs to desktops, and env_mode {config.env_mode!r} has none")
    settings["env_options"] |= {name: value for name, value in config.env_kwargs.items() if name not in _DESKTOPS}
    for name, value in _agent(config).items():
        _put(settings, _AGENT[name], value)
    return check_run(check(RunConfig, settings, "ParallelRolloutConfig"), list(benchmark.tasks))


_OWN_NAMES = (
    (r"--set env_options\.(\w+)=", r"env_kwargs: \1="),
    (r"env_options \(env ", "env_kwargs (env_mode "),
    (r"env_options", "env_kwargs"),
    (r"agent_options(?: \(agent \w+\))?", "agent_config_dict"),
    (r"provider_options\.", "env_kwargs."),
    (r"limits\.max_turns", "agent_config_dict.max_turns"),
    (r"model\.name", "agent_config_dict.model_name"),
    (r"^ParallelRolloutConfig: env:", "ParallelRolloutConfig: env_mode:"),
    (r"^ParallelRolloutConfig: provider:", "ParallelRolloutConfig: env_kwargs.provider_name:"),
)
"""How deskroll names what is set, and how the documents do."""


def _in_own_names(text: str) -> str:
    for theirs, own in _OWN_NAMES:
        text = re.sub(theirs, own, text, flags=re.MULTILINE)
    return text


def _check_kinds(config: ParallelRolloutConfig) -> None:
    """Refuse values that are of no use at all, as a plain dataclass does not; numbers are checked with the run."""
    kinds: dict[str, tuple[type | tuple[type, ...], str]] = {
        "env_mode": (str, "a text"),
        "env_kwargs": (Mapping, "a dict"),
        "agent_config_dict": (Mapping, "a dict"),
        "output_dir": ((str, os.PathLike), "the path of a folder"),
        "use_resource_pool": (bool, "True or False"),
    }
    for name, (kind, wanted) in kinds.items():
        value = getattr(config, name)
        if not isinstance(value, kind) or value == "":
            plain = value is None or isinstance(value, str | int | float)  # others may hold a password
            shown = f"{value!r:.80}" if plain else f"a {type(value).__name__}"
            raise ConfigError(f"ParallelRolloutConfig: {name} is {shown}; it must be {wanted}")
    for name in ("env_kwargs", "agent_config_dict"):
        if odd := [key for key in getattr(config, name) if not isinstance(key, str)]:
            raise ConfigError(f"ParallelRolloutConfig: {name} has the key {odd[0]!r:.80}; keys are texts")


def _agent(config: ParallelRolloutConfig) -> dict[str, Any]:
    """agent_config_dict with its defaults, checked."""
    given = {name: value for name, value in config.agent_config_dict.items() if name != "save_results"}
    if unknown := [name for name in given if name not in _AGENT]:
        raise ConfigError(f"agent_config_dict has no key {unknown[0]!r}; known: {', '.join(_AGENT)}, save_results")
    _flag(given, "evaluate_results", default=True)
    metric = "evaluation_metric"
    if metric in config.env_kwargs:  # an option of environments, too
        if given.get(metric, config.env_kwargs[metric]) != config.env_kwargs[metric]:
            raise ConfigError(f"{metric} is set twice, in env_kwargs and in agent_config_dict, and not alike")
        given[metric] = config.env_kwargs[metric]
    return {**_AGENT_DEFAULTS, **given}


def _desktops(config: ParallelRolloutConfig) -> dict[str, Any]:
    """Where desktops come from, and how many there are."""
    kwargs = config.env_kwargs
    provider = str(kwargs.get("provider_name") or "auto")
    options = {name: str(kwargs[name]) for name in ("path_to_vm", "region") if kwargs.get(name)}
    if "region" in options and provider in ("auto", "local", "sim"):
        raise ConfigError(f"env_kwargs: region belongs to clouds, and provider_name {provider!r} is none; leave it out")
    if "headless" in kwargs and not _flag(kwargs, "headless", default=False):
        logger.info(
            "headless is false: embedded desktops have no window on this machine; deskroll desktops shot shows one"
        )
    # Without the pool each rollout has a desktop of its own.
    num_vms = config.num_vms if config.use_resource_pool else config.num_rollouts
    return {
        "provider": provider,
        "provider_options": options,
        "num_vms": num_vms,
        "env_options": dict(_DESKTOP_DEFAULTS),
    }


def _flag(given: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = given.get(name, default)
    if not isinstance(value, bool):
        raise ConfigError(f"{name} is {value!r}; allowed: True, False")
    return value


def _put(settings: dict[str, Any], path: str, value: object) -> None:
    *parents, last = path.split(".")
    for name in parents:
        settings = settings.setdefault(name, {})
    settings[last] = value


# --- the command line ------------------------------------------------------------------------------------------------


@click.command(
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda name: name.replace("_", "-"),
    },
    epilog="\b\nExamples:\n"
    "  python src/run_parallel_rollout.py --data_path data/osworld_examples.jsonl --num_rollouts 10 --num_vms 5 \\\n"
    "      --use_resource_pool\n"
    "  python src/run_parallel_rollout.py --mode math --data benchmarks/math_tasks.jsonl --num-rollouts 10",
)
@click.option("--data-path", "--data", "data_path", required=True, help="The tasks: JSON or JSONL.")
@click.option(
    "--env-mode",
    "--mode",
    "env_mode",
    default=_DESKTOP_MODE,
    show_default=True,
    help="osworld, math, py, web, rag, or a plug-in.",
)
@click.option("--num-rollouts", default=5, show_default=True, help="Rollouts at a time.")
@click.option("--num-vms", type=int, help="Desktops in the pool (osworld).  [default: 3]")
@click.option(
    "--use-resource-pool",
    "--use-vm-pool",
    "use_resource_pool",
    is_flag=True,
    help="Share a pool of desktops; without it each rollout has one of its own.",
)
@click.option("--output-dir", default="results", show_default=True, help="Where results, trajectories and videos go.")
@click.option(
    "--model",
    "model_name",
    default="gpt-4.1-2025-04-14",
    show_default=True,
    help="The model; scripted answers from a script.",
)
@click.option("--max-turns", default=100, show_default=True, help="Turns of the agent in an episode.")
@click.option("--max-retries", default=3, show_default=True, help="Replies in a row that the model may mend.")
@click.option("--evaluation-metric", default="exact_match", show_default=True, help="How answers are compared.")
@click.option("--path-to-vm", help="The virtual machine's file.")
@click.option("--provider-name", help="Where desktops come from.  [default: auto]")
@click.option("--action-space", help="computer_13, ...  [default: computer_13]")
@click.option("--observation-type", help="screenshot, a11y_tree, ...  [default: screenshot_a11y_tree]")
@click.option("--screen-width", type=int, help="In pixels.  [default: 1920]")
@click.option("--screen-height", type=int, help="In pixels.  [default: 1080]")
@click.option("--headless", is_flag=True, default=None, help="Show no window of the desktops.")
@click.option("--snapshot-name", help="The state that desktops start from.")
@click.option("--client-password", help="The password of the desktops' user.  [default: password]")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON on standard output.")
def _command(
    *,
    as_json: bool,
    data_path: str,
    env_mode: str,
    num_rollouts: int,
    num_vms: int | None,
    use_resource_pool: bool,
    output_dir: str,
    **rest: Any,
) -> None:
    """Run an agent on every task of a file, in parallel, and score every attempt.

    Flags may be written with dashes or underscores. Keys come from the environment, or from a file .env.
    """
    from benchmark import Benchmark  # noqa: PLC0415

    agent = {name: rest.pop(name) for name in ("model_name", "max_turns", "max_retries", "evaluation_metric")}
    if env_mode != _DESKTOP_MODE and use_resource_pool:
        raise InputError(f"--use-resource-pool is for osworld: mode {env_mode!r} needs no desktops; leave it out")
    if num_vms is not None and not use_resource_pool:
        why = f"mode {env_mode} needs no desktops" if env_mode != _DESKTOP_MODE else "each rollout has one of its own"
        click.echo(f"--num-vms {num_vms} counts only with --use-resource-pool: {why}", err=True)
    config = ParallelRolloutConfig(
        num_rollouts=num_rollouts,
        num_vms=3 if num_vms is None else num_vms,
        env_mode=env_mode,
        env_kwargs={name: value for name, value in rest.items() if value is not None},
        agent_config_dict=agent,
        output_dir=output_dir,
        use_resource_pool=use_resource_pool,
    )
    ended = _rollout(config, Benchmark(data_path=data_path))[1]
    ended.tell(as_json=as_json)
    raise click.exceptions.Exit(ended.code)


if __name__ == "__main__":
    run_command(_command)
