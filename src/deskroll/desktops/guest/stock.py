"""A step on a guest that has only OSWorld's endpoints: pyautogui through /execute, settling by comparing screenshots.

Slower than /step by as much as those endpoints are, and limited to what pyautogui can type.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from deskroll.actions import Action, Done, Fail, Script, Typing, Wait, pyautogui_code
from deskroll.desktops.base import ActionResult, Desktop, Observe, Settle, SettleOutcome, StepResult, act_in_turn

PREFIX = "import pyautogui; import time; pyautogui.FAILSAFE = False\n"


class StockGuest(Desktop, Protocol):
    """What is asked of it: each a request of its own."""

    async def terminal(self) -> str | None:
        """Text of the focused terminal, None when there is none."""


async def step_on_stock(
    desktop: StockGuest, actions: Sequence[Action], settle: Settle | None, observe: Observe
) -> StepResult:
    """Act, settle, look."""
    began = time.monotonic()
    before = await desktop.screenshot() if settle is not None else b""
    results = await act_in_turn(actions, partial(_act, desktop))
    acted = time.monotonic()
    outcome, screen = SettleOutcome.SKIPPED, None
    if settle is not None:
        outcome, screen = await _settle(desktop, settle.after(actions), before)
    settled = time.monotonic()
    if observe.screenshot and screen is None:
        screen = await desktop.screenshot()
    tree = await desktop.accessibility_tree() if observe.tree else None
    terminal = await desktop.terminal() if observe.terminal else None
    return StepResult(
        results=tuple(results),
        screenshot=screen if observe.screenshot else None,
        tree=tree,
        terminal=terminal,
        settle=outcome,
        seconds={"act": acted - began, "settle": settled - acted, "look": time.monotonic() - settled},
    )


async def _act(desktop: StockGuest, action: Action) -> ActionResult:
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
    return (await desktop.run(["python", "-c", PREFIX + source])).as_action()


async def _settle(desktop: StockGuest, settle: Settle, before: bytes) -> tuple[SettleOutcome, bytes]:
    """Two equal screenshots in a row, `quiet` apart, that differ from the one before the action."""
    began = time.monotonic()
    last, last_change, reacted = before, began, False
    while True:
        screen = await desktop.screenshot()
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
