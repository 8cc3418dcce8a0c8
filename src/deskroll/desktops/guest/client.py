"""The one async Desktop: speaks to any guest, ours or a stock OSWorld one, and finds out by itself which it is.

Guarantees: every call ends by its deadline, with a result or with a `DesktopError` that names the desktop and says
what happened. The connection is the holder's own; closing it leaves the desktop as it is.
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec

from deskroll.actions import Action, Script, Typing, Wait
from deskroll.desktops.base import Address, Observe, RunResult, Settle, StepResult, Window
from deskroll.desktops.guest.files import MAX_FILE
from deskroll.desktops.guest.forward import forward_through_guest
from deskroll.desktops.guest.requests import ClipboardText, PathRequest, WindowRequest
from deskroll.desktops.guest.stock import step_on_stock
from deskroll.desktops.guest.transport import Hold, Transport
from deskroll.errors import DesktopError, GuestError

T = TypeVar("T")
CALL_S = 30.0
"""Deadline of a call that should take milliseconds, on a machine under heavy load."""
OPEN_S = 90.0
"""For a program to start and show a file; the guest itself gives up a little earlier."""
SCRIPT_S = 90.0
"""The longest that a script may run inside."""
TYPING_S = 0.01
"""For each character of a text, on a machine under heavy load."""


class _Executed(msgspec.Struct):
    output: str = ""
    error: str = ""
    returncode: int = 0


class _Tree(msgspec.Struct):
    AT: str


class _Terminal(msgspec.Struct):
    output: str | None = None


class GuestDesktop:
    """A desktop at an address. Use with `async with`, or close it. With a `hold`, it works for as long as that does."""

    def __init__(self, address: Address, *, timeout: float = CALL_S, hold: Hold | None = None) -> None:
        self.address = address
        self._timeout = timeout
        self._transport = Transport(address, hold)
        self._stock: bool | None = None
        """Whether it has OSWorld's endpoints only; None: nobody has asked yet."""

    @property
    def id(self) -> str:
        """The desktop's id."""
        return self.address.id

    @property
    def simulated(self) -> bool:
        """Whether no program runs there."""
        return self.address.simulated

    @property
    def abandoned(self) -> bool:
        """Whether a request was given up without an answer: it may still arrive, at any time."""
        return self._transport.unanswered > 0

    async def __aenter__(self) -> GuestDesktop:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def screenshot(self, image: str = "png") -> bytes:
        """Look at the screen now."""
        path = "/screenshot" if image == "png" else f"/screenshot?image={image}"
        return await self._transport.request("GET", path, timeout=self._timeout)

    async def accessibility_tree(self, in_flight: int | None = None) -> str:
        """The accessibility tree as OSWorld's XML; `in_flight` questions at a time, which is the guest's affair."""
        path = "/accessibility" if in_flight is None else f"/accessibility?in_flight={in_flight}"
        return (await self._get(path, _Tree)).AT

    async def terminal(self) -> str | None:
        """Text of the focused terminal, None when there is none."""
        return (await self._get("/terminal", _Terminal)).output

    async def cursor_position(self) -> tuple[int, int]:
        """Where the pointer is."""
        return await self._get("/cursor_position", tuple[int, int])

    async def step(
        self, actions: Sequence[Action], *, settle: Settle | None = Settle(), observe: Observe = Observe()
    ) -> StepResult:
        """Act, settle, look: one round trip, or OSWorld's endpoints one by one on a stock guest."""
        if await self._is_stock():
            return await step_on_stock(self, actions, settle, observe)
        timeout = self._timeout + sum(map(_time_of, actions)) + (settle.cap if settle else 0.0)
        answer = await self._post("/step", {"actions": actions, "settle": settle, "observe": observe}, timeout)
        return self._transport.decode(answer, StepResult, "/step", packed=True)

    async def run(self, command: Sequence[str] | str, *, timeout: float = 120.0) -> RunResult:
        """Run a program to its end; a string goes through the shell."""
        answer = await self._post("/execute", _command(command), timeout)
        done = self._transport.decode(answer, _Executed, "/execute")
        return RunResult(returncode=done.returncode, output=done.output, error=done.error)

    async def launch(self, command: Sequence[str] | str) -> None:
        """Start a program and leave it running."""
        await self._post("/setup/launch", _command(command))

    async def open_file(self, path: str) -> None:
        """Open a file in its program; returns when its window is there."""
        await self._post("/setup/open_file", PathRequest(path), OPEN_S)

    async def windows(self) -> list[Window]:
        """All windows, oldest first; not on a stock guest."""
        return await self._get("/windows", list[Window])

    async def read_clipboard(self) -> str:
        """The text that was copied last; not on a stock guest."""
        return (await self._get("/clipboard", ClipboardText)).text

    async def write_clipboard(self, text: str) -> None:
        """Put text where programs paste from; not on a stock guest."""
        await self._post("/clipboard", ClipboardText(text))

    async def activate_window(self, name: str, *, strict: bool = False, by_class: bool = False) -> None:
        """Bring the window of that title (or class) to the front."""
        await self._post("/setup/activate_window", WindowRequest(name, strict, by_class))

    async def close_window(self, name: str, *, strict: bool = False, by_class: bool = False) -> None:
        """Ask the window of that title (or class) to close."""
        await self._post("/setup/close_window", WindowRequest(name, strict, by_class))

    async def read_file(self, path: str, *, max_size: int = MAX_FILE) -> bytes:
        """Read a file of the desktop."""
        form = aiohttp.FormData({"file_path": path})
        return await self._transport.request("POST", "/file", timeout=self._timeout, body=form, max_answer=max_size)

    async def write_file(self, path: str, data: bytes, *, timeout: float | None = None) -> None:
        """Write a file in the desktop, making its folder."""
        form = aiohttp.FormData()
        form.add_field("file_path", path)
        # As a stream: aiohttp warns of large bodies in one piece.
        form.add_field("file_data", io.BytesIO(data), filename="file")
        await self._transport.request("POST", "/setup/upload", timeout=timeout or self._timeout, body=form)

    async def start_recording(self, fps: int = 5) -> None:
        """Start to record the screen; a stock guest has a rate of its own."""
        await self._transport.request("POST", f"/start_recording?fps={fps}", timeout=self._timeout)

    async def end_recording(self) -> bytes:
        """Stop recording and return the video (mp4)."""
        return await self._transport.request("POST", "/end_recording", timeout=self._timeout, max_answer=MAX_FILE)

    @asynccontextmanager
    async def forward(self, port: int) -> AsyncIterator[tuple[str, int]]:
        """Reach a TCP port inside the desktop at the (host, port) that this yields."""
        if await self._is_stock():
            yield urlsplit(self.address.endpoint).hostname or "127.0.0.1", port  # its ports are on its own address
            return
        async with forward_through_guest(self._transport, port) as place:
            yield place

    async def exchange(
        self, method: str, path: str, *, timeout: float, body: bytes | aiohttp.FormData | None, max_answer: int
    ) -> tuple[int, bytes]:
        """Status and body of any request to the guest, for who speaks its protocol himself."""
        return await self._transport.exchange(method, path, timeout=timeout, body=body, max_answer=max_answer)

    async def failure(self, method: str, path: str, status: int, answer: bytes) -> DesktopError:
        """What an answer of `exchange` that is no 200 means; a `GuestError` where it is about that request alone."""
        return await self._transport.failure(method, path, status, answer)

    async def check(self) -> None:
        """Raise unless the guest answers and every part of the desktop is alive."""
        path = "/screenshot" if await self._is_stock() else "/health"
        await self._transport.request("GET", path, timeout=self._timeout)

    async def close(self) -> None:
        """Let go of connections; the desktop itself lives on."""
        await self._transport.close()

    async def _is_stock(self) -> bool:
        """Ask once what kind of guest this is."""
        if self._stock is None:
            try:
                await self._transport.request("GET", "/deskroll", timeout=self._timeout)
                self._stock = False
            except GuestError as error:
                if error.status != 404:
                    raise
                self._stock = True
        return self._stock

    async def _get(self, path: str, kind: type[T]) -> T:
        answer = await self._transport.request("GET", path, timeout=self._timeout)
        return self._transport.decode(answer, kind, path)

    async def _post(self, path: str, body: object, timeout: float | None = None) -> bytes:
        seconds = self._timeout if timeout is None else timeout
        return await self._transport.request("POST", path, timeout=seconds, body=msgspec.json.encode(body))


def _command(command: Sequence[str] | str) -> dict[str, object]:
    return {"command": command, "shell": isinstance(command, str)}


def _time_of(action: Action) -> float:
    """Seconds that an action may take by its own nature, beyond what any call may."""
    match action:
        case Wait(seconds=seconds):
            return seconds or 0.0
        case Script():
            return SCRIPT_S
        case Typing(text=text):
            return len(text) * TYPING_S
    return 0.0
