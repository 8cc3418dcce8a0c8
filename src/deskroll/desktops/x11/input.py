"""Performs the thirteen computer actions on one X display, through XTEST on one connection.

Guarantees: `perform` returns once the X server has processed the action and, for a click, once the window
manager has let it through to the program: a click that gives a window the focus has given it by then, so that
text typed next goes there. It does not wait for the program: that is what settling is for, which asks `is_read`.
Blocking; not for two threads at once. The connection belongs to this object: events on it are dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from Xlib import X, error
from Xlib.display import Display
from Xlib.ext import xtest

from deskroll.actions import (
    Button,
    Click,
    ComputerAction,
    DoubleClick,
    DragTo,
    Hotkey,
    KeyDown,
    KeyUp,
    MouseDown,
    MouseUp,
    MoveTo,
    Press,
    RightClick,
    Scroll,
    Typing,
)
from deskroll.desktops.x11.keyboard import Keyboard
from deskroll.desktops.x11.readers import Readers
from deskroll.errors import DesktopError, DesktopLost, DesktopTimeout

_BUTTONS: dict[Button, int] = {"left": 1, "middle": 2, "right": 3}
_WHEEL_UP, _WHEEL_DOWN, _WHEEL_LEFT, _WHEEL_RIGHT = 4, 5, 6, 7
_LAST_BUTTON = 9
_DRAG_STEPS = 4
_FRAME_S = 0.02
"""One frame at 60 Hz, rounded up: toolkits look at pointer motion once a frame and drop what lies between."""
_CLICK_S = 15.0
"""Seconds that a window manager may hold a click back."""
_MOVE_S = 0.5
"""Seconds to wait for the pointer to get where it was sent; a program may confine it, then it never does."""


class Input:
    """The pointer and the keyboard of one display."""

    def __init__(self, display: Display) -> None:
        if not display.has_extension("XTEST"):
            raise DesktopError(
                f"the X server {display.get_display_name()} has no XTEST extension: no input is possible"
            )
        self._display = display
        self._root = display.screen().root
        self._readers = Readers(display)
        self._keyboard = Keyboard(display, self._readers)
        self._receivers: set[int] = set()
        """Windows that got input since `is_read` was asked."""

    def perform(self, action: ComputerAction) -> None:
        """Perform one action that `deskroll.actions.check` let through."""
        with _connect(type(action).__name__):
            self._perform(action)

    def is_read(self, patience: float) -> bool:
        """Whether within `patience` seconds all programs that got input have read it, as far as they can be asked."""
        with _connect("a question to the programs that got input"):
            receivers, self._receivers = self._receivers, set()
            return self._readers.have_read(receivers, patience)

    def pointer(self) -> tuple[int, int]:
        """Where the pointer is."""
        with _connect("a query of the pointer"):
            at = self._root.query_pointer()
            return at.root_x, at.root_y

    def release_all(self) -> None:
        """Release every key and button that is down, whoever pressed it."""
        with _connect("the release of all keys"):
            self._keyboard.release_all()
            for button in range(1, _LAST_BUTTON + 1):  # the server ignores a release of what is not down
                self._fake(X.ButtonRelease, button)
            self._display.sync()

    def _perform(self, action: ComputerAction) -> None:
        self._receivers.add(self._readers.focused())
        match action:
            case Typing(text=text):
                self._keyboard.type(text)
            case Press(key=key):
                self._keyboard.chord(key)
            case KeyDown(key=key):
                self._keyboard.down(key)
            case KeyUp(key=key):
                self._keyboard.up(key)
            case Hotkey(keys=keys):
                self._keyboard.chord(*keys)
            case _:
                self._perform_pointer(action)
        self._display.sync()

    def _perform_pointer(
        self, action: MoveTo | Click | RightClick | DoubleClick | MouseDown | MouseUp | DragTo | Scroll
    ) -> None:
        match action:
            case MoveTo(x=x, y=y):
                self._move(x, y)
            case Click(button=button, x=x, y=y, num_clicks=times):
                self._click(button, x, y, times)
            case RightClick(x=x, y=y):
                self._click("right", x, y, 1)
            case DoubleClick(x=x, y=y):
                self._click("left", x, y, 2)
            case MouseDown(button=button):
                self._fake(X.ButtonPress, _BUTTONS[button])
            case MouseUp(button=button):
                self._fake(X.ButtonRelease, _BUTTONS[button])
            case DragTo(x=x, y=y):
                self._drag(x, y)
            case Scroll(dx=dx, dy=dy):
                self._turn(_WHEEL_UP if dy > 0 else _WHEEL_DOWN, abs(dy))
                self._turn(_WHEEL_RIGHT if dx > 0 else _WHEEL_LEFT, abs(dx))
        if not isinstance(action, Click | RightClick | DoubleClick):  # a click may have closed what it was for
            self._receivers.add(self._readers.under_pointer())

    def _move(self, x: int, y: int) -> None:
        self._fake(X.MotionNotify, x=x, y=y)
        _until(lambda: self.pointer() == (x, y), _MOVE_S)

    def _click(self, button: Button, x: int | None, y: int | None, times: int) -> None:
        if x is not None and y is not None:
            self._move(x, y)
        self._receivers.add(self._readers.under_pointer())
        for _ in range(times):
            self._fake(X.ButtonPress, _BUTTONS[button])
            self._fake(X.ButtonRelease, _BUTTONS[button])
        self._until_up(button)

    def _turn(self, wheel: int, clicks: int) -> None:
        for _ in range(clicks):
            self._fake(X.ButtonPress, wheel)
            self._fake(X.ButtonRelease, wheel)

    def _drag(self, x: int, y: int) -> None:
        """Drag so that the programs at both ends follow: they see every step before the next one is made."""
        from_x, from_y = self.pointer()
        source = self._readers.under_pointer()
        self._receivers.add(source)
        self._fake(X.ButtonPress, _BUTTONS["left"])
        try:
            for step in range(1, _DRAG_STEPS + 1):
                part = step / _DRAG_STEPS
                self._move(round(from_x + (x - from_x) * part), round(from_y + (y - from_y) * part))
                self._frame(source)
            self._frame(source)
        finally:
            self._fake(X.ButtonRelease, _BUTTONS["left"])
        self._until_up("left")

    def _frame(self, source: int) -> None:
        """Let the program that is dragged from, then the one under the pointer, take the last step in."""
        time.sleep(_FRAME_S)
        for window in (source, self._readers.under_pointer()):
            if window:
                self._readers.wait([window], time.monotonic())

    def _until_up(self, button: Button) -> None:
        """Wait until the release of a button has been processed.

        A window manager that focuses a window on a click freezes the pointer at the press and thaws it when
        it has set the focus; the server keeps the release back until then.
        """
        mask = X.Button1Mask << (_BUTTONS[button] - 1)
        if not _until(lambda: not self._root.query_pointer().mask & mask, _CLICK_S):
            raise DesktopTimeout(
                f"a click of the {button} button was held back for {_CLICK_S:g} s: a program (the window "
                "manager?) has frozen the pointer and hangs"
            )

    def _fake(self, kind: int, detail: int = 0, x: int = 0, y: int = 0) -> None:
        xtest.fake_input(self._display, kind, detail, x=x, y=y)


@contextmanager
def _connect(what: str) -> Iterator[None]:
    try:
        yield
    except (error.ConnectionClosedError, ConnectionError) as problem:
        raise DesktopLost(f"the X server closed the connection during {what}: {problem}") from problem


def _until(reached: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not reached():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True
