"""A run on the terminal: progress while it goes on, its status from another terminal, and the plan before it starts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deskroll.agents import NO_MODEL, agent_kind, agents_model
from deskroll.conduct.times import span
from deskroll.conduct.train_view import add_training, train_head, train_line
from deskroll.errors import plain
from deskroll.report.intervals import wilson
from deskroll.report.words import counted
from deskroll.rollout.config import RunConfig
from deskroll.rollout.service_status import ServiceStatus
from deskroll.rollout.sizing import Sizing
from deskroll.rollout.status import RunStatus
from deskroll.store.names import NAMED_BY, name_of
from deskroll.types import Stage

_log = logging.getLogger(__name__)
_REFRESH_S = 0.5
_STAGES = {
    Stage.PERMIT: "waits for a permit",
    Stage.DESKTOP: "waits for a desktop",
    Stage.MODEL: "agent decides",
}
_WAITING = {"permit": "wait for a permit", "desktop": "wait for a desktop", "model": "decide"}
"""Stages whose names alone would mislead."""
_UNHEARD = "not heard of yet"
"""Attempts that were ordered, and whose workers have not told of them yet."""
_MOST_BATCHES = 3
"""Batches and consumers that are shown."""
_LINE_S = 10.0
"""Between lines where there is no terminal."""


class Progress:
    """Shows a run while it goes on: live on a terminal, else a line now and then."""

    def __init__(self, console: Console, status: Callable[[], RunStatus], *, lines: bool = True) -> None:
        """`lines`: whether it is told now and then where there is no terminal."""
        self._console = console
        self._status = status
        self._shown = console.is_terminal or lines

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """For the length of the block."""
        if not self._shown:
            yield
            return
        task = asyncio.create_task(self._live() if self._console.is_terminal else self._lines())
        task.add_done_callback(_tell_death)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if self._console.is_terminal:
                self._console.print(progress(self._status()))
            else:
                self._tell()

    async def _live(self) -> None:
        with Live(progress(self._status()), console=self._console, auto_refresh=False, transient=True) as live:
            while True:
                await asyncio.sleep(_REFRESH_S)
                live.update(progress(self._status()), refresh=True)

    async def _lines(self) -> None:
        while True:
            await asyncio.sleep(_LINE_S)
            self._tell()

    def _tell(self) -> None:
        self._console.print(line(self._status()), highlight=False, soft_wrap=True)


def _tell_death(display: asyncio.Task[None]) -> None:
    """Say at once why nothing is shown any more; the run needs no display, and goes on."""
    if not display.cancelled() and (error := display.exception()) is not None:
        _log.warning("no progress is shown any more: %s: %s; the run goes on", type(error).__name__, plain(str(error)))


def line(status: RunStatus) -> str:
    """How it stands, in one line."""
    if status.training is not None:
        parts = [train_line(status, status.training)]
    else:
        parts = [
            _done(status),
            f"success {success(status)}" if status.standing.scored else "",
            f"{status.in_flight} in flight",
            f"limit: {status.limit}",
        ]
    parts.append(status.used_up)
    parts.extend(f"! {each}" for each in status.attention[:3])
    return " | ".join(each for each in parts if each)


def _done(status: RunStatus) -> str:
    standing = status.standing
    if not standing.planned:
        return _unplanned(status)
    if not standing.failed:
        return f"{standing.done}/{standing.planned} done"
    return f"{standing.done}/{standing.planned} ended, {standing.failed} unscored ({_counts(standing.unscored)})"


def _unplanned(status: RunStatus) -> str:
    """What it does before anything is planned; a service may do so for days."""
    service = status.service
    if service is None or service.running or not service.begun:
        return "starting"
    return "nothing is left to do" if service.draining else "waits for a batch"


def _colour(status: RunStatus) -> str:
    """Of the bar: green is for what was done, not for what only ended."""
    standing = status.standing
    if not standing.failed:
        return "green"
    return "yellow" if standing.scored else "red"


def success(status: RunStatus) -> str:
    """The running success rate with its interval."""
    standing = status.standing
    if not standing.scored:
        return ""
    found = wilson(standing.successes, standing.scored)
    # Samples of one task are no independent trials; what they say together, the report works out.
    between = f" (95%: {found.low:.0%} to {found.high:.0%})" if found and status.samples == 1 else ""
    return f"{standing.successes / standing.scored:.1%} of {standing.scored} scored{between}"


def progress(status: RunStatus) -> Group:
    """The live picture: what is done, how well, who is busy with what, what limits, what is stuck."""
    standing, training = status.standing, status.training
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    if training is None:
        table.add_row("success", success(status) or _no_score(status))
    else:
        add_training(table, training, status.at)
    if standing.unscored:
        table.add_row("unscored", Text(_counts(standing.unscored), style="yellow" if standing.failed else ""))
    if standing.retried:
        table.add_row("tried again", _counts(standing.retried))
    table.add_row("episodes", Text(_episodes(status)))
    if status.pool is not None and status.in_flight:
        table.add_row("desktops", Text(_counts({str(k): v for k, v in status.pool.states.items() if v}) or "none yet"))
    if standing.tokens:
        table.add_row("model", Text(_usage(status)))
    table.add_row("limit", Text(status.limit))
    if status.service is not None:
        _add_service(table, status.service, status.at)
    parts: list[RenderableType] = [
        train_head(status, training) if training and training.steps else _head(status),
        table,
    ]
    parts.extend(Text(f"! {each}", style="bold red") for each in status.attention[:5])
    if status.stopping:
        parts.append(Text(f"{status.used_up or 'stopping'}: nothing more is started", style="yellow"))
    return Group(*parts)


def _head(status: RunStatus) -> Table:
    """The bar: episodes of those that are planned."""
    standing = status.standing
    head = Table.grid(padding=(0, 1))
    head.add_row(
        ProgressBar(
            total=max(standing.planned, 1),
            completed=standing.done,
            width=40,
            complete_style=_colour(status),
            finished_style=_colour(status),
        ),
        Text(f"{standing.done}/{standing.planned}" if standing.planned else _unplanned(status), style="bold"),
        Text(_times(status, status.at - status.started_at), style="dim"),
    )
    return head


def _add_service(table: Table, service: ServiceStatus, now: float) -> None:
    """Rows of a service: its batches, the last bad one, the next poll."""
    counts = {"done": service.done, "running": len(service.running), "waiting": service.waiting, "bad": service.bad}
    if service.passed:
        counts["passed over"] = service.passed
    table.add_row("batches", Text(", ".join(f"{count:,} {name}" for name, count in counts.items())))
    for each in service.running[:_MOST_BATCHES]:
        table.add_row("", Text(plain(f"{each.id}: {each.left:,} of {counted(each.tasks, 'task')} left")))
    for bad in service.last_bad[:_MOST_BATCHES]:
        said = bad.error if bad.id in bad.error else f"{bad.id}: {bad.error}"
        table.add_row("", Text(plain(f"bad: {said}", 300), style="yellow"))
    polled = "" if service.next_poll is None else f"; next poll in {span(max(0.0, service.next_poll - now))}"
    table.add_row("source", Text(plain(service.source) + ("; draining" if service.draining else polled)))
    if service.trouble:
        table.add_row("", Text(plain(service.trouble, 300), style="yellow"))
    if service.version:
        table.add_row("weights", Text(f"version {service.version}"))
    for consumer in service.consumers[:_MOST_BATCHES]:
        table.add_row("consumer", Text(f"{consumer.name}: {counted(consumer.done, 'group')} done"))


def status_view(status: RunStatus, height: int = 40) -> Group:
    """All of a live run, for another terminal: the progress, and what each episode does, longest first."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("EPISODE", "STAGE", "SINCE", "TURN", "DESKTOP"):
        table.add_column(name, no_wrap=True, justify="right" if name in ("SINCE", "TURN") else "left")
    room = max(3, height - 22)
    for each in status.activities[:room]:
        waited = each.seconds
        table.add_row(
            Text(name_of(each.key, each.attempt)),
            _STAGES.get(each.stage, str(each.stage)),
            span(waited),
            str(each.turn),
            each.desktop or "-",
        )
    more = sum(status.stages.values()) - min(room, len(status.activities))
    unheard = status.in_flight - sum(status.stages.values())
    workers = Table.grid(padding=(0, 2))
    for worker in status.workers:
        workers.add_row(
            Text(worker.name, style="dim"), counted(worker.running, "episode"), f"{worker.rss_mb:.0f} MB",
            f"heard {span(worker.silent_s)} ago",
        )  # fmt: skip
    for load in status.endpoints:
        answered = "no answer yet" if load.since_answer_s is None else f"last answer {span(load.since_answer_s)} ago"
        oldest = f", the oldest for {span(load.oldest_s)}" if load.in_flight else ""
        workers.add_row(
            Text(load.url, style="dim", overflow="fold"),
            f"{load.in_flight}{'' if load.limit is None else f' of {load.limit}'} open{oldest}",
            ", ".join(filter(None, (load.state, f"version {load.version}" if load.version else "", answered))),
            f"{load.failures} of {load.calls} failed",
        )
    head = Text(f"run {status.run_id}  pid {status.pid}  start {status.epoch}  {status.folder}", style="bold")
    parts: list[RenderableType] = [head, progress(status), *_jobs(status), Text("")]
    if status.activities:
        parts += [table, Text(f"EPISODE: {NAMED_BY}", style="dim")]
    if more > 0:
        parts.append(Text(f"... and {more} more", style="dim"))
    if unheard > 0:
        parts.append(Text(f"{counted(unheard, 'episode')} {_UNHEARD}", style="dim"))
    return Group(*parts, Text(""), workers)


def _jobs(status: RunStatus) -> list[Table]:
    """A line a job, where there are several."""
    if len(status.jobs) < 2:
        return []
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("JOB", "ROUND", "DONE", "IN FLIGHT"):
        table.add_column(name, no_wrap=name != "JOB", justify="left" if name == "JOB" else "right", overflow="fold")
    for job in status.jobs:
        name = plain(job.name) + (" (stopping)" if job.stopping else "")
        table.add_row(Text(name), str(job.round), f"{job.done:,} of {job.planned:,}", f"{job.in_flight:,}")
    return [table]


def plan_table(config: RunConfig, sizing: Sizing, *, resumed: bool) -> Group:
    """What would be run."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    episodes = f"{sizing.episodes:,}" + (f", of which {sizing.left_to_do:,} are left to do" if resumed else "")
    table.add_row("tasks", Text(f"{sizing.tasks:,} in {config.tasks}"))
    if len(sizing.domains) > 1:
        table.add_row(
            "domains", Text(", ".join(f"{name} {count}" for name, count in list(sizing.domains.items())[:12]))
        )
    table.add_row("episodes", f"{episodes} ({config.group_size} of each task)")
    table.add_row("env, agent", Text(f"{config.env}, {config.agent}"))
    table.add_row("model", Text(_model(config)))
    desktops = f"{sizing.num_vms} of provider {config.provider}" if sizing.num_vms else "none needed"
    table.add_row("desktops", Text(f"{desktops}" if not config.pool else f"of the pool at {config.pool}"))
    table.add_row("in flight", counted(sizing.num_rollouts, "episode"))
    if budget := _budget(config):
        table.add_row("budget", budget)
    table.add_row(
        "time",
        f"about {span(sizing.expected_s)}, at {sizing.task_seconds:.1f} s an episode ({sizing.task_seconds_from})",
    )
    if sizing.num_vms:
        table.add_row("resource_timeout", f"{sizing.resource_timeout:.0f} s = task_duration x num_rollouts / num_vms")
    table.add_row("memory", f"about {sizing.memory_mb / 1024:.1f} GB of {sizing.available_mb / 1024:.1f} GB free here")
    table.add_row("output", Text(f"{config.output_dir}/{config.run_id or '<time of the start>'}"))
    advice = [Text(f"- {each}") for each in sizing.advice]
    return Group(table, Text(""), *advice, Text("nothing was run (--dry-run)", style="dim"))


def _budget(config: RunConfig) -> str:
    """What the whole run may use up."""
    cost, seconds = config.limits.run_cost_usd, config.limits.run_time
    parts = ("" if cost is None else f"{cost:g} USD", "" if seconds is None else span(seconds))
    return " and ".join(filter(None, parts)) + (", over all starts" if cost or seconds else "")


def _no_score(status: RunStatus) -> str:
    over = 0 < status.standing.planned == status.standing.done
    return "nothing was scored" if over else "nothing is scored yet"


def _episodes(status: RunStatus) -> str:
    if not status.in_flight:
        return f"none of {status.num_rollouts} in flight"
    ordered = sorted(status.stages.items(), key=lambda each: -each[1])
    stages = ", ".join(f"{count} {_WAITING.get(name, name)}" for name, count in ordered)
    unheard = status.in_flight - sum(status.stages.values())
    if unheard > 0:
        stages = ", ".join(filter(None, (stages, f"{unheard} {_UNHEARD}")))
    waiting = f"; {status.waiting} wait for a permit" if status.waiting else ""
    return f"{status.in_flight} of {status.num_rollouts} in flight" + (f": {stages}" if stages else "") + waiting


def _usage(status: RunStatus) -> str:
    standing = status.standing
    cost = f", {standing.cost_usd:.2f} USD" if standing.cost_usd else ""
    return f"{standing.tokens:,} tokens{cost}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())


def _times(status: RunStatus, elapsed: float) -> str:
    standing = status.standing
    now = standing.done - standing.before
    left = standing.planned - standing.done
    eta = f", about {span(elapsed / now * left)} left" if now >= 3 and left else ""
    return f"{span(elapsed)}{eta}"


def _model(config: RunConfig) -> str:
    kind, model = agent_kind(config.agent), config.model
    if kind.protocol == NO_MODEL:
        return f"none: agent {config.agent} asks no model"
    place = agents_model(kind, model).place(model)
    return f"{model.name} at {place}" if place else model.name
