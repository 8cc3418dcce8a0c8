"""`deskroll run --dry-run`: the plan, what it needs, how long it may take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deskroll.agents import NO_MODEL, agent_kind, agents_model
from deskroll.cli.options import print_json
from deskroll.conduct.view import plan_table
from deskroll.desktops.providers import make_provider
from deskroll.errors import DeskrollError
from deskroll.host.console import PlainConsole
from deskroll.rollout.config import RunConfig
from deskroll.rollout.loading import PHASE
from deskroll.rollout.plan import left_to_do
from deskroll.rollout.preparing import desktops_wanted, prepare_envs
from deskroll.rollout.retry import is_infrastructure
from deskroll.rollout.sizing import Sizing, size_up
from deskroll.store import Run, find_run
from deskroll.tasks import tasks_folder
from deskroll.types import Stage, Task

_ASSUMED_S = 60.0


def show_plan(config: RunConfig, tasks: Sequence[Task], root: str, *, as_json: bool) -> None:
    """Print what would be run, what it needs and how long it may take."""
    if (agent := agent_kind(config.agent)).protocol != NO_MODEL:  # what is wrong with its settings is told now
        agents_model(agent, config.model).check_settings(config.model, "model")
    prepare_envs(config, tasks, tasks_folder(config.tasks))
    sizing = _size(config, tasks, root)
    if as_json:
        print_json(sizing)
        return
    PlainConsole().print(plan_table(config, sizing, resumed=bool(root)))


def _size(config: RunConfig, tasks: Sequence[Task], root: str) -> Sizing:
    desktops = bool(desktops_wanted(config, tasks))
    capabilities = None
    if desktops and not config.pool:
        capabilities = make_provider(config.provider, config.provider_options).capabilities
    begun = Run.open(root) if root else None
    seconds, origin = _task_seconds(config, begun)
    left = sum(left_to_do(begun.index, PHASE, 0, tasks, config.group_size).values()) if begun else None
    return size_up(
        config, tasks, desktops=desktops, capabilities=capabilities, task_seconds=seconds, task_seconds_from=origin,
        left=left,
    )  # fmt: skip


def _task_seconds(config: RunConfig, begun: Run | None) -> tuple[float, str]:
    """How long an episode takes: as in this run so far, or as in the last one in the same place, if it is alike."""
    try:
        run = begun or Run.open(find_run(config.output_dir, newest=True))
        episodes = [each for each in run.outcomes() if not is_infrastructure(each)]
    except DeskrollError:  # no run, or none that can be read: nothing is known
        return _ASSUMED_S, "assumed, for there is no earlier run"
    which = "this run" if begun else "the last run"
    if not _alike(run.info.config, config):
        return _ASSUMED_S, f"assumed, for {which} has another environment, agent or model"
    if not episodes:
        return _ASSUMED_S, f"assumed, for no episode of {which} has come to its end"
    waits = (Stage.PERMIT, Stage.DESKTOP)
    busy = [sum(spent for stage, spent in each.seconds.items() if stage not in waits) for each in episodes]
    return sum(busy) / len(busy), f"as in run {run.info.run_id}"


def _alike(earlier: Mapping[str, Any], config: RunConfig) -> bool:
    """Whether what took so long then is what would be run now."""
    model = earlier.get("model")
    name = model.get("name") if isinstance(model, Mapping) else None
    return (earlier.get("env"), earlier.get("agent"), name) == (config.env, config.agent, config.model.name)
