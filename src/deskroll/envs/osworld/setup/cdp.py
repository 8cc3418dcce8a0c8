"""Browser: a client of Chromium's debugging port, over HTTP and one WebSocket.

Guarantees: every call has a deadline; leaving the block closes the connection and leaves the browser's tabs as they
are. What a browser says comes from pages that nobody vouches for: it is bounded, and never an address to go to.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from deskroll.clocks import running_time, time_limit
from deskroll.desktops.base import Desktop
from deskroll.envs.osworld.setup.bodies import whole
from deskroll.errors import FailureKind, SetupError, plain
from deskroll.types import Record

PORT = 9222
"""Where OSWorld's tasks have the debugging port, by way of socat."""
START_S = 75.0
"""How long a browser may take to answer; upstream's."""
CALL_S = 30.0
_LOOK_S = 0.1
_CHUNK = 64 * 1024
_MOST = 16 * 1024 * 1024
_SOCKET = re.compile(r"/devtools/browser/[\w-]{1,100}$")


class Tab(Record, frozen=True, rename={"id": "targetId"}):
    """One tab."""

    id: str
    type: str
    url: str = ""
    title: str = ""


class _Version(msgspec.Struct):
    socket: str = msgspec.field(name="webSocketDebuggerUrl")


class _Targets(msgspec.Struct):
    infos: list[Tab] = msgspec.field(name="targetInfos")


class CallError(SetupError):
    """The browser refused a call."""

    kind = FailureKind.CALL_ERROR


@asynccontextmanager
async def browser_of(desktop: Desktop) -> AsyncIterator[Browser]:
    """The desktop's browser, as soon as it answers."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CALL_S)
    async with (
        desktop.forward(PORT) as (host, port),
        aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
    ):
        path = await _socket_path(session, f"http://{host}:{port}/json/version")
        try:
            async with session.ws_connect(f"ws://{host}:{port}{path}", max_msg_size=_MOST) as socket:
                yield Browser(socket)
        except (aiohttp.ClientError, OSError) as error:
            raise SetupError(f"the browser's debugging port broke off: {plain(str(error))}") from error
        except (msgspec.MsgspecError, RecursionError) as error:
            raise SetupError(f"the browser's debugging port talks nonsense: {plain(str(error))}") from error


async def _socket_path(session: aiohttp.ClientSession, url: str) -> str:
    deadline, last = running_time() + START_S, ""
    while running_time() < deadline:
        try:
            async with time_limit(CALL_S), session.get(url, allow_redirects=False) as response:
                version = msgspec.json.decode(await whole(response, _CHUNK), type=_Version)
            if found := _SOCKET.search(version.socket):
                return found[0]
            last = "it answers with something else"
        except (aiohttp.ClientError, OSError, msgspec.MsgspecError, SetupError) as error:  # OSError: a time-out, too
            last = plain(f"{type(error).__name__}: {error}")
        await asyncio.sleep(_LOOK_S)
    raise SetupError(
        f"no browser answers on the desktop's port {PORT} ({last}, after {START_S:g} s); the task must start it with "
        f"--remote-debugging-port, and bring that to {PORT}"
    )


class Browser:
    """Calls, one after the other: what happens in between is looked at, not listened to."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._last = 0

    async def call(
        self, method: str, params: Mapping[str, object], session: str = "", *, timeout: float = CALL_S
    ) -> dict[str, Any]:
        """The result of one call; `session` is that of a tab."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params, **({"sessionId": session} if session else {})}
        try:
            async with time_limit(timeout):
                await self._socket.send_str(msgspec.json.encode(message).decode())
                return await self._answer(method)
        except TimeoutError:
            raise SetupError(f"the browser did not answer {method} within {timeout:g} s") from None

    async def _answer(self, method: str) -> dict[str, Any]:
        while True:
            message = await self._socket.receive()
            if message.type is not aiohttp.WSMsgType.TEXT:
                raise SetupError(f"the browser went away during {method}")
            answer = msgspec.json.decode(message.data)
            if not isinstance(answer, dict) or answer.get("id") != self._last:
                continue  # an event, or the answer to a call that was given up
            if "error" in answer:
                raise CallError(f"{method}: {plain(str(answer['error']))}")
            result = answer.get("result")
            return result if isinstance(result, dict) else {}

    async def tabs(self) -> list[Tab]:
        """All tabs; parts of the browser's own windows that are made like tabs are none."""
        result = await self.call("Target.getTargets", {})
        infos = msgspec.convert(result, _Targets).infos
        return [each for each in infos if each.type == "page" and ".top-chrome" not in each.url]

    async def new_tab(self) -> str:
        """Open an empty tab in front; returns its id."""
        return str((await self.call("Target.createTarget", {"url": "about:blank"})).get("targetId"))

    async def close_tab(self, tab: str) -> None:
        """Close a tab; it is gone afterwards."""
        await self.call("Target.closeTarget", {"targetId": tab})
        deadline = running_time() + CALL_S
        while any(each.id == tab for each in await self.tabs()):
            if running_time() >= deadline:
                raise SetupError(f"a tab was told to close, and is still there after {CALL_S:g} s")
            await asyncio.sleep(_LOOK_S)

    @asynccontextmanager
    async def attach(self, tab: str) -> AsyncIterator[Page]:
        """Talk to one tab for as long as the block lasts."""
        session = str((await self.call("Target.attachToTarget", {"targetId": tab, "flatten": True})).get("sessionId"))
        yield Page(self, session)
        await self.call("Target.detachFromTarget", {"sessionId": session})


class Page:
    """One tab, while it is attached to."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    async def call(self, method: str, params: Mapping[str, object], *, timeout: float = CALL_S) -> dict[str, Any]:
        """The result of one call to this tab."""
        return await self._browser.call(method, params, self._session, timeout=timeout)

    async def value(self, expression: str) -> object:
        """What an expression of JavaScript is now; None while the page is on its way to another one."""
        try:
            result = await self.call("Runtime.evaluate", {"expression": expression, "returnByValue": True})
        except CallError:
            return None
        found = result.get("result")
        return found.get("value") if isinstance(found, dict) else None

    async def goto(self, url: str, timeout: float) -> bool:
        """Go to an address and wait until the page has loaded; False: all of it but some pictures or scripts."""
        deadline = running_time() + timeout
        result = await self.call("Page.navigate", {"url": url}, timeout=timeout)
        if problem := result.get("errorText"):
            raise SetupError(f"the browser cannot open {plain(url)}: {plain(str(problem))}")
        while (state := await self.value("document.readyState")) != "complete":
            if running_time() >= deadline:
                if state == "interactive":
                    return False
                raise SetupError(f"the browser did not open {plain(url)} within {timeout:g} s")
            await asyncio.sleep(_LOOK_S)
        return True

    async def until(self, expression: str, what: str, timeout: float) -> object:
        """Wait until an expression is true, and return its value."""
        deadline = running_time() + timeout
        while not (value := await self.value(expression)):
            if running_time() >= deadline:
                raise SetupError(f"{what}: not so after {timeout:g} s")
            await asyncio.sleep(_LOOK_S)
        return value
