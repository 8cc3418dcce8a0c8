"""chrome_open_tabs, chrome_close_tabs: the tabs of the desktop's browser."""

from __future__ import annotations

import asyncio
import logging
import re
from urllib.parse import urlsplit

from deskroll.clocks import running_time
from deskroll.desktops.base import Desktop
from deskroll.envs.osworld.setup.cdp import Browser, Tab, browser_of
from deskroll.envs.osworld.setup.context import SetupContext
from deskroll.envs.osworld.setup.records import CloseTabs, OpenTabs
from deskroll.errors import SetupError, plain

_log = logging.getLogger(__name__)
PAGE_S = 60.0
"""For a page to load; upstream's."""
TAB_S = 30.0
"""For a tab that is to be closed to be there."""
_LOOK_S = 0.1
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:(?://|[^0-9])")
_SUFFIX = re.compile(r"\.(?:(?:com?|org|net|gov|edu|ac)\.)?[a-z]{2,}$")
_EMPTY = ("about:blank", "chrome://newtab/", "chrome://new-tab-page/")


async def open_tabs(desktop: Desktop, given: OpenTabs, context: SetupContext) -> None:
    """Open pages in tabs, the last one in front; the browser's first tab goes, as with upstream."""
    if not given.urls_to_open:
        return
    async with browser_of(desktop) as browser:
        first = await _first(browser)
        for url in given.urls_to_open:
            async with browser.attach(await browser.new_tab()) as page:
                if not await page.goto(_full(url), PAGE_S):
                    _log.warning(
                        "task %r: %s is shown, and parts of it have not loaded within %g s",
                        context.task_id, plain(url), PAGE_S,
                    )  # fmt: skip
            if first is not None:
                await browser.close_tab(first.id)
                first = None


async def close_tabs(desktop: Desktop, given: CloseTabs, context: SetupContext) -> None:
    """Close the tabs that show these addresses."""
    async with browser_of(desktop) as browser:
        for url in given.urls_to_close:
            await browser.close_tab((await _showing(browser, url)).id)


async def _first(browser: Browser) -> Tab | None:
    """The tab that the browser began with: an empty one, if there is one."""
    tabs = await browser.tabs()
    empty = [each for each in tabs if each.url in _EMPTY]
    return next(iter([*empty, *tabs]), None)


async def _showing(browser: Browser, url: str) -> Tab:
    deadline = running_time() + TAB_S
    while True:
        tabs = await browser.tabs()
        for each in tabs:
            if same_page(each.url, url):
                return each
        if running_time() >= deadline:
            there = ", ".join(plain(each.url, 100) for each in tabs[:10])
            raise SetupError(f"no tab shows {plain(url)}, which is to be closed; there are: {there or 'none'}")
        await asyncio.sleep(_LOOK_S)


def _full(url: str) -> str:
    """People leave the scheme out."""
    return url if _SCHEME.match(url) else f"http://{url}"


def same_page(one: str, two: str) -> bool:
    """Whether two addresses are of one page, as upstream compares them: whatever the country, with www or without."""
    return _normal(one) == _normal(two)


def _normal(url: str) -> tuple[str, ...]:
    try:
        parts = urlsplit(_full(url))
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return (url,)
    host = host.removeprefix("www.")
    if host.count(".") and not host.rpartition(".")[2].isdigit():
        host = _SUFFIX.sub("", host)
    path = "" if parts.path == "/" else parts.path
    return parts.scheme.lower(), f"{host}:{port or ''}", path, parts.query, parts.fragment
