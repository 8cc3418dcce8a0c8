"""A pool on the terminal: one table, live or once."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from deskroll.cli.options import print_json
from deskroll.conduct.terminals import is_unread
from deskroll.desktops.pool.slot import State
from deskroll.host.console import PlainConsole
from deskroll.report.words import counted, duration

if TYPE_CHECKING:
    from deskroll.desktops.pool import DesktopStatus, PoolStatus
    from deskroll.desktops.service import PoolClient

REFRESH_S = 0.5
_FOOT = Text("\nCtrl-C leaves", style="dim")
_COLOURS = {
    "leased": "green",
    "ready": "cyan",
    "booting": "yellow",
    "checking": "yellow",
    "recycling": "yellow",
    "stopping": "red",
}


async def show_status(client: PoolClient, *, as_json: bool, once: bool) -> None:
    """Print what goes on; on a terminal go on until interrupted."""
    status = await client.status()
    if as_json:
        print_json(status)
        return
    console = PlainConsole()
    if once or not sys.stdout.isatty():
        console.print(render(status, console.width))
        return
    with Live(render(status, console.width, console.height), console=console, auto_refresh=False, screen=True) as live:
        while not is_unread(sys.stdout):
            await asyncio.sleep(REFRESH_S)
            picture = Group(render(await client.status(), console.width, console.height), _FOOT)
            live.update(picture, refresh=True)


def render(status: PoolStatus, width: int, height: int = 10_000) -> Group:
    """The whole picture; of more desktops than fit on the screen, those that have been busy longest."""
    rows = list(status.desktops)
    room = max(1, height - 13)
    if len(rows) > room:
        rows.sort(key=lambda desktop: (desktop.state == State.READY, -desktop.since_s))
    shown = rows if len(rows) <= room else rows[: room - 1]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", width=min(width, 110))
    table.add_column("DESKTOP", no_wrap=True)
    table.add_column("STATE", no_wrap=True)
    table.add_column("FOR", justify="right", no_wrap=True)
    table.add_column("LEASES", justify="right")
    table.add_column("IN USE", justify="right")
    table.add_column("HOLDER, OR WHAT IS WRONG", ratio=1, overflow="ellipsis", no_wrap=True)
    for desktop in shown:
        table.add_row(*_row(desktop))
    parts: list[Table | Text] = [*_summary(status), Text(), table]
    if len(shown) < len(rows):
        parts.append(Text(f"... and {len(rows) - len(shown)} more", style="dim"))
    return Group(*parts)


def _row(desktop: DesktopStatus) -> tuple[str | Text, ...]:
    total = sum(desktop.seconds.values())
    used = desktop.seconds.get(State.LEASED, 0.0) / total if total else 0.0
    who = desktop.client + (f" ({desktop.group})" if desktop.group else "")
    return (
        desktop.id,
        Text(desktop.state, style=_COLOURS.get(desktop.state, "")),
        duration(desktop.since_s),
        str(desktop.leases),
        f"{used:.0%}",
        who or Text(desktop.doomed, style="dim"),
    )


def _summary(status: PoolStatus) -> list[Text]:
    none = "none left" if status.draining else "none yet"
    counts = ", ".join(f"{count} {state}" for state, count in status.states.items() if count) or none
    size = f"{status.min_vms}-{status.num_vms}" if status.min_vms < status.num_vms else f"{status.num_vms}"
    head = Text.assemble((f"{status.provider} pool of {size}", "bold"), f": {counts}")
    if status.draining:
        head.append("  draining", style="bold red")
    waits = status.waits
    held = f" ({status.parked} held back by a quota)" if status.parked else ""
    waited = f"p50 {duration(waits.p50)}, p95 {duration(waits.p95)}, longest {duration(waits.longest)}"
    lines = [
        head,
        _line("limits now", status.limit),
        _line("in use", f"{status.utilisation:.0%} of desktop time"),
        _line("waiting", f"{status.waiting}{held}"),
        _line("served", f"{waits.count}; waited {waited}" if waits.count else "0"),
    ]
    if status.cost_usd:
        lines.append(_line("cost", f"{status.cost_usd:.2f} USD"))
    if status.last_error:
        failing = f"{counted(status.boot_failures, 'boot')} failed in a row; " if status.boot_failures else ""
        style = "red" if status.boot_failures else "dim"
        lines.append(_line("last error", f"{failing}{status.last_error}", style))
    return lines


def _line(label: str, text: str, style: str = "") -> Text:
    return Text.assemble((f"{label:<11}", "dim"), (text, style))
