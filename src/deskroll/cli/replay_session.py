"""A replay on the command line: played with its progress shown, laid beside the original, told.

Guarantees: whatever ends it, a signal included, neither its desktop nor its folder is left.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import click

from deskroll.cli.options import print_json
from deskroll.conduct.console import stderr
from deskroll.conduct.interrupts import Interrupts
from deskroll.conduct.log_lines import LogLines
from deskroll.conduct.view import Progress
from deskroll.errors import InputError, NoDesktop, plain
from deskroll.export.difference import side_by_side
from deskroll.export.output import writing
from deskroll.export.pictures import open_image
from deskroll.report.words import counted
from deskroll.rollout.models import Models
from deskroll.rollout.openfiles import raise_open_files
from deskroll.rollout.replay import BEGINNING, Compared, Comparison, Source, compare_attempts
from deskroll.rollout.session import Session
from deskroll.store import AttemptReader
from deskroll.store.paths import attempt_folder


async def conduct(source: Source, tolerance: float, output: Path | None, *, score: bool) -> Comparison | None:
    """Play it, compare, and write the pictures that are wanted; None where it was stopped before its end."""
    console = stderr()
    raise_open_files()
    async with AsyncExitStack() as stack:
        interrupts = stack.enter_context(Interrupts(console))  # first, so that no signal leaves the folder behind
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="deskroll-replay-"))
        stack.enter_context(LogLines(console))
        models = await stack.enter_async_context(Models())
        config = source.replay_config(folder, score=score)
        await models.answering(config)
        try:
            async with Session.open(config, [source.task], models=models) as session:
                async with Progress(console, session.status).shown():
                    outcomes = await interrupts.guarded(session, session.run())
                if not outcomes:
                    return None
                (outcome,) = outcomes
                replayed = AttemptReader(session.store.storage, attempt_folder(outcome.key, outcome.attempt))
                compared = await asyncio.to_thread(compare_attempts, source, outcome, replayed, tolerance, score=score)
                if output is not None:
                    await asyncio.to_thread(_write_pictures, compared, source.reader, replayed, output)
        except NoDesktop as error:
            raise InputError(str(error)) from error
    return compared


def _write_pictures(compared: Comparison, stored: AttemptReader, replayed: AttemptReader, output: Path) -> None:
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
        for each in compared.screens:
            if not each.same:
                both = (
                    open_image(stored.image(each.stored), each.stored),
                    open_image(replayed.image(each.replayed), "replay"),
                )
                side_by_side(*both, each.difference).save(output / _picture(each))


def _picture(each: Compared) -> str:
    return "beginning.png" if each.step == BEGINNING else f"step_{each.step}.png"


def tell(compared: Comparison, output: Path | None, *, score: bool, as_json: bool) -> None:
    """Print what came of it."""
    if as_json:
        print_json(compared)
        return
    for each in compared.screens:
        if not each.same:
            click.echo(f"{_where(each.step)}: {_what(each)}")
    for step in compared.missing:
        click.echo(f"{_where(step)}: a screen is there on one side only")
    if compared.failure is not None:
        click.echo(f"the replay did not come to its end: {plain(compared.failure)}")
    if score:
        now = f"{_score(compared.score)} now ({plain(compared.score_reason)})"
        click.echo(f"score: {_score(compared.stored_score)} then, {now}")
    screens = counted(len(compared.screens), "screen")
    if compared.first_difference is not None:
        click.echo(f"of {screens}, the first difference is {_where(compared.first_difference)}")
    elif compared.screens:
        click.echo(f"{screens}, all the same within {compared.tolerance:.2%} of the pixels")
    if output is not None and compared.first_difference is not None:
        click.echo(f"wrote {plain(str(output), 4096)}")


def _where(step: int) -> str:
    return "before the first step" if step == BEGINNING else f"after step {step}"


def _what(each: Compared) -> str:
    found = each.difference
    left, top, width, height = found.box or (0, 0, 0, 0)
    return f"{found.share:.2%} of the pixels differ, within {width}x{height} at ({left}, {top})"


def _score(value: float | None) -> str:
    return "not scored" if value is None else f"{value:g}"
