"""Sizing: what a planned run will need and take, before it starts. Pure arithmetic over what is known."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from deskroll.desktops.base import Capabilities
from deskroll.report.words import counted
from deskroll.rollout.config import RunConfig
from deskroll.rollout.lacking import lacking_programs
from deskroll.rollout.preparing import unjudged
from deskroll.types import Record, Task

_WORKER_MB = 60
_EPISODE_MB = 0.15
_DESKTOP_MB = 250
"""What a local desktop with a program or two takes, about."""


class Sizing(Record, frozen=True, omit_defaults=False):
    """The plan in figures."""

    tasks: int
    episodes: int
    left_to_do: int
    """Those that a start would run: of a new run, all."""
    domains: dict[str, int]
    num_rollouts: int
    num_vms: int
    """0 where no task needs a desktop."""
    ratio: float
    task_seconds: float
    """Time of one episode on its desktop; measured in this run so far, in an earlier one, or assumed."""
    task_seconds_from: str
    expected_s: float
    resource_timeout: float
    """The documents' rule: task_duration x num_rollouts / num_vms."""
    memory_mb: float
    available_mb: float
    advice: tuple[str, ...]


def size_up(
    config: RunConfig,
    tasks: Sequence[Task],
    *,
    desktops: bool,
    capabilities: Capabilities | None,
    task_seconds: float,
    task_seconds_from: str,
    left: int | None = None,
) -> Sizing:
    """Work out what the run will need and take; `left`: how many episodes of it are not done yet."""
    episodes = len(tasks) * config.group_size
    left = episodes if left is None else left
    in_flight = min(config.num_rollouts, left)
    num_vms = config.num_vms if desktops else 0
    workers = config.workers or _cores()
    reset = capabilities.reset_s if capabilities else 0.0
    boot = capabilities.boot_s if capabilities else 0.0
    parallel = min(in_flight, num_vms) if desktops else in_flight
    on_desktop = task_seconds + (reset if in_flight >= num_vms else 0.0)
    expected = left / max(parallel, 1) * on_desktop + (boot if left else 0.0)
    ours = config.provider == "local"
    memory = workers * _WORKER_MB + in_flight * _EPISODE_MB + (num_vms * _DESKTOP_MB if desktops and ours else 0)
    available = _available_mb()
    ratio = config.num_rollouts / num_vms if num_vms else 0.0
    return Sizing(
        tasks=len(tasks),
        episodes=episodes,
        left_to_do=left,
        domains=dict(Counter(task.domain or "(none)" for task in tasks).most_common()),
        num_rollouts=config.num_rollouts,
        num_vms=num_vms,
        ratio=ratio,
        task_seconds=task_seconds,
        task_seconds_from=task_seconds_from,
        expected_s=expected,
        resource_timeout=task_seconds * max(1.0, ratio),
        memory_mb=memory,
        available_mb=available,
        advice=tuple(_advice(config, tasks, left, ratio, memory, available, capabilities)),
    )


def _advice(
    config: RunConfig,
    tasks: Sequence[Task],
    episodes: int,
    ratio: float,
    memory: float,
    available: float,
    capabilities: Capabilities | None,
) -> list[str]:
    shown = counted(episodes, "episode")
    lines = list(filter(None, (unjudged(config, tasks), lacking_programs(config, tasks))))
    if ratio:
        lines.append(_ratio_advice(ratio))
        if config.num_vms > episodes:
            lines.append(f"num_vms is {config.num_vms}, for {shown}: fewer desktops are enough")
    if config.num_rollouts > episodes and config.num_rollouts != RunConfig.model_fields["num_rollouts"].default:
        lines.append(f"num_rollouts is {config.num_rollouts}, for {shown}: the rest is never used")
    if memory > available > 0:
        lines.append(f"memory: about {memory / 1024:.1f} GB are needed and {available / 1024:.1f} GB are free")
    most = capabilities.most if capabilities else None
    if ratio and most is not None and config.num_vms > most:
        lines.append(f"num_vms is {config.num_vms}; this machine has room for about {most}")
    return lines


def _ratio_advice(ratio: float) -> str:
    shape = f"{ratio:.1f} rollouts a desktop"
    if ratio < 1:
        return f"{shape}: some desktops are never used; raise num_rollouts to num_vms at least"
    if ratio == 1:
        return f"{shape}: nobody waits for a desktop, and desktops wait while models think (2 to 3 is balanced)"
    if ratio < 2:
        return f"{shape}: few wait for a desktop, and desktops wait while models think (2 to 3 is balanced)"
    if ratio <= 3:
        return f"{shape}: balanced"
    if ratio <= 10:
        return f"{shape}: desktops are always in use, and episodes wait for them (2 to 3 is balanced)"
    return f"{shape}: more than 10 gains nothing; raise num_vms or lower num_rollouts"


def _cores() -> int:
    return os.cpu_count() or 1


def _available_mb() -> float:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("MemAvailable")), 0.0)
