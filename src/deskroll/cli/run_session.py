"""A run on the command line: opened, shown, interrupted, summed up."""

from __future__ import annotations

import asyncio
import shlex
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import click
import msgspec
from rich.console import Console

from deskroll.cli import program
from deskroll.cli.interrupts import Interrupts
from deskroll.cli.log_lines import LogLines
from deskroll.cli.run_view import Progress
from deskroll.errors import ConfigError, InputError, ModelError, NoDesktop, StoreError
from deskroll.models.base import ModelRefused
from deskroll.models.client import ChatClient
from deskroll.models.scripted import Script, ScriptedServer
from deskroll.report import terminal
from deskroll.report.results import Results
from deskroll.rollout.config import RunConfig
from deskroll.rollout.loading import SCRIPTED
from deskroll.rollout.openfiles import raise_open_files
from deskroll.rollout.session import Session
from deskroll.store import Run
from deskroll.types import Episode, Task

_CHECK_S = 15.0


async def conduct(config: RunConfig, tasks: Sequence[Task], root: str, *, force: bool, as_json: bool) -> int:
    """Run it to its end, or until it is interrupted; returns the exit code."""
    console = Console(stderr=True)
    raise_open_files()
    if root:
        _refuse_live(root)
    async with AsyncExitStack() as stack:
        interrupts = stack.enter_context(Interrupts(console))
        config = await stack.enter_async_context(_with_model(config))
        stack.enter_context(LogLines(console))
        try:
            session = await stack.enter_async_context(Session.open(config, tasks, resume=root, force=force))
        except (StoreError, NoDesktop) as error:  # its folder, or its pool: a run that cannot begin is bad input
            raise InputError(str(error)) from error
        _tell(console, f"run {session.store.info.run_id} in {session.folder}")
        progress = Progress(console, session.status)
        async with progress.shown():
            outcomes = await interrupts.guarded(session, session.run())
        folder = session.folder
        # Inside the block, so that the summary is there before the run's lock is free.
        results = await asyncio.to_thread(Results.read, folder)
        await session.store.write_summary(msgspec.json.encode(results.summary()))
    results = await asyncio.to_thread(Results.read, folder)
    # By a signal, or by `deskroll status --stop`; a run that was complete all the same is complete.
    interrupted = (interrupts.count > 0 or session.engine.stopping) and not results.summary().finished
    _tell_end(console, results, folder, as_json=as_json, interrupted=interrupted)
    return _exit_code(config, tasks, outcomes, interrupted=interrupted)


def _refuse_live(root: str) -> None:
    """Tell at once that a run goes on; only workers of a dead one are worth waiting for."""
    holder = Run.open(root).holder()
    if holder is None or not holder.socket:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(holder.socket)
        except OSError:
            return
    raise InputError(
        f"run {root} is live, in process {holder.pid}: see  {program()} status {shlex.quote(root)}  "
        f"(--stop ends it), and resume it when it has ended"
    )


@asynccontextmanager
async def _with_model(config: RunConfig) -> AsyncIterator[RunConfig]:
    """The settings with a model that answers: checked, or served here where it is a script."""
    model = config.model
    if not model.name.startswith(SCRIPTED):
        await _check_model(config)
        yield config
        return
    path = Path(model.name.removeprefix(SCRIPTED))
    if not path.is_file():
        raise ConfigError(f"model.name is {model.name!r}, and {str(path)!r} is no file; write scripted:FILE")
    script = Script.load(path)
    if config.limits.max_cost_usd is not None and model.price is None:
        raise ConfigError("limits.max_cost_usd is set, and nobody knows the price of a script: set model.price, too")
    async with ScriptedServer(script) as server:
        served = model.model_copy(update={"base_url": server.url})
        yield config.model_copy(update={"model": served})


async def _check_model(config: RunConfig) -> None:
    """Find out before any desktop is started that a model cannot be asked."""
    settings = config.model.model_copy(update={"timeout": _CHECK_S, "retries": 1})
    async with ChatClient(settings) as client:
        try:
            await client.check()
            if config.limits.max_cost_usd is not None and not client.knows_price:
                unknown = f"the price of {config.model.name} is not known"
                raise ConfigError(f"limits.max_cost_usd is set, and {unknown}: set model.price, too")
        except ModelRefused as error:
            raise ConfigError(f"model: {error}") from None
        except ModelError as error:
            raise ConfigError(
                f"model: {error}; set --base-url and OPENAI_API_KEY, or use --model scripted:FILE"
            ) from None


def _tell_end(console: Console, results: Results, folder: str, *, as_json: bool, interrupted: bool) -> None:
    summary = results.summary()
    if as_json:
        click.echo(msgspec.json.encode(summary))
    else:
        out = terminal.console()
        out.print(terminal.report(results.name, results.state, summary, out.width))
    if not summary.finished or (summary.failures and summary.overall.unscored):
        _tell(console, f"go on with:  {program()} run --resume {shlex.quote(folder)}")
    else:
        _tell(console, f"more:  {program()} report {shlex.quote(folder)} --html report.html")


def _tell(console: Console, line: str) -> None:
    """A line as it is, however long: it may be pasted."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def _exit_code(config: RunConfig, tasks: Sequence[Task], outcomes: list[Episode], *, interrupted: bool) -> int:
    if interrupted:
        return 130
    planned = len(tasks) * config.group_size
    scored = sum(each.score.scored for each in outcomes)
    return 0 if scored >= planned else 1
