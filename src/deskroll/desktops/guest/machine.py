"""One desktop as the routes see it: look, act, settle, step. Every call has a deadline.

Owns the connection that acts, the watcher that listens, the screen and the recorder. Guarantees: a dead or wedged
part ends a call with `DesktopLost` that names it; a refused action is a result for the agent, not an error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from Xlib.display import Display

from deskroll.actions import (
    COMPUTER_ACTIONS,
    Action,
    Click,
    ComputerAction,
    Done,
    DoubleClick,
    Fail,
    MouseUp,
    RightClick,
    Script,
    Typing,
    Wait,
    check,
)
from deskroll.desktops.base import ActionResult, Observe, Settle, SettleOutcome, StepResult, act_in_turn
from deskroll.desktops.guest import files
from deskroll.desktops.guest.kernel import anybody_runnable
from deskroll.desktops.guest.processes import Programs, ProgramTimeout
from deskroll.desktops.guest.session import Session
from deskroll.desktops.guest.terminal import terminal_text
from deskroll.desktops.x11 import encode
from deskroll.desktops.x11.accessibility import Accessibility, Limits, Scope
from deskroll.desktops.x11.capture import Screen, open_screen
from deskroll.desktops.x11.changes import ChangeWatcher
from deskroll.desktops.x11.connection import XConnection
from deskroll.desktops.x11.input import Input
from deskroll.desktops.x11.recording import Recorder
from deskroll.errors import ActionError, DesktopError, DesktopLost, FailureKind

P = ParamSpec("P")
T = TypeVar("T")
X_TIMEOUT_S = 4.0
"""For one round trip to the X server; a healthy one answers within milliseconds, a loaded one within a second."""
ACT_TIMEOUT_S = 15.0
"""For performing one action, or `TYPED_AT_ONCE` characters of a text."""
TYPED_AT_ONCE = 100
PROOF_OF_LIFE_S = 0.5
"""An X server that answered this recently is not asked again before a look."""
TREE_TIMEOUT_S = 25.0
SCRIPT_TIMEOUT_S = 90.0
_CLICKS = (Click, DoubleClick, RightClick, MouseUp)


class Machine:
    """The one desktop that this guest serves."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.width, self.height = session.settings.width, session.settings.height
        self.programs = Programs(session.env, session.home)
        self.x = XConnection(session.env["DISPLAY"])
        """For looking and asking; an action that takes its time does not hold these up."""
        self._acts = XConnection(session.env["DISPLAY"])
        self.screen: Screen = open_screen(session.env["DISPLAY"], session.framebuffer)
        # Of a desktop that shares the host's processes it cannot be told quickly whose they are.
        self.changes = ChangeWatcher(self.screen, anybody_runnable if session.settings.sandboxed else lambda: False)
        self.tree = Accessibility(session.env["DBUS_SESSION_BUS_ADDRESS"])
        self.recorder: Recorder | None = None
        self.wallpaper: Path | None = None
        self._input: Input | None = None
        self._acting = asyncio.Lock()

    async def open(self) -> None:
        """Connect to the session."""
        await self.x.open(30.0)
        await self._acts.open(30.0)
        self._input = await self._acts.call(30.0, Input)
        await self.changes.open(self.x.name)

    async def check(self) -> None:
        """Raise `DesktopLost` unless every part is alive and the X server answers."""
        self.session.check()
        await self.x.call(X_TIMEOUT_S, _round_trip)

    async def look(self, image: str = "png") -> bytes:
        """The screen as PNG or JPEG."""
        self.session.check()
        if time.monotonic() - max(self.x.answered_at, self._acts.answered_at) > PROOF_OF_LIFE_S:
            # The framebuffer would show the last picture of a server that hangs.
            await self.x.call(X_TIMEOUT_S, _round_trip)
        # Here and not on a thread: it takes 4 ms, and handing the interpreter to a thread and back costs one more.
        frame = self.screen.grab()
        return encode.jpeg(frame) if image == "jpeg" else encode.png(frame)

    async def pointer(self) -> tuple[int, int]:
        """Where the pointer is."""
        return await self.x.call(X_TIMEOUT_S, _pointer)

    async def step(self, actions: Sequence[Action], settle: Settle | None, observe: Observe) -> StepResult:
        """Act, settle, look. One step at a time: a second one waits."""
        async with self._acting:
            self.session.check()
            clock = _Clock()
            if settle is None:
                results = await self._act_all(actions)
                outcome = SettleOutcome.SKIPPED
                clock.lap("act")
            else:
                clicked = any(isinstance(action, _CLICKS) for action in actions)
                with self.changes.watch(settle.after(actions), clicked=clicked) as watch:
                    results = await self._act_all(actions)
                    clock.lap("act")
                    is_read = self._on_input(settle.cap + X_TIMEOUT_S, Input.is_read, settle.cap)
                    outcome = await watch.settled(is_read)
                    clock.lap("settle")
            image = await self.look(observe.image) if observe.screenshot else None
            clock.lap("look")
            scope = Scope.SHOWN if observe.shown_only or not observe.tree else Scope.ALL
            seen = await self.read_tree(scope=scope) if observe.tree or observe.terminal else ""
            clock.lap("tree")
            return StepResult(
                results=tuple(results),
                screenshot=image,
                tree=seen if observe.tree else None,
                terminal=terminal_text(seen) if observe.terminal else None,
                settle=outcome,
                seconds=clock.laps,
            )

    async def read_tree(self, in_flight: int = 64, scope: Scope = Scope.ALL) -> str:
        """The accessibility tree as OSWorld's XML."""
        self.session.check()
        return (await self.tree.read(Limits(scope=scope, deadline_s=TREE_TIMEOUT_S, in_flight=in_flight))).xml

    async def read_terminal(self) -> str | None:
        """Text of the focused terminal, None when there is none that tells."""
        return terminal_text(await self.read_tree(scope=Scope.SHOWN))

    async def _act_all(self, actions: Sequence[Action]) -> list[ActionResult]:
        results = await act_in_turn(actions, self.act)
        if results and not results[-1].ok:
            # What would have released a held key or button was not performed.
            await self._on_input(ACT_TIMEOUT_S, Input.release_all)
        return results

    async def act(self, action: Action) -> ActionResult:
        """Perform one action. What the agent got wrong comes back as a result."""
        try:
            check(action, self.width, self.height)
            if isinstance(action, COMPUTER_ACTIONS):
                await self._perform(action)
            elif isinstance(action, Wait):
                await asyncio.sleep(action.seconds or 0.0)
            elif isinstance(action, Script):
                return await self._run_script(action)
            elif not isinstance(action, (Done, Fail)):
                return ActionResult(ok=False, error=f"{type(action).__name__} is not an action of a desktop")
        except ActionError as error:
            return ActionResult(ok=False, error=str(error))
        return ActionResult()

    async def _perform(self, action: ComputerAction) -> None:
        """In parts, where it is a long text: each has a deadline of its own, and between two it can be cancelled."""
        for part in _parts(action):
            await self._on_input(ACT_TIMEOUT_S, Input.perform, part)

    async def _on_input(
        self, timeout: float, use: Callable[Concatenate[Input, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Use keyboard and mouse, on the connection that acts."""
        given = self._input
        if given is None:
            raise DesktopLost("the desktop is not open yet")
        return await self._acts.call(timeout, lambda _display: use(given, *args, **kwargs))

    async def _run_script(self, script: Script) -> ActionResult:
        try:
            result = await self.programs.run(["python", "-c", script.code], SCRIPT_TIMEOUT_S)
        except ProgramTimeout as error:
            return ActionResult(ok=False, error=str(error))
        return result.as_action()

    def expand(self, path: str) -> Path:
        """Where a request's path leads in this desktop."""
        return files.expand(path, self.session.env, self.session.home)

    async def on_display(self, function: Callable[[Display], T], timeout: float = X_TIMEOUT_S) -> T:
        """Run a driver function on the X connection."""
        self.session.check()
        return await self.x.call(timeout, function)

    def start_recording(self, fps: int = 5) -> None:
        """Start to record the screen."""
        if self.recorder is not None:
            raise RecordingError("Recording is already in progress.")
        path = self.session.state / "recording.mp4"
        path.unlink(missing_ok=True)
        recorder = Recorder(self.screen, path, fps=fps)
        recorder.start()
        self.recorder = recorder

    async def stop_recording(self) -> Path:
        """Finish the recording and return its file."""
        if self.recorder is None:
            raise RecordingError("No recording in progress to stop.")
        recorder, self.recorder = self.recorder, None
        return await asyncio.to_thread(recorder.stop)


class RecordingError(DesktopError):
    """A recording was started twice, or stopped without having been started."""

    kind = FailureKind.RECORDING_ERROR


class _Clock:
    """Durations of the parts of a step."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name] = now - self._last
        self._last = now


def _round_trip(display: Display) -> None:
    display.sync()


def _pointer(display: Display) -> tuple[int, int]:
    at = display.screen().root.query_pointer()
    return at.root_x, at.root_y


def _parts(action: ComputerAction) -> list[ComputerAction]:
    if not isinstance(action, Typing) or len(action.text) <= TYPED_AT_ONCE:
        return [action]
    text = action.text
    return [Typing(text=text[at : at + TYPED_AT_ONCE]) for at in range(0, len(text), TYPED_AT_ONCE)]
