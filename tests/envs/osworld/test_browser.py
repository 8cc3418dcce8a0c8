"""Tabs, history and a login, in a real browser on a real desktop that has no network."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from deskroll.desktops.guest.client import GuestDesktop
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.envs.osworld.setup import SetupContext, perform
from deskroll.envs.osworld.setup.cdp import browser_of
from deskroll.envs.osworld.setup.history import history_file
from deskroll.envs.osworld.setup.records import Visit
from deskroll.envs.osworld.setup.tabs import same_page
from deskroll.errors import SetupError
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
SITE = "http://127.0.0.1:8000"
PROFILE = "~/.config/chromium"
SERVER = r"""
import http.server, urllib.parse

SIGN_IN = '''<title>Sign in</title><div id=a><input type=email id=e><div id=identifierNext><div><button
 onclick="a.remove(); b.hidden = false">Next</button></div></div></div><div id=b hidden><input type=password id=p>
<div id=passwordNext><div><button onclick="if (p.value == 'open sesame') { document.cookie = 'in=1; path=/';
 location = '/drive' } else { c.textContent = 'wrong' }">Next</button></div></div><p id=c></div>'''


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == '/drive' and 'in=1' not in (self.headers['Cookie'] or ''):
            self.send_response(302)
            self.send_header('Location', '/signin')
            self.end_headers()
            return
        page = SIGN_IN if self.path == '/signin' else f'<title>page {self.path}</title>{self.path}'
        self.send_response(200)
        self.send_header('Content-Type', 'text/html')
        self.end_headers()
        self.wfile.write(page.encode())


http.server.ThreadingHTTPServer(('127.0.0.1', 8000), Handler).serve_forever()
"""


def step(kind: str, **parameters: Any) -> dict[str, Any]:
    return {"type": kind, "parameters": parameters}


CHROMIUM = step("launch", command=["chromium", "--no-first-run", "--remote-debugging-port=9222"])


def around(**settings: Any) -> SetupContext:
    return SetupContext("t", OSWorldSettings(browser_profile=PROFILE, **settings))


@pytest_asyncio.fixture
async def served(local: GuestDesktop) -> AsyncIterator[GuestDesktop]:
    """A desktop that serves pages to itself."""
    await local.write_file("/home/user/server.py", SERVER.encode())
    up = "python3 -c 'import urllib.request as r; r.urlopen(\"http://127.0.0.1:8000/\")'"
    steps = [
        step("launch", command=["python3", "/home/user/server.py"]),
        step("execute", command=up, until={"returncode": 0}),
    ]
    await perform(steps, local, around())
    yield local


async def shown(desktop: GuestDesktop) -> list[str]:
    async with browser_of(desktop) as browser:
        return sorted(tab.url for tab in await browser.tabs())


async def test_tabs_are_opened_and_closed(served: GuestDesktop) -> None:
    urls = [f"{SITE}/one", "127.0.0.1:8000/two?x=1", f"{SITE}/three"]
    await perform([CHROMIUM, step("chrome_open_tabs", urls_to_open=urls)], served, around())
    expected = [f"{SITE}/one", f"{SITE}/three", f"{SITE}/two?x=1"]
    assert await shown(served) == expected, "and the tab that was there first is gone"

    async def in_front() -> bool:
        return any("page /three" in window.title for window in await served.windows())

    await eventually(in_front, "the last page is in front")
    await perform([step("chrome_close_tabs", urls_to_close=[f"{SITE}/one", f"{SITE}/three"])], served, around())
    assert await shown(served) == [f"{SITE}/two?x=1"]
    with pytest.raises(SetupError, match=r"\(chrome_open_tabs\): the browser cannot open .*ERR_CONNECTION_REFUSED"):
        await perform([step("chrome_open_tabs", urls_to_open=["http://127.0.0.1:1234/"])], served, around())

    async def let_go() -> bool:
        return (await served.run(f"grep -qE ':{9222:04X} .* 01 ' /proc/net/tcp")).returncode == 1

    async with browser_of(served):
        assert not await let_go()
    await eventually(let_go, "no connection to the browser is left, also after a failure")


async def test_a_history_is_what_the_browser_finds(local: GuestDesktop) -> None:
    visits = [
        {"url": "https://example.org/a", "title": "Café 강", "visit_time_from_now_in_seconds": 3600},
        {"url": "https://example.org/b", "title": "", "visit_time_from_now_in_seconds": 60},
    ]
    steps = [
        step("update_browse_history", history=visits),
        CHROMIUM,
        step("chrome_open_tabs", urls_to_open=["chrome://history"]),
    ]
    await perform(steps, local, around())

    async def listed() -> bool:
        return "Café 강" in await local.accessibility_tree()

    await eventually(listed, "the browser's own page lists the visit")


@pytest.fixture
def account(tmp_path: Path) -> Path:
    path = tmp_path / "account.json"
    path.write_text(json.dumps({"email": "me@example.org", "password": "open sesame"}))
    return path


async def test_a_login(served: GuestDesktop, account: Path) -> None:
    here = around(google_account=str(account), google_drive_page=f"{SITE}/drive")
    login = step("login", platform="googledrive", settings_file="/etc/passwd")
    await perform([CHROMIUM, login], served, here)
    assert f"{SITE}/drive" in await shown(served)
    await perform([login], served, here)
    assert (await shown(served)).count(f"{SITE}/drive") == 2, "who is in, is not asked again"


async def test_without_an_account_nobody_logs_in(sim: GuestDesktop, tmp_path: Path) -> None:
    login = step("login", platform="googledrive")
    with pytest.raises(SetupError, match=r"set-up step 0 \(login\): it needs an account at Google, and none is given"):
        await perform([login], sim, around())
    path = tmp_path / "account.json"
    with pytest.raises(SetupError, match=r"account\.json: it cannot be read: No such file"):
        await perform([login], sim, around(google_account=str(path)))
    path.write_text('{"password": "open sesame", "email": 7}')
    with pytest.raises(SetupError, match="is not a JSON object with email and password") as caught:
        await perform([login], sim, around(google_account=str(path)))
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("https://www.tripadvisor.com/", "https://www.tripadvisor.com", True),
        ("https://www.airbnb.com.sg/rooms", "https://airbnb.com/rooms", True),
        ("https://a.example.co.uk/x", "https://b.example.co.uk/x", False),
        ("https://example.org/?a=1", "https://example.org/?a=2", False),
        ("https://example.org/a", "https://example.org/b", False),
        ("http://127.0.0.1:80/", "http://127.0.0.2:80/", False),
        ("example.org", "http://example.org/", True),
        ("chrome://version/", "chrome://version", True),
        ("http://[", "http://[", True),
    ],
)
def test_addresses_of_one_page(one: str, two: str, same: bool) -> None:
    assert same_page(one, two) is same


def test_the_history_file_holds_the_visits_as_chromium_writes_them(tmp_path: Path) -> None:
    visit = Visit(url="https://example.org/a", title="A", visit_time_from_now_in_seconds=60)
    path = tmp_path / "History"
    path.write_bytes(history_file([visit, visit], now=1_700_000_060.0))
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute(
            "SELECT urls.url, title, visit_count, last_visit_time, visit_time, transition"
            " FROM visits JOIN urls ON urls.id = visits.url"
        ).fetchall()
    microseconds = (1_700_000_000 + 11_644_473_600) * 1_000_000
    assert rows == [("https://example.org/a", "A", 1, microseconds, microseconds, 805306368)] * 2
