"""A step of a simulated desktop: act, let the step's time pass, look. What goes wrong is drawn here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from deskroll.actions import COMPUTER_ACTIONS, Action, Done, Fail, Script, Wait, check
from deskroll.desktops.base import ActionResult, Observe, Settle, SettleOutcome, StepResult, act_in_turn
from deskroll.desktops.providers.sim.desktop import SimDesktop
from deskroll.errors import ActionError


async def step(desktop: SimDesktop, actions: Sequence[Action], settle: Settle | None, observe: Observe) -> StepResult:
    """Act, settle, look, in the order of the real guest. One step at a time: a second one waits."""
    epoch = desktop.epoch
    async with desktop.acting:
        desktop.still(epoch)
        began = time.monotonic()
        turn, settings = desktop.turn("step"), desktop.settings
        if turn.happens("step_hangs", settings.step_hangs):
            desktop.wedge()
            await desktop.pause(None)
        await desktop.pause(turn.lasts("step", settings.step))
        if turn.happens("step_crashes", settings.step_crashes):
            desktop.die("crashed in mid-step, as its settings want it (step_crashes)")
            desktop.lose()
        contents = desktop.contents
        before = contents.screen.digest() if settle is not None and actions else ""
        results = await act_in_turn(actions, partial(_act, desktop))
        outcome = SettleOutcome.SKIPPED
        if before:
            changed = contents.screen.digest() != before
            outcome = SettleOutcome.SETTLED if changed else SettleOutcome.NO_REACTION
        acted = time.monotonic()
        image = contents.screen.png() if observe.screenshot else None
        tree = contents.tree() if observe.tree else None
        seconds = {"act": acted - began, "look": time.monotonic() - acted}
        return StepResult(results=tuple(results), screenshot=image, tree=tree, settle=outcome, seconds=seconds)


async def _act(desktop: SimDesktop, action: Action) -> ActionResult:
    """Perform one action. What the agent got wrong comes back as a result."""
    try:
        check(action, desktop.spec.width, desktop.spec.height)
    except ActionError as error:
        return ActionResult(ok=False, error=str(error))
    if isinstance(action, COMPUTER_ACTIONS):
        desktop.contents.screen.perform(action)
    elif isinstance(action, Wait):
        await desktop.pause(action.seconds or 0.0)
    elif isinstance(action, Script):
        desktop.contents.remember(["python", "-c", action.code])
    elif not isinstance(action, (Done, Fail)):
        return ActionResult(ok=False, error=f"{type(action).__name__} is not an action of a desktop")
    return ActionResult()
