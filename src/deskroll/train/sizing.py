"""What a training run will need and take, before it starts. Pure arithmetic over what is known."""

from __future__ import annotations

from deskroll.desktops.base import Capabilities
from deskroll.report.words import counted
from deskroll.rollout.preparing import desktops_wanted
from deskroll.rollout.sizing import Sizing, size_up
from deskroll.train.preparing import Prepared
from deskroll.types import Record

_ASSUMED_S = 60.0
_SIMULATED = "sim"


class PhaseSize(Record, frozen=True, omit_defaults=False):
    """What one phase comes to."""

    phase: str
    tasks: int
    rounds: int
    """How often: evaluations; of training, the steps."""
    groups: int
    """Of training: at least so many, since groups without signal are no part of a batch."""
    episodes: int


class TrainSizing(Record, frozen=True, omit_defaults=False):
    """The plan in figures."""

    phases: tuple[PhaseSize, ...]
    groups_in_flight: int
    num_rollouts: int
    num_vms: int
    """0 where no task needs a desktop."""
    provider: str
    training_at_once: int
    """Episodes of training that can be in flight together, by whatever limits them."""
    limit: str
    """What that is."""
    expected_s: float
    """Generation alone, at `task_seconds` an episode."""
    task_seconds: float
    memory_mb: float
    """Without model servers and the trainer."""
    available_mb: float
    folder: str
    resumed: bool
    advice: tuple[str, ...]


def size_training(prepared: Prepared, capabilities: Capabilities | None) -> TrainSizing:
    """Work it out; `capabilities`: of the provider, where desktops are its."""
    config, run = prepared.config, prepared.run
    tasks = [*prepared.train_tasks, *prepared.eval_tasks]
    desktops = bool(desktops_wanted(run, tasks))
    phases = tuple(_phases(prepared))
    whole = size_up(
        run, tasks, desktops=desktops, capabilities=capabilities, task_seconds=_ASSUMED_S, task_seconds_from="assumed",
        left=sum(phase.episodes for phase in phases),
    )  # fmt: skip
    limits = _limits(prepared, desktops=desktops)
    at_once, limit = min(limits, key=lambda each: each[0])
    evaluated = sum(phase.episodes for phase in phases if phase.phase != "train")
    trained = sum(phase.episodes for phase in phases if phase.phase == "train")
    eval_groups = config.max_concurrent_rollouts * config.eval_samples
    eval_at_once = min(eval_groups, run.num_rollouts, run.num_vms if desktops else eval_groups)
    return TrainSizing(
        phases=phases,
        groups_in_flight=config.max_concurrent_rollouts,
        num_rollouts=run.num_rollouts,
        num_vms=whole.num_vms,
        provider=run.provider,
        training_at_once=at_once,
        limit=limit,
        expected_s=(trained / at_once + evaluated / eval_at_once) * _ASSUMED_S,
        task_seconds=_ASSUMED_S,
        memory_mb=whole.memory_mb,
        available_mb=whole.available_mb,
        folder=prepared.folder,
        resumed=prepared.resumed,
        advice=tuple(_advice(prepared, whole, at_once, capabilities)),
    )


def evaluations(steps: int, every: int) -> int:
    """How many there are after steps: every so many, and at the end."""
    return 0 if every == 0 or steps == 0 else -(-steps // every)


def _phases(prepared: Prepared) -> list[PhaseSize]:
    config, count = prepared.config, len(prepared.eval_tasks)
    found = []
    if count and not config.skip_baseline:
        found.append(PhaseSize("baseline", count, 1, count, count * config.eval_samples))
    if config.trains:
        groups = config.steps * config.groups_per_batch
        found.append(PhaseSize("train", len(prepared.train_tasks), config.steps, groups, groups * config.group_size))
        if count and (rounds := evaluations(config.steps, config.eval_every)):
            found.append(PhaseSize("eval", count, rounds, rounds * count, rounds * count * config.eval_samples))
    return found


def _limits(prepared: Prepared, *, desktops: bool) -> list[tuple[int, str]]:
    """Episodes of training at a time, by each thing that limits them; the first of equals is told."""
    config, run = prepared.config, prepared.run
    ahead = ((config.max_steps_off_policy or 0) + 1) * config.groups_per_batch
    behind = "none" if config.max_steps_off_policy is None else config.max_steps_off_policy
    size, pace = f"of {config.group_size}", f"groups_per_batch {config.groups_per_batch}, max_steps_off_policy {behind}"
    found = [
        (ahead * config.group_size, f"{pace}: {counted(ahead, 'group')} {size}"),
        (config.max_concurrent_rollouts * config.group_size,
         f"max_concurrent_rollouts: {counted(config.max_concurrent_rollouts, 'group')} {size}"),
        (run.num_rollouts, f"num_rollouts: {counted(run.num_rollouts, 'episode')}"),
    ]  # fmt: skip
    return [(run.num_vms, f"num_vms: {counted(run.num_vms, 'desktop')}"), *found] if desktops else found


def _advice(prepared: Prepared, whole: Sizing, at_once: int, capabilities: Capabilities | None) -> list[str]:
    config, lines = prepared.config, []
    if config.trains and whole.num_vms > at_once:
        lines.append(
            f"{whole.num_vms - at_once} of {whole.num_vms} desktops have nothing to do while training: raise "
            "groups_per_batch or max_steps_off_policy, or lower num_vms"
        )
    if config.trains and config.groups_per_batch > len(prepared.train_tasks):
        lines.append(
            f"a batch has {config.groups_per_batch} groups, of {len(prepared.train_tasks)} tasks: some come twice"
        )
    if whole.memory_mb > whole.available_mb > 0:
        need, free = whole.memory_mb / 1024, whole.available_mb / 1024
        lines.append(f"memory: about {need:.1f} GB are needed and {free:.1f} GB are free; lower num_vms")
    if capabilities and capabilities.most is not None and whole.num_vms > capabilities.most:
        lines.append(f"num_vms is {whole.num_vms}; this machine has room for about {capabilities.most}")
    if prepared.run.provider == _SIMULATED and any(task.evaluator for task in prepared.train_tasks):
        lines.append(f"desktops of provider {_SIMULATED} are simulated: what is judged by what is on one has no score")
    if prepared.models is not None:
        lines.append("the memory of model servers and of the trainer is not counted")
    return lines
