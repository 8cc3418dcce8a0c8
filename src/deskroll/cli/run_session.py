"""A run on the command line: opened, shown, interrupted, summed up."""

from __future__ import annotations

import asyncio
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
from deskroll.errors import ConfigError, ModelError
from deskroll.models.base import ModelRefused
from deskroll.models.client import ChatClient
from deskroll.models.scripted import Script, ScriptedServer
from deskroll.report import terminal
from deskroll.report.results import Results
from deskroll.rollout.config import RunConfig
from deskroll.rollout.openfiles import raise_open_files
from deskroll.rollout.session import Session
from deskroll.types import Episode, Task

SCRIPTED = "scripted:"
_ASSUMED_S = 60.0
_STOP_S = 30.0
"""How long what was told to stop may take."""
_CHECK_S = 15.0


async def conduct(config: RunConfig, tasks: Sequence[Task], root: str, *, force: bool, as_json: bool) -> int:
    """Run it to its end, or until it is interrupted; returns the exit code."""
    console = Console(stderr=True)
    raise_open_files()
    async with AsyncExitStack() as stack:
        config = await stack.enter_async_context(_with_model(config))
        stack.enter_context(LogLines(console))
        session = await stack.enter_async_context(Session.open(config, tasks, resume=root, force=force))
        console.print(f"run {session.store.info.run_id} in {session.folder}", highlight=False)
        progress = Progress(console, session.status)
        interrupts = Interrupts(session, console)
        async with progress.shown():
            with interrupts:
                outcomes = await interrupts.guarded(session.run())
        folder = session.folder
        # Inside the block, so that the summary is there before the run's lock is free.
        results = await asyncio.to_thread(Results.read, folder)
        await session.store.write_summary(msgspec.json.encode(results.summary()))
    results = await asyncio.to_thread(Results.read, folder)
    _tell_end(console, results, folder, as_json=as_json, interrupted=interrupts.count > 0)
    return _exit_code(config, tasks, outcomes, interrupted=interrupts.count > 0)


@asynccontextmanager
async def _with_model(config: RunConfig) -> AsyncIterator[RunConfig]:
    """The settings with a model that answers: checked, or served here where it is a script."""
    model = config.model
    if not model.name.startswith(SCRIPTED):
        await _check_model(config)
        yield config
        return
    script = Script.load(Path(model.name.removeprefix(SCRIPTED)))
    async with ScriptedServer(script) as server:
        served = model.model_copy(update={"base_url": server.url})
        yield config.model_copy(update={"model": served})


async def _check_model(config: RunConfig) -> None:
    """Find out before any desktop is started that a model cannot be asked."""
    settings = config.model.model_copy(update={"timeout": _CHECK_S, "retries": 1})
    async with ChatClient(settings) as client:
        try:
            await client.check()
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
        out = Console()
        out.print(terminal.report(results.name, results.state, summary, out.width))
    if not summary.finished or interrupted:
        console.print(f"go on with:  {program()} run --resume {folder}", highlight=False)
    else:
        console.print(f"more:  {program()} report {folder} --html report.html", highlight=False)


def _exit_code(config: RunConfig, tasks: Sequence[Task], outcomes: list[Episode], *, interrupted: bool) -> int:
    if interrupted:
        return 130
    planned = len(tasks) * config.group_size
    scored = sum(each.score.scored for each in outcomes)
    return 0 if scored >= planned else 1
