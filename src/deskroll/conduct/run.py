"""One run from beginning to end: opened, shown, interrupted, summed up."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import click
import msgspec
from rich.console import Console

from deskroll.conduct.console import stderr
from deskroll.conduct.interrupts import Interrupts
from deskroll.conduct.log_lines import LogLines
from deskroll.conduct.program import program
from deskroll.conduct.view import Progress
from deskroll.errors import DeskrollError, InputError, NoDesktop, StoreError
from deskroll.report import terminal
from deskroll.report.results import Results
from deskroll.report.words import counted
from deskroll.rollout.config import RunConfig
from deskroll.rollout.folder import refuse_live
from deskroll.rollout.lacking import lacking_programs
from deskroll.rollout.main_thread import outlasting_main_thread
from deskroll.rollout.models import Models
from deskroll.rollout.openfiles import check_open_files, raise_open_files, tell_open_files
from deskroll.rollout.preparing import unjudged
from deskroll.rollout.session import Session
from deskroll.store.paths import attempt_folder
from deskroll.types import Episode, Task

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    results: Results
    folder: str
    interrupted: bool
    signalled: bool
    """Whether that was a signal, and not somebody elsewhere."""
    code: int
    """The exit code."""
    more: str = ""
    """The setting that has to be raised before it can go on; empty: none."""

    def tell(self, *, as_json: bool) -> None:
        """Print what came of it, and what can be done next."""
        _tell_end(stderr(), self.results, self.folder, self.more, as_json=as_json)


async def conduct(
    config: RunConfig,
    tasks: Sequence[Task],
    root: str = "",
    *,
    force: bool = False,
    quiet: bool = False,
    opened: Callable[[str], object] = lambda folder: None,
) -> Ended:
    """Run it to its end, or until it is interrupted, with its progress shown unless `quiet`.

    `opened` is told the folder as soon as there is one: whatever ends it from then on, it can be resumed.
    """
    console = stderr(quiet=quiet)
    raise_open_files()
    check_open_files(min(config.num_rollouts, len(tasks) * config.group_size))
    asyncio.get_running_loop().set_exception_handler(tell_open_files)
    if root:
        refuse_live(root, program())
    async with AsyncExitStack() as stack:
        stack.enter_context(outlasting_main_thread())
        interrupts = stack.enter_context(Interrupts(console))
        models = await stack.enter_async_context(Models())
        await models.answering(config)
        if not quiet:
            stack.enter_context(LogLines(console))
        for trouble in filter(None, (unjudged(config, tasks), lacking_programs(config, tasks))):
            _log.warning("%s", trouble)
        try:
            opening = Session.open(config, tasks, resume=root, force=force, models=models)
            session = await stack.enter_async_context(opening)
        except (StoreError, NoDesktop) as error:  # its folder, or its pool: a run that cannot begin is bad input
            raise InputError(str(error)) from error
        opened(session.folder)
        _tell(console, f"run {session.store.info.run_id} in {session.folder}")
        progress = Progress(console, session.status)
        async with progress.shown():
            try:
                outcomes = await interrupts.guarded(session, session.run()) or []
            except DeskrollError as error:
                error.args = (f"{error}\n{_resume(session.folder)}",)
                raise
        folder = session.folder
        # Inside the block, so that the summary is there before the run's lock is free.
        results = await asyncio.to_thread(Results.read, folder)
        await session.store.write_summary(msgspec.json.encode(results.summary()))
    results = await asyncio.to_thread(Results.read, folder)
    # By a signal, or by `deskroll status --stop`; a run that was complete all the same is complete.
    unfinished = not results.summary().finished
    stopped = session.engine.stopping and not session.used_up
    interrupted = (interrupts.count > 0 or stopped) and unfinished
    code = _exit_code(config, tasks, outcomes, interrupted=interrupted)
    more = session.budget.raised if session.used_up and unfinished else ""
    return Ended(
        results=results, folder=folder, interrupted=interrupted, signalled=interrupts.count > 0, code=code, more=more
    )


def _tell_end(console: Console, results: Results, folder: str, more: str, *, as_json: bool) -> None:
    summary = results.summary()
    if as_json:
        click.echo(msgspec.json.encode(summary))
    else:
        out = terminal.console()
        out.print(terminal.report(results.name, results.state, summary, out.width))
    _tell_traces(console, results)
    if not summary.finished or (summary.failures and summary.overall.unscored):
        _tell(console, _resume(folder, more))
    else:
        _tell(console, f"more:  {program()} report {shlex.quote(folder)} --html report.html")


def _tell_traces(console: Console, results: Results) -> None:
    """Say where to look, where somebody's own code failed."""
    traced = [each for each in results.outcomes if each.failure is not None and each.failure.trace]
    if traced and (failure := traced[0].failure) is not None:
        folder = attempt_folder(traced[0].key, traced[0].attempt)
        which = "" if len(traced) == 1 else f" (of {counted(len(traced), 'episode')}, the first)"
        _tell(console, f"traceback{which}:  {results.run.storage.shown(f'{folder}/{failure.trace}')}")


def _resume(folder: str, more: str = "") -> str:
    return f"go on with:  {program()} run --resume {shlex.quote(folder)}{f' --set {more}' if more else ''}"


def _tell(console: Console, line: str) -> None:
    """A line as it is, however long: it may be pasted."""
    console.print(line, highlight=False, soft_wrap=True)


def _exit_code(config: RunConfig, tasks: Sequence[Task], outcomes: list[Episode], *, interrupted: bool) -> int:
    if interrupted:
        return 130
    planned = len(tasks) * config.group_size
    good = sum(each.given_up or (each.score.scored if config.evaluate else each.failure is None) for each in outcomes)
    return 0 if good >= planned else 1
