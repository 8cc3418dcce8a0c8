"""Windows as the window manager and real programs have them."""

from collections.abc import Iterator

import pytest
from Xlib import X, Xutil
from Xlib.display import Display
from Xlib.protocol import event

from deskroll.actions import Typing
from deskroll.desktops.x11 import windows
from deskroll.desktops.x11.input import Input
from deskroll.errors import DesktopError
from tests.waiting import wait_until
from tests.x11.conftest import XSession


@pytest.fixture
def display(xsession: XSession) -> Iterator[Display]:
    connection = Display(xsession.name)
    yield connection
    connection.close()


def _start(xsession: XSession, display: Display, name: str, *command: str) -> windows.Window:
    """Start a program; its window is the one whose title or class has `name`, once it has the focus."""
    xsession.start(*command)

    def shown() -> windows.Window | None:
        found = windows.find(display, name) or windows.find(display, name, by_class=True)
        return found if found is not None and found.active else None

    return wait_until(shown, f"{name} is shown")


def _xterm(xsession: XSession, display: Display, title: str) -> windows.Window:
    return _start(xsession, display, title, "xterm", "-T", title, "-e", "sleep", "600")


def test_an_empty_desktop_has_no_windows(display: Display) -> None:
    assert windows.list_windows(display) == []
    assert windows.find(display, "") is None


def test_a_window_is_described(xsession: XSession, display: Display) -> None:
    window = _start(
        xsession, display, "plain", "xterm", "-T", "plain", "-geometry", "80x24+300+200", "-e", "sleep", "600"
    )
    assert (window.title, window.wm_class) == ("plain", "xterm.XTerm")
    assert (window.active, window.minimized) == (True, False)
    assert 300 <= window.x < 320
    assert 200 <= window.y < 240
    assert window.width > 400
    assert window.height > 200
    assert windows.list_windows(display) == [window]
    assert windows.window_size(display, "XTERM") == (window.width, window.height)
    assert windows.window_size(display, "xter") is None


def test_a_title_may_have_any_characters(xsession: XSession, display: Display) -> None:
    (xsession.home / "größe 中.txt").write_text("")
    window = _start(xsession, display, "größe 中.txt", "mousepad", "größe 中.txt")
    assert window.pid == xsession.children[-1].pid
    assert window.wm_class == "mousepad.Mousepad"
    found = windows.find(display, "GRÖSSE 中.TXT")
    assert found is not None
    assert found.id == window.id


def test_find_matches_as_wmctrl_does(xsession: XSession, display: Display) -> None:
    old, new = _xterm(xsession, display, "Notes One"), _xterm(xsession, display, "Notes Two")

    def found(name: str, strict: bool = False, by_class: bool = False) -> int | None:
        window = windows.find(display, name, strict, by_class)
        return None if window is None else window.id

    assert found("notes") == old.id
    assert found("TWO") == new.id
    assert found("Notes Two", strict=True) == new.id
    assert found("notes two", strict=True) is None
    assert found("Notes", strict=True) is None
    assert found("XTERM", by_class=True) == old.id
    assert found("xterm.XTerm", strict=True, by_class=True) == old.id
    assert found("xterm", strict=True, by_class=True) is None
    assert found("Notes", by_class=True) is None


def test_activate_gives_the_focus_and_text_goes_there(xsession: XSession, display: Display) -> None:
    outs = []
    for name in ("one", "two"):
        out = xsession.home / name
        script = f"stty -echo -icanon; exec cat > {out}"
        _start(xsession, display, name, "xterm", "-T", name, "-e", "sh", "-c", script)
        wait_until(out.exists, f"{name} reads")
        outs.append(out)
    connection = Display(xsession.name)
    for name in ("one", "two", "one"):
        window = windows.find(display, name, strict=True)
        assert window is not None
        windows.activate(display, window)
        assert [w.title for w in windows.list_windows(display) if w.active] == [name]
        Input(connection).perform(Typing(name))
    connection.close()
    wait_until(lambda: [out.read_text() for out in outs] == ["oneone", "two"], "each window has its own text")


def test_activate_brings_a_minimized_window_back(xsession: XSession, display: Display) -> None:
    window, _ = _xterm(xsession, display, "first"), _xterm(xsession, display, "second")
    _minimize(display, window)
    wait_until(lambda: (w := windows.find(display, "first")) and w.minimized, "it is minimized")
    windows.activate(display, window)
    found = windows.find(display, "first")
    assert found is not None
    assert (found.active, found.minimized) == (True, False)


def test_a_window_that_is_gone_cannot_be_activated(xsession: XSession, display: Display) -> None:
    window = _xterm(xsession, display, "brief")
    assert windows.close(display, window, timeout_s=30)
    with pytest.raises(DesktopError, match=r"brief.*was closed"):
        windows.activate(display, window, timeout_s=0.2)


def test_close_closes(xsession: XSession, display: Display) -> None:
    window = _start(xsession, display, "galculator", "galculator")
    assert windows.close(display, window, timeout_s=30)
    assert windows.list_windows(display) == []


def test_close_says_when_a_program_asks_first(xsession: XSession, display: Display) -> None:
    window = _start(xsession, display, "mousepad", "mousepad")
    connection = Display(xsession.name)
    Input(connection).perform(Typing("unsaved"))
    connection.close()
    wait_until(lambda: (w := windows.find(display, "mousepad")) and w.title.startswith("*"), "it is modified")
    assert not windows.close(display, window, timeout_s=0.5)
    dialog = wait_until(lambda: _other(display, window), "a dialog asks")
    windows.activate(display, window)  # its dialog has the focus in its stead
    assert _other(display, window) is not None
    assert dialog.pid == window.pid


def _minimize(display: Display, window: windows.Window) -> None:
    request = event.ClientMessage(
        window=window.id, client_type=display.intern_atom("WM_CHANGE_STATE"), data=(32, [Xutil.IconicState, 0, 0, 0, 0])
    )
    display.screen().root.send_event(request, event_mask=X.SubstructureRedirectMask | X.SubstructureNotifyMask)
    display.flush()


def _other(display: Display, window: windows.Window) -> windows.Window | None:
    return next((w for w in windows.list_windows(display) if w.id != window.id), None)
