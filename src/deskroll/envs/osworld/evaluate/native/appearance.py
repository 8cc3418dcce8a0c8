"""The appearance that a browser shows its pages in, as chosen in its settings: `light`, `dark` or `system`.

A browser that runs is asked itself, over its debugging port: it writes its profile up to 10 s late. Where none answers,
the profile tells; what a browser without that port has chosen has been written by the time that asking is given up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from deskroll.clocks import time_limit
from deskroll.desktops.base import Desktop
from deskroll.envs.osworld.evaluate.running import run_whole
from deskroll.envs.osworld.setup.cdp import Browser, browser_of
from deskroll.errors import SetupError

SYSTEM = "system"
_MODES = {1: "light", 2: "dark"}
_ASK_S = 30.0
_PAGE = "chrome://prefs-internals/"
"""All settings as they are now, as JSON; the page of settings itself has no other way to this one than its looks."""
_CHOSEN = """(() => {
    const theme = JSON.parse(document.body.innerText).browser.theme;
    return ["color_scheme2", "color_scheme"].map(name => theme[name]?.value ?? theme[name] ?? null);
})()"""


def mode_of(chosen: Sequence[object]) -> str:
    """The first choice that is one; a browser without any follows the system."""
    return next((_MODES[each] for each in chosen if isinstance(each, int) and each in _MODES), SYSTEM)


async def live_mode(desktop: Desktop) -> str | None:
    """What the desktop's browser says; None where none runs, or none answers."""
    running = await run_whole(desktop, "pgrep -f '[c]hrom'")
    if running.returncode == 1:  # anything else: it is not known
        return None
    try:
        async with time_limit(_ASK_S), browser_of(desktop) as browser:
            chosen = await _ask_browser(browser)
    except (SetupError, TimeoutError):
        return None
    return mode_of(chosen) if isinstance(chosen, list) else None


async def _ask_browser(browser: Browser) -> object:
    """In a tab of its own, behind the others, which is closed again."""
    tab = str((await browser.call("Target.createTarget", {"url": "about:blank", "background": True})).get("targetId"))
    try:
        async with browser.attach(tab) as page:
            await page.goto(_PAGE, _ASK_S)
            return await page.value(_CHOSEN)
    finally:
        with contextlib.suppress(SetupError):
            await browser.close_tab(tab)
