"""`deskroll run --dry-run`: the plan, what it needs, how long it may take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
from rich.console import Console

from deskroll.cli.run_view import plan_table
from deskroll.desktops.providers import make_provider
from deskroll.errors import DeskrollError
from deskroll.models.scripted import Script
from deskroll.rollout.config import RunConfig
from deskroll.rollout.loading import PHASE, SCRIPTED, desktop_specs, prepare_envs
from deskroll.rollout.plan import left_to_do
from deskroll.rollout.sizing import Sizing, size_up
from deskroll.store import Run, find_run
from deskroll.types import Phase, Task

_ASSUMED_S = 60.0


def show_plan(config: RunConfig, tasks: Sequence[Task], root: str, *, as_json: bool) -> None:
    """Print what would be run, what it needs and how long it may take."""
    if config.model.name.startswith(SCRIPTED):
        Script.load(Path(config.model.name.removeprefix(SCRIPTED)))  # what is wrong with it is told now
    prepare_envs(config, tasks)
    sizing = _size(config, tasks)
    left = left_to_do(Run.open(root).index, PHASE, 0, tasks, config.group_size) if root else None
    if as_json:
        # What a start would run: of a new run, all.
        plan = {**msgspec.to_builtins(sizing), "left_to_do": sizing.episodes if left is None else left}
        click.echo(msgspec.json.encode(plan))
        return
    Console().print(plan_table(config, sizing, left))


def _size(config: RunConfig, tasks: Sequence[Task]) -> Sizing:
    desktops = bool(desktop_specs(config, tasks))
    capabilities = None
    if desktops and not config.pool:
        capabilities = make_provider(config.provider, config.provider_options).capabilities
    seconds, origin = _task_seconds(config)
    return size_up(
        config, tasks, desktops=desktops, capabilities=capabilities, task_seconds=seconds, task_seconds_from=origin
    )


def _task_seconds(config: RunConfig) -> tuple[float, str]:
    """How long an episode takes: as in the last run in the same place, if there is one of the same environment."""
    try:
        run = Run.open(find_run(config.output_dir, newest=True))
        episodes = run.outcomes()
    except DeskrollError:  # no run, or none that can be read: nothing is known
        return _ASSUMED_S, "assumed, for there is no earlier run"
    if not episodes or run.info.config.get("env") != config.env:
        return _ASSUMED_S, "assumed, for no earlier run is like it"
    waits = (Phase.PERMIT, Phase.DESKTOP)
    busy = [sum(spent for phase, spent in each.seconds.items() if phase not in waits) for each in episodes]
    return sum(busy) / len(busy), f"as in run {run.info.run_id}"
