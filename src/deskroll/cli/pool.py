"""`deskroll pool`: share desktops among programs, and see and steer the pool that is served."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deskroll.cli.desktops import parse_size
from deskroll.cli.numbers import WholeRange
from deskroll.cli.options import errors_as_json, json_option
from deskroll.cli.places import LocalPath
from deskroll.conduct.program import program
from deskroll.errors import InputError, PoolGone, plain
from deskroll.host.tokens import TOKEN_VARIABLE
from deskroll.report.words import counted

if TYPE_CHECKING:
    from deskroll.desktops.pool import Pool, PoolConfig
    from deskroll.desktops.service import PoolClient
    from deskroll.events import Event

_at = click.option(
    "--at", default="", metavar="ADDRESS",
    help=f"Where the pool is served: unix:PATH or HOST:PORT (set {TOKEN_VARIABLE}). Default: your usual socket.",
)  # fmt: skip


@click.group(epilog="\b\nExample:\n  deskroll pool serve --num-vms 4")
def pool() -> None:
    """Share desktops among programs: serve a pool, see it, steer it."""


def parse_options(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """KEY=VALUE, as often as they are given."""
    options = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{value!r} is not an option; write KEY=VALUE")
        if key in options:
            raise click.BadParameter(f"{key} is given twice")
        options[key] = text
    return options


def _parse_quotas(
    _ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]
) -> tuple[int | None, dict[str, int]]:
    quotas: dict[str, int] = {}
    for value in values:
        name, equals, number = value.rpartition("=")
        if bool(equals) != bool(name) or not (number.isascii() and number.isdigit()) or not 0 < int(number) < 10**6:
            raise click.BadParameter(
                f"{value!r} is not a quota; write N (1 or more) for every client, CLIENT=N for one"
            )
        if name in quotas:
            raise click.BadParameter(f"the quota of {name or 'every client'} is given twice")
        quotas[name] = int(number)
    return quotas.pop("", None), quotas


@pool.command(
    epilog="\b\nExamples:\n  deskroll pool serve --num-vms 4\n"
    "  DESKROLL_TOKEN=secret deskroll pool serve --provider sim --num-vms 100 --listen 127.0.0.1:7000"
)
@click.option("--provider", default="local", show_default=True, help="What kind of desktops: local, sim, or a plug-in.")
@click.option(
    "-o", "--option", "options", multiple=True, callback=parse_options, metavar="KEY=VALUE",
    help="An option of the provider, e.g. -o isolation=none for local, -o boot=1..3 for sim.",
)  # fmt: skip
@click.option("--num-vms", default=3, show_default=True, type=WholeRange(1), help="The most desktops alive.")
@click.option("--min-vms", type=WholeRange(0), help="The fewest; then the pool grows with the demand.")
@click.option("--size", default="1920x1080", show_default=True, callback=parse_size, help="Width and height in pixels.")
@click.option(
    "--quota", "quotas", multiple=True, callback=_parse_quotas, metavar="[CLIENT=]N",
    help="The most desktops that each client, or the named one, may hold at a time.",
)  # fmt: skip
@click.option(
    "--clients", type=LocalPath(dir_okay=False), metavar="FILE",
    help="Clients, a line NAME TOKEN [FIELD=VALUE ...] each: they lease desktops like the pool's own, or up to those "
    f"fields (memory_mb=8192 network=true), and {TOKEN_VARIABLE} alone steers.",
)  # fmt: skip
@click.option(
    "--listen", default="", metavar="ADDRESS",
    help=f"unix:PATH or HOST:PORT. Default: your usual socket. TCP needs a token in {TOKEN_VARIABLE}.",
)  # fmt: skip
def serve(
    *,
    provider: str,
    options: dict[str, str],
    num_vms: int,
    min_vms: int | None,
    size: tuple[int, int],
    quotas: tuple[int | None, dict[str, int]],
    clients: Path | None,
    listen: str,
) -> None:
    """Serve a pool of desktops until Ctrl-C, which takes all of them away.

    Desktops that a killed pool has left behind are taken over or removed at the start.
    """
    from deskroll.config import check  # noqa: PLC0415
    from deskroll.desktops.base import DesktopSpec  # noqa: PLC0415
    from deskroll.desktops.pool import PoolConfig, Quotas  # noqa: PLC0415

    settings = {
        "num_vms": num_vms,
        "min_vms": min_vms,
        "spec": DesktopSpec(width=size[0], height=size[1]),
        "quotas": Quotas(each=quotas[0], named=quotas[1]),
    }
    config = check(PoolConfig, settings, "pool serve")
    asyncio.run(_serve(provider, options, config, clients, listen))


async def _serve(provider: str, options: dict[str, str], config: PoolConfig, clients: Path | None, listen: str) -> None:
    from deskroll.desktops.pool import Pool  # noqa: PLC0415
    from deskroll.desktops.providers import make_provider  # noqa: PLC0415
    from deskroll.desktops.service import PoolService, pool_address  # noqa: PLC0415
    from deskroll.desktops.service.keys import read_clients  # noqa: PLC0415

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    sink = _Troubles()
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    pool = Pool(make_provider(provider, options, sink), config, sink=sink)
    known = read_clients(clients) if clients is not None else None
    service = PoolService(pool, pool_address(listen), token=token, clients=known)
    async with pool, service:
        size = f"{config.fewest} to {config.num_vms}" if config.fewest < config.num_vms else f"{config.num_vms}"
        click.echo(f"pool of {size} {provider} desktops on {service.address}")
        at = f" --at {service.address}" if listen else ""
        click.echo(f"see it:  {program()} pool status{at}")
        async with asyncio.TaskGroup() as tasks:
            ready = tasks.create_task(_tell_when_ready(pool))
            ends = [tasks.create_task(stop.wait()), tasks.create_task(pool.until_closed())]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in (ready, *ends):
                task.cancel()
        click.echo("stopping ...")


async def _tell_when_ready(pool: Pool) -> None:
    """Say when the desktops that are always there have come up."""
    from deskroll.desktops.pool.slot import State  # noqa: PLC0415

    began = time.monotonic()
    while True:
        status = await pool.status()
        if status.states[State.READY] + status.states[State.LEASED] >= status.min_vms:
            break
        await asyncio.sleep(0.05)
    if status.min_vms:
        click.echo(f"{counted(status.min_vms, 'desktop')} ready after {time.monotonic() - began:.1f} s")


class _Troubles:
    """Tells of what an operator should know, as it happens."""

    def emit(self, event: Event) -> None:
        """Print what went wrong, and what was found and taken care of."""
        from deskroll import events  # noqa: PLC0415

        match event:
            case events.LeaseTaken(lease=lease, desktop=desktop, client=client, reason=reason):
                holder = plain(f"{client} ({lease})" if client else lease)
                click.echo(f"{desktop}: taken from {holder}: {plain(reason)}", err=True)
            case events.DesktopNotBooted() | events.DesktopUnstoppable():
                what = events.kind_of(event).partition(".")[2].replace("_", " ")
                pause = f"; next attempt in {event.pause_s:.0f} s" if event.pause_s >= 1 else ""
                click.echo(f"{event.desktop}: {what}: {plain(event.reason)}{pause}", err=True)
            case events.DesktopBroken(desktop=desktop, reason=reason):
                click.echo(f"{desktop}: broken: {plain(reason)}", err=True)
            case events.DesktopReaped(desktop=desktop, owner_pid=owner):
                click.echo(f"{desktop}: removed, its owner (pid {owner}) is gone", err=True)


@pool.command(epilog="Example:  deskroll pool status --json")
@_at
@json_option
@click.option("--once", is_flag=True, help="Print it once; the default where there is no terminal.")
def status(at: str, as_json: bool, once: bool) -> None:
    """Show the desktops of a pool, who waits, and what limits it; live on a terminal."""
    from deskroll.cli.pool_view import show_status  # noqa: PLC0415

    try:
        with errors_as_json(as_json):
            _with_pool(at, lambda client: show_status(client, as_json=as_json, once=once))
    except KeyboardInterrupt:
        return  # that is how one leaves it


@pool.command(epilog="Example:  deskroll pool release local-1a2b3c4d")
@click.argument("desktop_id")
@_at
def release(desktop_id: str, at: str) -> None:
    """Take a desktop from whoever holds it, by force.

    Its holder gets LeaseLost on the next use and cannot touch it any more; the desktop is recycled.
    """
    _with_pool(at, lambda client: client.free(desktop_id))
    click.echo(f"{desktop_id}: taken back; it is being recycled")


@pool.command(epilog="Example:  deskroll pool resize 8 --min-vms 2")
@click.argument("num_vms", type=WholeRange(1))
@click.option("--min-vms", type=WholeRange(0), help="The fewest. Default: as before; in a pool of fixed size NUM_VMS.")
@_at
def resize(num_vms: int, min_vms: int | None, at: str) -> None:
    """Have at most NUM_VMS desktops from now on. Nobody loses one by it; ends a draining."""
    if min_vms is not None and min_vms > num_vms:
        raise InputError(f"--min-vms {min_vms} is more than NUM_VMS ({num_vms})")
    _with_pool(at, lambda client: _resize(client, num_vms, min_vms))


async def _resize(client: PoolClient, num_vms: int, min_vms: int | None) -> None:
    await client.resize(num_vms, min_vms)
    status = await client.status()
    few = f"{status.min_vms} to " if status.min_vms < status.num_vms else ""
    click.echo(f"{few}{counted(status.num_vms, 'desktop')} from now on")


@pool.command(epilog="Example:  deskroll pool drain && deskroll pool status")
@_at
def drain(at: str) -> None:
    """Hand out no more desktops, and stop each one as it comes free. `resize` ends it."""
    _with_pool(at, lambda client: client.drain())
    click.echo("draining: no more desktops are handed out")


def _with_pool(at: str, work: Callable[[PoolClient], Coroutine[None, None, None]]) -> None:
    import aiohttp  # noqa: PLC0415

    from deskroll.desktops.service import PoolClient  # noqa: PLC0415

    async def run() -> None:
        async with PoolClient(at) as client:
            try:
                await work(client)
            except PoolGone as error:
                if isinstance(error.__cause__, aiohttp.ClientConnectorError | FileNotFoundError):
                    raise InputError(str(error)) from error  # it is not there, as a run that is not live
                raise

    asyncio.run(run())
