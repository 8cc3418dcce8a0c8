"""The windows of one X display: list, find, activate, close, measure.

Speaks EWMH to the window manager as a pager does, so that a request counts as the user's own and is not
refused for stealing the focus. `find` matches as wmctrl does, which OSWorld's tasks were written against.
Blocking.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from Xlib import X, error
from Xlib.display import Display
from Xlib.protocol import event
from Xlib.xobject.drawable import Window as XWindow

from deskroll.desktops.base import Window
from deskroll.errors import DesktopError, DesktopTimeout

_FROM_PAGER = 2
_POLL_S = 0.005


def list_windows(display: Display) -> list[Window]:
    """Every managed window, oldest first."""
    active = _active(display)
    found = (_describe(display, window, active) for window in _client_list(display))
    return [window for window in found if window is not None]


def find(display: Display, name: str, strict: bool = False, by_class: bool = False) -> Window | None:
    """Return the oldest window whose title (`by_class`: class) contains `name`, or (`strict`) is `name`.

    As with wmctrl, upper and lower case differ only where `strict`.
    """
    for window in list_windows(display):
        text = window.wm_class if by_class else window.title
        if text == name if strict else name.casefold() in text.casefold():
            return window
    return None


def activate(display: Display, window: Window, timeout_s: float = 5.0) -> None:
    """Bring a window to the front and focus it; return once it (or a dialog of its own) has the focus."""
    _ask_manager(display, window.id, "_NET_ACTIVE_WINDOW", [_FROM_PAGER, X.CurrentTime, 0, 0, 0])

    def gone() -> bool:
        return window.id not in _client_list(display)

    done = _until(lambda: gone() or _has_focus(display, window.id), timeout_s)
    if gone():
        raise DesktopError(f"window {window.title!r} ({window.id:#x}) was closed before it could be activated")
    if not done:
        raise DesktopTimeout(
            f"the window manager did not activate window {window.title!r} ({window.id:#x}) in {timeout_s:g} s"
        )


def close(display: Display, window: Window, timeout_s: float = 1.0) -> bool:
    """Ask a window to close; say whether it is gone within `timeout_s`.

    A program may ask its user first ('save changes?'): then the window is still there, and that is no error.
    """
    _ask_manager(display, window.id, "_NET_CLOSE_WINDOW", [X.CurrentTime, _FROM_PAGER, 0, 0, 0])
    return _until(lambda: window.id not in _client_list(display), timeout_s)


def window_size(display: Display, app_class_name: str) -> tuple[int, int] | None:
    """Width and height of the oldest window whose instance or class is `app_class_name`, in any case."""
    wanted = app_class_name.casefold()
    for window_id in _client_list(display):
        try:
            window = _resource(display, window_id)
            if wanted in (name.casefold() for name in window.get_wm_class() or ()):
                geometry = window.get_geometry()
                return geometry.width, geometry.height
        except error.XError:  # it was closed while we looked
            continue
    return None


def _describe(display: Display, window_id: int, active: int) -> Window | None:
    hidden = display.intern_atom("_NET_WM_STATE_HIDDEN")
    try:
        window = _resource(display, window_id)
        geometry = window.get_geometry()
        origin = display.screen().root.translate_coords(window, 0, 0)
        pids = _numbers(display, window, "_NET_WM_PID")
        return Window(
            id=window_id,
            title=_text(display, window, "_NET_WM_NAME") or _text(display, window, "WM_NAME"),
            wm_class=".".join(window.get_wm_class() or ()),
            pid=pids[0] if pids else None,
            x=origin.x,
            y=origin.y,
            width=geometry.width,
            height=geometry.height,
            active=window_id == active,
            minimized=hidden in _numbers(display, window, "_NET_WM_STATE"),
        )
    except error.XError:  # it was closed while we looked
        return None


def _client_list(display: Display) -> list[int]:
    root = display.screen().root
    clients = root.get_full_property(display.intern_atom("_NET_CLIENT_LIST"), X.AnyPropertyType)
    if clients is not None:
        return [int(window) for window in clients.value]
    if _numbers(display, root, "_NET_SUPPORTING_WM_CHECK"):  # it may write the list with the first window only
        return []
    raise DesktopError(
        f"nobody keeps a list of windows on display {display.get_display_name()}: start a window manager"
    )


def _active(display: Display) -> int:
    active = _numbers(display, display.screen().root, "_NET_ACTIVE_WINDOW")
    return active[0] if active else X.NONE


def _has_focus(display: Display, window_id: int) -> bool:
    """Whether the window is active, or a dialog that belongs to it: a modal one takes the focus for it."""
    current = _active(display)
    seen = set[int]()
    while current != X.NONE and current not in seen:
        if current == window_id:
            return True
        seen.add(current)
        try:
            owner = _numbers(display, _resource(display, current), "WM_TRANSIENT_FOR")
        except error.XError:
            return False
        current = owner[0] if owner else X.NONE
    return False


def _ask_manager(display: Display, window_id: int, request: str, data: list[int]) -> None:
    root = display.screen().root
    message = event.ClientMessage(window=window_id, client_type=display.intern_atom(request), data=(32, data))
    root.send_event(message, event_mask=X.SubstructureRedirectMask | X.SubstructureNotifyMask)
    display.flush()


def _until(reached: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not reached():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _resource(display: Display, window_id: int) -> XWindow:
    found = display.create_resource_object("window", window_id)
    assert isinstance(found, XWindow)  # noqa: S101 - the library's signature is wider than what it returns
    return found


def _numbers(display: Display, window: XWindow, name: str) -> list[int]:
    found = window.get_full_property(display.intern_atom(name), X.AnyPropertyType)
    return [] if found is None else [int(number) for number in found.value]


def _text(display: Display, window: XWindow, name: str) -> str:
    found = window.get_full_property(display.intern_atom(name), X.AnyPropertyType)
    if found is None:
        return ""
    raw = bytes(found.value)
    # WM_NAME of type STRING is Latin-1 by definition; everything modern is UTF-8.
    latin = found.property_type == display.intern_atom("STRING")
    return raw.decode("latin-1" if latin else "utf-8", errors="replace")
