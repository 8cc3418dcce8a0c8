"""login: logs the desktop's browser in at Google, so that its drive opens.

Guarantees: the password goes to the page's own field, and into no message. Where Google asks for more than that (a
code, a picture), the step fails and says so; upstream goes on with a browser that is not logged in.
"""

from __future__ import annotations

import json

from deskroll.desktops.base import Desktop
from deskroll.envs.osworld.setup.accounts import google_account
from deskroll.envs.osworld.setup.cdp import Page, browser_of
from deskroll.envs.osworld.setup.context import SetupContext
from deskroll.envs.osworld.setup.records import Login
from deskroll.errors import SetupError

PAGE_S = 60.0
FIELD_S = 30.0
_FOUND = "(e => {1})(document.querySelector({0}))"
_VISIBLE = "!!e && e.getClientRects().length > 0"
_FOCUSED = "!!e && (e.focus(), e.select(), document.activeElement === e)"
_CLICKED = "!!e && (e.click(), true)"
_EMAIL, _PASSWORD = 'input[type="email"]', 'input[type="password"]'
_NEXT, _ENTER = "#identifierNext button", "#passwordNext button"


async def login(desktop: Desktop, given: Login, context: SetupContext) -> None:
    """Log in, unless the browser is; the drive is open in a tab afterwards."""
    account, url = google_account(context.settings), context.settings.google_drive_page
    there = f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'"
    async with browser_of(desktop) as browser, browser.attach(await browser.new_tab()) as page:
        await page.goto(url, PAGE_S)
        asked = f"{_on(_EMAIL, _VISIBLE)} ? 'asked' : ({there} ? 'in' : '')"
        if await page.until(asked, "Google shows neither its login nor the drive", PAGE_S) == "in":
            return
        await _enter(page, _EMAIL, account.email, _NEXT, "the address")
        await _enter(page, _PASSWORD, account.password, _ENTER, "the password")
        await page.until(
            there, f"Google did not let the account in to {url}; it may ask for more than a password", PAGE_S
        )


async def _enter(page: Page, field: str, text: str, button: str, what: str) -> None:
    await page.until(_on(field, _VISIBLE), f"Google does not ask for {what}", FIELD_S)
    if not await page.value(_on(field, _FOCUSED)):
        raise SetupError(f"Google's field for {what} does not take the focus")
    await page.call("Input.insertText", {"text": text})
    if not await page.value(_on(button, _CLICKED)):
        raise SetupError(f"Google's page for {what} has no button {button!r}")


def _on(selector: str, what: str) -> str:
    """JavaScript that says something of, or does something to, the element `e` of a selector."""
    return _FOUND.format(json.dumps(selector), what)
