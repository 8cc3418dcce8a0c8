"""open, activate_window, close_window.

A window that a step names may still be on its way, since programs are started and left alone: it is waited for. After
the agent has ended (`SetupContext.forgiving`) nothing is on its way any more: a window that is not there was closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from deskroll.clocks import running_time
from deskroll.desktops.base import Desktop
from deskroll.envs.osworld.setup.context import SetupContext
from deskroll.envs.osworld.setup.records import Open, WindowName, is_true
from deskroll.errors import GuestError, SetupError

WINDOW_S = 60.0
"""How long a program may take to show a window."""
_LOOK_S = 0.1


async def open_file(desktop: Desktop, given: Open, context: SetupContext) -> None:
    """Open a file in its program; its window is there afterwards."""
    await desktop.open_file(given.path)


async def activate(desktop: Desktop, given: WindowName, context: SetupContext) -> None:
    """Bring a window to the front."""
    await _with_window(desktop.activate_window, given, context)


async def close(desktop: Desktop, given: WindowName, context: SetupContext) -> None:
    """Ask a window to close."""
    await _with_window(desktop.close_window, given, context)


async def _with_window(call: Callable[..., Awaitable[None]], given: WindowName, context: SetupContext) -> None:
    deadline = running_time() + WINDOW_S
    while True:
        try:
            await call(given.window_name, strict=is_true(given.strict), by_class=is_true(given.by_class))
        except GuestError as error:
            if error.status != HTTPStatus.NOT_FOUND or context.forgiving:
                raise
            if running_time() >= deadline:
                raise SetupError(f"no window {given.window_name!r} came up within {WINDOW_S:g} s") from error
        else:
            return
        await asyncio.sleep(_LOOK_S)
