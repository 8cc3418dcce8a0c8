"""`deskroll status`: what live runs do, asked from another terminal."""

from __future__ import annotations

import asyncio
import sys

import click

from deskroll.cli.numbers import WholeRange
from deskroll.cli.options import errors_as_json, print_json
from deskroll.conduct.terminals import is_unread


@click.command(epilog="\b\nExamples:\n  deskroll status\n  deskroll status results/20260131-120000 --json")
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
@click.option("--watch", is_flag=True, help="Go on showing it until Ctrl-C.")
@click.option("--num-rollouts", type=WholeRange(1), help="Have at most so many episodes in flight from now on.")
@click.option("--stop", is_flag=True, help="Have it finish what runs and start nothing more, as Ctrl-C does.")
def status(*, run: str | None, as_json: bool, watch: bool, num_rollouts: int | None, stop: bool) -> None:
    """What a live run does: each episode, desktop and model server, since when, what is stuck and what limits.

    RUN is its folder; without one, the live run of yours on this machine. Exit code 2: there is none; --json prints
    {"error": ...} then.
    """
    from deskroll.conduct.view import status_view  # noqa: PLC0415
    from deskroll.report.terminal import console as stdout  # noqa: PLC0415
    from deskroll.rollout.asking import ask, change_limits, find_live, stop_run  # noqa: PLC0415

    async def work() -> None:
        socket = await find_live(run)
        found = None
        if num_rollouts is not None:
            found = await change_limits(socket, num_rollouts)
        if stop:
            found = await stop_run(socket)
        found = found or await ask(socket)
        if as_json:
            print_json(found)
            return
        console = stdout()
        console.print(status_view(found, console.height if sys.stdout.isatty() else 10_000))
        while watch and not is_unread(sys.stdout):
            await asyncio.sleep(1.0)
            found = await ask(socket)
            console.clear()
            console.print(status_view(found, console.height))

    with errors_as_json(as_json):
        asyncio.run(work())
