"""A step on a guest that has only OSWorld's endpoints: pyautogui through /execute, settling by comparing screenshots.

Slower than /step by as much as those endpoints are, and limited to what pyautogui can type.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec

from deskroll.actions import Action, Done, Fail, Script, Typing, Wait, pyautogui_code
from deskroll.desktops.base import ActionResult, Observe, RunResult, Settle, SettleOutcome, StepResult
from deskroll.desktops.guest.transport import Transport

PREFIX = "import pyautogui; import time; pyautogui.FAILSAFE = False\n"
_EXECUTE_S = 120.0


class _Answer(msgspec.Struct):
    AT: str = ""
    output: str | None = None
    error: str | None = None
    returncode: int = 0


class StockStep:
    """Performs steps over OSWorld's endpoints."""

    def __init__(self, transport: Transport, timeout: float) -> None:
        self._transport = transport
        self._timeout = timeout

    async def step(self, actions: Sequence[Action], settle: Settle | None, observe: Observe) -> StepResult:
        """Act, settle, look; each a request of its own."""
        began = time.monotonic()
        before = await self._screenshot() if settle is not None else b""
        results: list[ActionResult] = []
        for action in actions:
            if results and not results[-1].ok:
                results.append(ActionResult(ok=False, error="not performed, because an action before it failed"))
            else:
                results.append(await self._act(action))
        acted = time.monotonic()
        outcome, screen = SettleOutcome.SKIPPED, None
        if settle is not None:
            outcome, screen = await self._settle(settle.after(actions), before)
        settled = time.monotonic()
        if observe.screenshot and screen is None:
            screen = await self._screenshot()
        tree = (await self._get("/accessibility")).AT if observe.tree else None
        terminal = (await self._get("/terminal")).output if observe.terminal else None
        return StepResult(
            results=tuple(results),
            screenshot=screen if observe.screenshot else None,
            tree=tree,
            terminal=terminal,
            settle=outcome,
            seconds={"act": acted - began, "settle": settled - acted, "look": time.monotonic() - settled},
        )

    async def _act(self, action: Action) -> ActionResult:
        match action:
            case Wait(seconds=seconds):
                await asyncio.sleep(seconds or 0.0)
                return ActionResult()
            case Done() | Fail():
                return ActionResult()
            case Typing(text=text) if not text.isascii():
                return ActionResult(ok=False, error="this desktop types ASCII only: its guest has no /step")
            case Script(code=code):
                source = code
            case _:
                source = pyautogui_code.encode([action])
        result = await self._execute(["python", "-c", PREFIX + source])
        ok = result.returncode == 0
        return ActionResult(ok=ok, output=result.output, error="" if ok else result.error[-2000:])

    async def _settle(self, settle: Settle, before: bytes) -> tuple[SettleOutcome, bytes]:
        """Two equal screenshots in a row, `quiet` apart, that differ from the one before the action."""
        began = time.monotonic()
        last, last_change, reacted = before, began, False
        while True:
            screen = await self._screenshot()
            now = time.monotonic()
            if screen != last:
                last, last_change, reacted = screen, now, True
            if reacted and now - last_change >= settle.quiet:
                return SettleOutcome.SETTLED, screen
            if not reacted and now - began >= settle.react:
                return SettleOutcome.NO_REACTION, screen
            if now - began >= settle.cap:
                return SettleOutcome.CAPPED, screen
            await asyncio.sleep(0.02)

    async def _screenshot(self) -> bytes:
        return await self._transport.request("GET", "/screenshot", timeout=self._timeout)

    async def _get(self, path: str) -> _Answer:
        return self._transport.decode(await self._transport.request("GET", path, timeout=self._timeout), _Answer, path)

    async def _execute(self, command: list[str]) -> RunResult:
        body = msgspec.json.encode({"command": command, "shell": False})
        answer = await self._transport.request("POST", "/execute", timeout=_EXECUTE_S, body=body)
        done = self._transport.decode(answer, _Answer, "/execute")
        return RunResult(returncode=done.returncode, output=done.output or "", error=done.error or "")
