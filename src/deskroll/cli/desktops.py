"""`deskroll desktops`: start embedded desktops by hand, look at them, list them, remove what was left behind."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import secrets
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from deskroll.cli.numbers import WholeRange
from deskroll.cli.options import json_option, parse_address, print_json
from deskroll.cli.places import LocalPath
from deskroll.conduct.program import program
from deskroll.errors import GuestError, InputError, MissingDependency, plain
from deskroll.host.tokens import TOKEN_VARIABLE

if TYPE_CHECKING:
    from deskroll.desktops.base import Address, DesktopSpec
    from deskroll.desktops.notes import Note
    from deskroll.desktops.providers.local.provider import LocalProvider
    from deskroll.desktops.reaper import Reaped
    from deskroll.events import Event


@click.group(epilog="\b\nExample:\n  deskroll desktops up --count 2")
def desktops() -> None:
    """Start embedded desktops by hand, look at them, list them, remove what was left behind."""


def parse_size(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[int, int]:
    """WIDTHxHEIGHT."""
    match = re.fullmatch(r"(\d{1,5})x(\d{1,5})", value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not a size; write WIDTHxHEIGHT, e.g. 1920x1080")
    from deskroll.desktops.base import HEIGHTS, WIDTHS  # noqa: PLC0415

    width, height = int(match[1]), int(match[2])
    if not (WIDTHS[0] <= width <= WIDTHS[1] and HEIGHTS[0] <= height <= HEIGHTS[1]):
        allowed = f"{WIDTHS[0]}x{HEIGHTS[0]} to {WIDTHS[1]}x{HEIGHTS[1]}"
        raise click.BadParameter(f"{value} is too small or too large; allowed: {allowed}")
    return width, height


@desktops.command(
    epilog="Example:  deskroll desktops up --count 2 --serve 127.0.0.1:5000   (the second one answers on 5001)"
)
@click.option("--count", default=1, show_default=True, type=WholeRange(1, 512), help="How many desktops.")
@click.option(
    "--serve", callback=parse_address, metavar="HOST:PORT",
    help="Serve the guest protocol on TCP, one port a desktop from PORT on, to whoever has the token.",
)  # fmt: skip
@click.option(
    "--no-token", is_flag=True,
    help="Serve everybody who reaches the port: every user of this machine. For programs that know of no token.",
)  # fmt: skip
@click.option("--size", default="1920x1080", show_default=True, callback=parse_size, help="Width and height in pixels.")
@click.option("--network", is_flag=True, help="Let programs inside reach the network, though not this machine.")
@click.option(
    "--isolation", default="bwrap", show_default=True, type=click.Choice(["bwrap", "none"]),
    help="none: no sandbox, for machines that allow no namespaces. What runs inside can then read your files.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON when all are up.")
def up(
    count: int, serve: tuple[str, int] | None, no_token: bool, size: tuple[int, int], network: bool, isolation: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Start desktops, print their addresses, keep them until Ctrl-C.

    Each desktop answers OSWorld's guest protocol (GET /screenshot, POST /execute, ...) and deskroll's own /step.
    Served ones want a bearer token with each request: that of the environment variable DESKROLL_TOKEN, or a new one,
    which is printed.
    """
    from deskroll.desktops.base import DesktopSpec  # noqa: PLC0415

    token = _Token.chosen(serve, no_token)
    if serve is not None and serve[1] and serve[1] + count - 1 > 65535:
        raise InputError(f"--serve {serve[0]}:{serve[1]} leaves no room for {count} ports; begin at a lower one")
    spec = DesktopSpec(width=size[0], height=size[1], network=network)
    asyncio.run(_keep_up(count, serve, spec, isolation, token, as_json))


class _Token(NamedTuple):
    """What requests to served desktops must carry; empty: nothing."""

    value: str
    new: bool = False
    """Whether it was made up here, so that nobody knows it yet."""

    @classmethod
    def chosen(cls, serve: tuple[str, int] | None, no_token: bool) -> _Token:
        """The caller's own; a new one where desktops are served; none where nobody else reaches them, or by wish."""
        own = os.environ.get(TOKEN_VARIABLE, "")
        if no_token and own:
            raise InputError(f"--no-token, and {TOKEN_VARIABLE} is set: leave one of them out")
        if no_token and serve is not None and not _is_loopback(serve[0]):
            raise InputError(
                f"--serve {serve[0]} is not a loopback address: anyone who reaches it could run programs there. "
                "Leave out --no-token, or serve on 127.0.0.1"
            )
        if own or no_token or serve is None:
            return cls(own)
        return cls(secrets.token_urlsafe(18), new=True)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _keep_up(
    count: int, serve: tuple[str, int] | None, spec: DesktopSpec, isolation: str, token: _Token, as_json: bool
) -> None:
    from deskroll.desktops.guest.relay import relay_guest  # noqa: PLC0415
    from deskroll.desktops.providers.local.provider import LocalProvider, LocalSettings  # noqa: PLC0415

    settings = LocalSettings.model_validate({"isolation": isolation})
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(LocalProvider(settings, sink=_Losses()))
        began = time.monotonic()
        addresses = await _boot_all(provider, spec, token.value, count, stop)
        ports: list[int] = []
        for place, address in enumerate(addresses):
            if serve is not None:
                port = serve[1] + place if serve[1] else 0
                try:
                    bound = await stack.enter_async_context(relay_guest(address, serve[0], port))
                except OSError as error:
                    raise InputError(f"cannot serve on {serve[0]}:{port}: {os.strerror(error.errno or 0)}") from error
                ports.append(bound)
        if not addresses:
            raise KeyboardInterrupt
        urls = [_url(serve[0], port) for port in ports] if serve is not None else []
        if as_json:
            _print_json(addresses, urls, token)
        else:
            _print_addresses(addresses, urls, token, time.monotonic() - began)
        await stop.wait()
        if not as_json:
            click.echo("stopping ...")


class _Losses:
    """Tells at once of a desktop that dies by itself."""

    def emit(self, event: Event) -> None:
        """Print what matters to somebody who waits."""
        from deskroll.events import DesktopDied  # noqa: PLC0415

        if isinstance(event, DesktopDied):
            click.echo(f"desktop {event.desktop} is lost: {plain(event.reason)}", err=True)


async def _boot_all(
    provider: LocalProvider, spec: DesktopSpec, token: str, count: int, stop: asyncio.Event
) -> list[Address]:
    async def boot() -> list[Address]:
        return await asyncio.gather(*(provider.boot(spec, token=token) for _ in range(count)))

    booting, stopped = asyncio.create_task(boot()), asyncio.create_task(stop.wait())
    await asyncio.wait((booting, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not booting.done():
        booting.cancel()
        await asyncio.gather(booting, return_exceptions=True)
        return []
    return await booting


def _url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _print_json(addresses: list[Address], urls: list[str], token: _Token) -> None:
    rows = [
        {"id": address.id, "endpoint": address.endpoint, "url": url, "size": [address.width, address.height]}
        | ({"token": token.value} if token.new else {})
        for address, url in zip(addresses, urls or [""] * len(addresses), strict=True)
    ]
    print_json(rows)


def _print_addresses(addresses: list[Address], urls: list[str], token: _Token, seconds: float) -> None:
    click.echo(f"{len(addresses)} desktop{'s' if len(addresses) > 1 else ''} up in {seconds:.2f} s")
    for address, url in zip(addresses, urls or [""] * len(addresses), strict=True):
        click.echo(f"  {address.id}  {url or address.endpoint}")
    if token.new:
        click.echo(f"token:  export {TOKEN_VARIABLE}={token.value}")
    if urls and not token.value:
        click.echo("no token: every user of this machine can run programs in it", err=True)
    if urls:
        header = f'-H "Authorization: Bearer ${TOKEN_VARIABLE}" ' if token.value else ""
        click.echo(f"look:  curl -s {header}{urls[0]}/screenshot -o screen.png")
    else:
        click.echo(f"look:  {program()} desktops shot {addresses[0].id} -o screen.png")
    click.echo(f"Ctrl-C stops {'them' if len(addresses) > 1 else 'it'}.")


@desktops.command(epilog="Example:  deskroll desktops ls --json")
@json_option
def ls(as_json: bool) -> None:
    """List the desktops that you started on this machine."""
    import msgspec  # noqa: PLC0415

    notes = _all_notes()
    if as_json:
        rows = [{**msgspec.to_builtins(note), "orphaned": note.orphaned()} for note in notes]
        print_json(rows)
        return
    if not notes:
        click.echo("No desktops. Start some:  " + f"{program()} desktops up --count 2")
        return
    click.echo(f"{'ID':<14} {'SIZE':<9} {'AGE':>5}  {'OWNER':<12} ADDRESS")
    for note in notes:
        click.echo(_row(note))


def _all_notes() -> list[Note]:
    from deskroll.desktops.notes import Note, NoteFolder  # noqa: PLC0415
    from deskroll.host.runtime_folder import runtime_root  # noqa: PLC0415

    return NoteFolder(runtime_root(), Note).list()


def _row(note: Note) -> str:
    owner = f"{note.owner.pid} (gone)" if note.orphaned() else f"pid {note.owner.pid}"
    age = f"{time.time() - note.created_at:.0f}s"
    size = f"{note.width}x{note.height}"
    return f"{note.id:<14} {size:<9} {age:>5}  {owner:<12} {note.endpoint}"


@desktops.command(epilog="Example:  deskroll desktops reap --dry-run")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@json_option
def reap(dry_run: bool, as_json: bool) -> None:
    """Remove desktops whose owner is gone, of every kind, and nothing else.

    A process that was killed may leave desktops behind. Those of processes that still run are never touched.
    """
    import msgspec  # noqa: PLC0415

    found = asyncio.run(_reap_all(dry_run))
    failed = any(each.error for each in found)
    if as_json:
        print_json([{**msgspec.to_builtins(each.note), "error": each.error} for each in found])
        raise SystemExit(1 if failed else 0)
    for note, error in ((each.note, each.error) for each in found):
        if error:
            click.echo(f"{note.id}: not removed: {plain(error)}", err=True)
            continue
        age = f"{time.time() - note.created_at:.0f} s old"
        click.echo(
            f"{note.id}: {'would be removed' if dry_run else 'removed'} ({age}, owner pid {note.owner.pid} is gone)"
        )
    if not found:
        click.echo("Nothing to remove: there is no desktop whose owner is gone.")
    raise SystemExit(1 if failed else 0)


async def _reap_all(dry_run: bool) -> list[Reaped]:
    from deskroll.desktops import reaper  # noqa: PLC0415
    from deskroll.desktops.providers import make_provider  # noqa: PLC0415
    from deskroll.registry import Registry  # noqa: PLC0415

    found: list[reaper.Reaped] = []
    for entry in Registry().entries("provider"):
        try:
            provider = make_provider(entry.name)
        except MissingDependency:
            continue  # whoever cannot start such desktops has none
        async with provider:
            if dry_run:
                found += [reaper.Reaped(note=note) for note in await reaper.orphans(provider)]
            else:
                found += await reaper.reap(provider)
    return found


@desktops.command(epilog="Example:  deskroll desktops shot local-1a2b3c4d -o screen.png")
@click.argument("desktop_id", required=False)
@click.option("-o", "--output", default="screen.png", show_default=True, type=LocalPath(dir_okay=False))
def shot(desktop_id: str | None, output: Path) -> None:
    """Save a picture of a desktop's screen.

    Without an id, of the one that runs.

    OUTPUT ending in .jpg makes a JPEG, everything else a PNG.
    """
    from deskroll.desktops.base import Address  # noqa: PLC0415
    from deskroll.desktops.guest.client import GuestDesktop  # noqa: PLC0415

    note = _choose(_all_notes(), desktop_id)
    address = Address(id=note.id, endpoint=note.endpoint, token=os.environ.get(TOKEN_VARIABLE, ""))

    async def take() -> bytes:
        async with GuestDesktop(address, timeout=10.0) as desktop:
            return await desktop.screenshot("jpeg" if output.suffix.lower() in (".jpg", ".jpeg") else "png")

    try:
        picture = asyncio.run(take())
    except GuestError as error:
        if error.status != 401:
            raise
        raise InputError(f"desktop {note.id} wants its token: set {TOKEN_VARIABLE} to it") from error
    try:
        output.write_bytes(picture)
    except OSError as error:
        raise InputError(f"cannot write {output}: {error.strerror}") from error
    click.echo(f"{output}: {note.id}, {len(picture):,} bytes")


def _choose(notes: list[Note], desktop_id: str | None) -> Note:
    names = ", ".join(note.id for note in notes)
    if not notes:
        raise InputError("no desktop runs; start one:  deskroll desktops up")
    if desktop_id is None:
        if len(notes) > 1:
            raise InputError(f"several desktops run; name one of: {names}")
        return notes[0]
    for note in notes:
        if note.id == desktop_id:
            return note
    raise InputError(f"no desktop {desktop_id!r} runs; there are: {names}")
