"""update_browse_history: a browser that remembers visits, by way of the file in which Chromium keeps them.

The file is written anew, as upstream does, so that it holds these visits and no others. A browser reads it when it
starts: the step belongs before its launch.
"""

from __future__ import annotations

import asyncio
import shlex
import sqlite3
import time
from importlib import resources

from deskroll.desktops.base import Desktop
from deskroll.envs.osworld.setup.context import SetupContext
from deskroll.envs.osworld.setup.records import History, Visit
from deskroll.errors import SetupError, plain

_EPOCH_S = 11_644_473_600
"""From 1601, Chromium's beginning of time, to 1970."""
_TYPED_LINK = 805_306_368
"""A link that was followed, begin and end of a chain: upstream's."""
_RUN_S = 30.0


async def update(desktop: Desktop, given: History, context: SetupContext) -> None:
    """Replace the history of the browser's default profile."""
    profile = context.settings.browser_profile
    data = await asyncio.to_thread(history_file, given.history, time.time())
    where = await desktop.run(
        f"mkdir -p {_home(profile)}/Default && cd {_home(profile)}/Default && pwd", timeout=_RUN_S
    )
    folder = where.output.strip()
    if where.returncode != 0 or not folder:
        raise SetupError(f"the profile {profile!r} cannot be made: {plain(where.error)}")
    path = f"{folder}/History"
    removed = await desktop.run(["rm", "-f", path, f"{path}-journal", f"{path}-wal"], timeout=_RUN_S)
    if removed.returncode != 0:
        raise SetupError(f"the history before cannot be removed: {path}: {plain(removed.error)}")
    await desktop.write_file(path, data)


def _home(path: str) -> str:
    """For the shell, which knows where `~` is."""
    return f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else shlex.quote(path)


def history_file(visits: list[Visit], now: float) -> bytes:
    """The bytes of Chromium's file `History` with these visits."""
    database = sqlite3.connect(":memory:")
    try:
        database.executescript(resources.files(__package__).joinpath("history.sql").read_text(encoding="utf-8"))
        for visit in visits:
            when = int((now - visit.visit_time_from_now_in_seconds + _EPOCH_S) * 1_000_000)
            row = database.execute(
                "INSERT INTO urls (url, title, visit_count, typed_count, last_visit_time, hidden)"
                " VALUES (?, ?, 1, 0, ?, 0)",
                (visit.url, visit.title, when),
            )
            database.execute(
                "INSERT INTO visits (url, visit_time, from_visit, transition, segment_id, visit_duration)"
                " VALUES (?, ?, 0, ?, 0, 0)",
                (row.lastrowid, when, _TYPED_LINK),
            )
        database.commit()
        return database.serialize()
    finally:
        database.close()
