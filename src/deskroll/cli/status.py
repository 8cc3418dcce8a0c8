"""`deskroll status`: what live runs do, asked from another terminal."""

from __future__ import annotations

import asyncio
import shlex
import sys

import click

from deskroll.cli.numbers import WholeRange
from deskroll.cli.options import errors_as_json, print_json
from deskroll.conduct.terminals import is_unread
from deskroll.errors import InputError


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
    from deskroll.rollout.asking import NotLive, ask, change_limits, find_live, stop_run  # noqa: PLC0415

    async def work() -> None:
        try:
            socket = await find_live(run)
        except NotLive as error:
            raise _stopped_service(error.root) or error from None
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


def _stopped_service(root: str) -> InputError | None:
    """What to say of a service that nobody runs; None: it is none."""
    from deskroll.conduct.program import program  # noqa: PLC0415
    from deskroll.service.ledger import BatchLedger  # noqa: PLC0415
    from deskroll.store.local import LocalStorage  # noqa: PLC0415
    from deskroll.store.storage import Storage  # noqa: PLC0415

    storage = Storage.at(root)
    ledger = BatchLedger.read(storage) if isinstance(storage, LocalStorage) else None
    if ledger is None:
        return None
    return InputError(
        f"the service in {root} is stopped: {ledger.counts}; start it again with  {program()} serve CONFIG  (its "
        f"settings), or see  {program()} report {shlex.quote(root)}"
    )
