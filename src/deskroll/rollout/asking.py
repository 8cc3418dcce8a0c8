"""Asks a live run, from another process: who lives, what it does, what happens; and tells it to change or to stop."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import aiohttp
import msgspec

from deskroll.errors import DeskrollError, InputError
from deskroll.host.owner import is_left, is_stopped, marked_process
from deskroll.rollout.control import ChangeLimits, StopRun, mark_of, sockets_folder
from deskroll.rollout.status import RunStatus
from deskroll.store import Run, find_run
from deskroll.types import Record

_ASK_S = 8.0


class NotLive(InputError):
    """Nobody runs what is in a folder at this moment."""

    def __init__(self, root: str) -> None:
        super().__init__(f"run {root} is not live: see  deskroll report {root}")
        self.root = root


async def find_live(run: str | None) -> Path:
    """The socket of a live run: that of the folder, or the only one."""
    if run is not None:
        root = find_run(run)
        holder = Run.open(root).holder()
        if holder is None or not holder.socket:
            raise NotLive(root)
        return Path(holder.socket)
    live, silent = [], []
    for path in sorted(sockets_folder().glob("*.sock")):
        try:
            live.append((path, await ask(path)))
        except DeskrollError as error:
            if not is_left(mark_of(path)):  # else a run that was killed has left it
                silent.append(f"  {error}")
    if silent and not live:
        raise InputError("\n".join(("no run of yours answers on this machine:", *silent)))
    if not live:
        raise InputError("no run of yours is live on this machine; name the folder of one, or start one: deskroll run")
    if len(live) > 1:
        names = "\n".join(f"  {status.folder}" for _, status in live)
        raise InputError(f"several runs are live; name one:\n{names}")
    return live[0][0]


def stopped(socket: Path) -> str:
    """That the process of a run stands still, and what lets it go on; empty: it does not."""
    pid = marked_process(mark_of(socket))
    if not pid or not is_stopped(pid):
        return ""
    return f"the run at {socket} does not answer: process {pid} is stopped (state T): kill -CONT {pid} lets it go on"


async def ask(socket: Path) -> RunStatus:
    """What it does."""
    return await _call(socket, "GET", "/status")


async def change_limits(socket: Path, num_rollouts: int) -> RunStatus:
    """Have it run so many episodes at a time from now on; what it does then."""
    return await _call(socket, "POST", "/limits", ChangeLimits(num_rollouts=num_rollouts))


async def stop_run(socket: Path, *, now: bool = False) -> RunStatus:
    """Have it end; what it does until then."""
    return await _call(socket, "POST", "/stop", StopRun(now=now))


async def follow_events(socket: Path, last: int = 0) -> AsyncGenerator[bytes]:
    """Its events, a line each, as they happen, after the last so many; ends when the run does."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_ASK_S)
    connector = aiohttp.UnixConnector(str(socket))
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=2**20) as http,
            http.get(f"http://run/events?last={last}") as response,
        ):
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError) as error:
        raise _silence(socket, error) from error


async def _call(socket: Path, method: str, path: str, body: Record | None = None) -> RunStatus:
    if why := stopped(socket):
        raise DeskrollError(why)
    timeout = aiohttp.ClientTimeout(total=_ASK_S)
    data = msgspec.json.encode(body) if body is not None else None
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket)), timeout=timeout) as http,
            http.request(method, f"http://run{path}", data=data) as response,
        ):
            answer = await response.read()
            if response.status != 200:
                raise InputError(msgspec.json.decode(answer).get("error", "the run refused"))
            return msgspec.json.decode(answer, type=RunStatus)
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise _silence(socket, error) from error


def _silence(socket: Path, error: Exception) -> DeskrollError:
    """Why a run does not answer, as far as that can be seen."""
    if why := stopped(socket):
        return DeskrollError(why)
    pid = marked_process(mark_of(socket))
    what = f"its process {pid} lives, so ask again" if pid else "was it killed?"
    return DeskrollError(f"the run at {socket} does not answer: {type(error).__name__}; {what}")
