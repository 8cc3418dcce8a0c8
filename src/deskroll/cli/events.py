"""`deskroll events`: what happened in a run, and what happens in it at this moment."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, get_args

import click

from deskroll.cli.numbers import WholeRange
from deskroll.conduct.terminals import is_unread
from deskroll.errors import plain

if TYPE_CHECKING:
    from pathlib import Path

    from deskroll.events import Event

_LAST = 20
_LOOK_S = 2.0
"""How often it is looked whether the run's process stands still."""
_WIDE = 18
_FOR_PROGRAMS = ("ran_s", "visit")


@click.command(
    epilog="\b\nExamples:\n  deskroll events --follow\n  deskroll events results/20260131-120000 --kind desktop\n"
    "  deskroll events --follow --json --episode eval/0/note/0"
)
@click.argument("run", required=False)
@click.option("--follow", is_flag=True, help="Go on with what happens, until the run ends or Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--kind", "kinds", multiple=True, help="Only such events: a whole kind, or its first word (desktop).")
@click.option("--episode", default="", help="Only those of an episode: phase/round/task/sample, or with #attempt.")
@click.option("--last", type=WholeRange(0), help=f"Only the last so many; with --follow {_LAST} come first.")
def events(
    *, run: str | None, follow: bool, as_json: bool, kinds: tuple[str, ...], episode: str, last: int | None
) -> None:
    """What happens in a run, one line an event: desktops, stages of episodes, retries, model servers, workers.

    RUN is its folder; without one, the live run of yours on this machine. Without --follow, what the run's folder
    holds of it.
    """
    _check_kinds(kinds)
    show = _Shown(kinds, episode, as_json=as_json)
    try:
        asyncio.run(_follow(run, show, _LAST if last is None else last) if follow else _show_kept(run, show, last))
    except KeyboardInterrupt:
        return  # that is how one leaves it


async def _follow(run: str | None, show: _Shown, last: int) -> None:
    from deskroll.rollout.asking import find_live, follow_events  # noqa: PLC0415

    socket = await find_live(run)
    watch = asyncio.create_task(_tell_stopped(socket))
    try:
        async with aclosing(follow_events(socket, last)) as lines:
            async for line in lines:
                if shown := show.line(line):
                    click.echo(shown)
                    sys.stdout.flush()
                if is_unread(sys.stdout):
                    return
    finally:
        watch.cancel()


async def _tell_stopped(socket: Path) -> None:
    """Say it when the run's process stands still: nothing happens then, and nobody else would tell."""
    from deskroll.rollout.asking import stopped  # noqa: PLC0415

    told = ""
    while True:
        await asyncio.sleep(_LOOK_S)
        if (found := stopped(socket)) and not told:
            click.echo(found, err=True)
        told = found


async def _show_kept(run: str | None, show: _Shown, last: int | None) -> None:
    from deskroll.rollout.asking import ask, find_live  # noqa: PLC0415
    from deskroll.rollout.events.file import read_lines  # noqa: PLC0415
    from deskroll.store import Storage, find_run  # noqa: PLC0415

    root = (await ask(await find_live(None))).folder if run is None else find_run(run)
    shown: Iterator[str] = filter(None, map(show.line, read_lines(Storage.at(root))))
    for line in shown if last is None else deque(shown, maxlen=last):
        click.echo(line)


class _Shown:
    """Which events are shown, and how."""

    def __init__(self, kinds: tuple[str, ...], episode: str, *, as_json: bool) -> None:
        self._kinds = kinds
        self._episode = episode
        self._as_json = as_json

    def line(self, data: bytes) -> str:
        """What is printed of an event; empty where it is not asked for."""
        import msgspec  # noqa: PLC0415

        from deskroll.events import Event, kind_of  # noqa: PLC0415

        try:
            event = msgspec.json.decode(data, type=Event)
        except msgspec.MsgspecError:  # of another version of deskroll
            return "" if self._kinds or self._episode else plain(data.decode(errors="replace"), 2000)
        kind = kind_of(event)
        if self._kinds and not any(kind == each or kind.startswith(f"{each}.") for each in self._kinds):
            return ""
        if self._episode and self._episode not in _names(event):
            return ""
        return data.decode() if self._as_json else _readable(event, kind)


def _names(event: Event) -> tuple[str, ...]:
    """What the episode of an event is called, with and without its attempt."""
    from deskroll.events import OfAttempt  # noqa: PLC0415
    from deskroll.store.names import name_of  # noqa: PLC0415

    if isinstance(event, OfAttempt):
        name = name_of(event.key, event.attempt)
        return name, name.rpartition("#")[0]
    return (getattr(event, "session", ""),)


def _readable(event: Event, kind: str) -> str:
    """One line for people: when, what, to whom, and the rest as name=value."""
    fields = {name: getattr(event, name) for name in event.__struct_fields__ if name not in ("at", "attempt")}
    if fields.pop("key", None) is not None:
        fields = {"key": _names(event)[0], **fields}
    reason = fields.pop("reason", "")
    whom = str(fields.pop(next(iter(fields)))) if fields else ""
    shown = {name: _value(value) for name, value in fields.items() if name not in _FOR_PROGRAMS}
    rest = " ".join(f"{name}={value}" for name, value in shown.items() if value not in _nothing(name))
    moment = time.strftime("%H:%M:%S", time.localtime(event.at)) + f".{int(event.at % 1 * 1000):03}"
    line = "  ".join(filter(None, (moment, f"{kind:<{_WIDE}}", whom, rest, reason)))
    return plain(line, 2000).rstrip()


def _nothing(name: str) -> tuple[str, ...]:
    """What of a field says nothing; a score of 0 does say something."""
    return ("", "None", "False", "{}") if name == "score" else ("", "None", "False", "{}", "0")


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_value(each)}" for name, each in value.items()) + "}"
    return str(value)


def _check_kinds(given: tuple[str, ...]) -> None:
    """Refuse what no event is called by."""
    from deskroll.events import Event, kind_of  # noqa: PLC0415

    known = sorted(kind_of(each) for each in get_args(Event))
    words = {*known, *(each.partition(".")[0] for each in known)}
    for kind in given:
        if kind not in words:
            raise click.UsageError(f"--kind: there is no event {plain(kind)!r}; there are: {', '.join(known)}")
