"""`deskroll train --dry-run`: phases, episodes, desktops, memory, and what will limit."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from deskroll.cli.options import print_json
from deskroll.conduct.times import span
from deskroll.desktops.providers import make_provider
from deskroll.host.console import PlainConsole
from deskroll.report.words import counted
from deskroll.rollout.preparing import desktops_wanted, prepare_envs
from deskroll.train.preparing import Prepared
from deskroll.train.sizing import TrainSizing, size_training


def show_plan(prepared: Prepared, *, as_json: bool) -> None:
    """Print what would be done, what it needs and how long it may take."""
    for tasks, folder in ((prepared.train_tasks, prepared.train_files), (prepared.eval_tasks, prepared.eval_files)):
        prepare_envs(prepared.run, tasks, prepared.folder_of(folder))
    run, capabilities = prepared.run, None
    if desktops_wanted(run, [*prepared.train_tasks, *prepared.eval_tasks]) and not run.pool:
        capabilities = make_provider(run.provider, run.provider_options).capabilities
    sizing = size_training(prepared, capabilities)
    if as_json:
        print_json(sizing)
        return
    PlainConsole().print(_plan(prepared, sizing))


def _plan(prepared: Prepared, sizing: TrainSizing) -> Group:
    config, run = prepared.config, prepared.run
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for phase in sizing.phases:
        times = f"{phase.rounds:,} x " if phase.rounds > 1 and phase.phase != "train" else ""
        each = f"{times}{counted(phase.tasks, 'task')}"
        if phase.phase == "train":
            each = (
                f"{counted(phase.rounds, 'step')} of {counted(config.groups_per_batch, 'group')} of {config.group_size}"
            )
            each += f", from {counted(phase.tasks, 'task')}"
        least = "at least " if phase.phase == "train" else ""
        table.add_row(phase.phase, Text(f"{each}: {least}{counted(phase.episodes, 'episode')}"))
    table.add_row("env, agent", Text(f"{run.env}, {run.agent}"))
    where = f"served here, by {counted(prepared.models.replicas, 'server')}" if prepared.models else run.model.base_url
    table.add_row("model", Text(", ".join(filter(None, (config.model_name, where)))))
    if config.trains:
        table.add_row("trainer", Text(f"{config.trainer}, {_trained(config.lora_rank)}"))
    desktops = f"{sizing.num_vms} of provider {sizing.provider}" if sizing.num_vms else "none needed"
    table.add_row("desktops", Text(desktops if not run.pool else f"of the pool at {run.pool}"))
    groups = counted(sizing.groups_in_flight, "group")
    table.add_row("in flight", f"{groups}, {counted(sizing.num_rollouts, 'episode')}; no more in any phase")
    if config.trains:
        table.add_row(
            "limit", Text(f"{counted(sizing.training_at_once, 'episode')} of training at a time: {sizing.limit}")
        )
    table.add_row(
        "time", f"about {span(sizing.expected_s)} of rollouts, at {sizing.task_seconds:.0f} s an episode (assumed)"
    )
    table.add_row("memory", f"about {sizing.memory_mb / 1024:.1f} GB of {sizing.available_mb / 1024:.1f} GB free here")
    table.add_row("folder", Text(f"{sizing.folder}{', which is resumed' if sizing.resumed else ''}"))
    advice = [Text(f"- {each}") for each in sizing.advice]
    return Group(table, Text(""), *advice, Text("nothing was run (--dry-run)", style="dim"))


def _trained(rank: int) -> str:
    return f"an adapter of rank {rank}" if rank else "all weights"
