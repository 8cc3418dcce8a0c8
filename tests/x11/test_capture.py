"""Looking at a real X server, also while a hostile program tampers with its framebuffer file."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from Xlib import X
from Xlib.display import Display
from Xlib.xobject.drawable import Window

from deskroll.desktops.x11.capture import Frame, FramebufferScreen, Screen, ShmScreen, open_screen
from deskroll.errors import BootError, DesktopError, DesktopLost
from tests.waiting import PATIENCE_S, wait_until
from tests.x11.conftest import XSession

BLUE, ORANGE = 0x1040F0, 0xF08010


def pixels(frame: Frame) -> NDArray[np.uint32]:
    """The pixels as 0xRRGGBB, without the unused byte."""
    return np.ndarray((frame.height, frame.width), "<u4", frame.data, 0, (frame.stride, 4)) & 0xFFFFFF


def show(display: Display, colour: int, x: int, y: int, width: int, height: int) -> Window:
    """Put a window of one colour on the screen, where the window manager leaves it alone."""
    root = display.screen().root
    window = root.create_window(
        x, y, width, height, 0, X.CopyFromParent, background_pixel=colour, override_redirect=True
    )
    window.map()
    display.sync()
    return window


@pytest.fixture
def display(xsession: XSession) -> Iterator[Display]:
    display = Display(xsession.name)
    yield display
    display.close()


@pytest.fixture(params=["framebuffer", "shm"])
def screen(request: pytest.FixtureRequest, xsession: XSession) -> Iterator[Screen]:
    screen = open_screen(xsession.name, xsession.framebuffer if request.param == "framebuffer" else None)
    yield screen
    screen.close()


def test_a_screen_shows_what_is_drawn(screen: Screen, display: Display) -> None:
    assert (screen.width, screen.height) == (1920, 1080)
    show(display, BLUE, 300, 200, 50, 40)
    show(display, ORANGE, 1900, 1070, 20, 10)

    def drawn() -> bool:
        seen = pixels(screen.grab())
        return bool((seen[200:240, 300:350] == BLUE).all() and (seen[1070:, 1900:] == ORANGE).all())

    wait_until(drawn, "both windows are in the picture")
    assert pixels(screen.grab())[199, 300] != BLUE


def test_the_pointer_is_in_the_picture(screen: Screen, display: Display) -> None:
    show(display, BLUE, 0, 0, 600, 600)
    for x, y in ((100, 100), (400, 300)):
        display.screen().root.warp_pointer(x, y)
        display.sync()

        def pointer_there(x: int = x, y: int = y) -> bool:
            seen = pixels(screen.grab())[:600, :600] != BLUE
            near = seen[y - 30 : y + 30, x - 30 : x + 30]
            return bool(near.any()) and near.sum() == seen.sum()

        wait_until(pointer_there, f"the pointer is drawn at {x},{y} and nowhere else")


def test_both_ways_show_the_same(xsession: XSession, display: Display) -> None:
    xsession.start("xterm", "-geometry", "80x24+40+40", "-e", "seq 100000 100400; read line")
    show(display, ORANGE, 900, 600, 300, 200)
    display.screen().root.warp_pointer(1800, 1000)
    display.sync()
    framebuffer, shm = open_screen(xsession.name, xsession.framebuffer), open_screen(xsession.name, None)

    def same() -> bool:
        # The server takes its pointer out of the framebuffer for a moment while it answers the other way.
        one, other = pixels(framebuffer.grab())[:, :1700], pixels(shm.grab())[:, :1700]
        return len(np.unique(one)) > 10 and np.array_equal(one, other)

    wait_until(same, "the two pictures are equal")
    framebuffer.close()
    shm.close()


def test_truncating_the_framebuffer_loses_the_desktop_and_not_the_reader(xsession: XSession) -> None:
    screen = FramebufferScreen(xsession.framebuffer)
    whole = xsession.framebuffer.stat().st_size
    with xsession.framebuffer.open("r+b") as file:  # held open: the server may die of it and remove the file
        for size in (whole - 1, 5000, 0):
            file.truncate(size)
            with pytest.raises(DesktopLost, match=f"truncated to {size} of {whole} bytes; this desktop must be"):
                screen.grab()
    screen.close()


def test_truncating_while_reading_never_kills_the_reader(tmp_path: Path, xsession: XSession) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(xsession.framebuffer.read_bytes())
    whole = copy.stat().st_size
    screen = FramebufferScreen(copy)
    done = threading.Event()

    def tamper() -> None:
        while not done.is_set():
            os.truncate(copy, 100_000)
            os.truncate(copy, whole)

    tamperer = threading.Thread(target=tamper)
    tamperer.start()
    frames = losses = 0
    try:
        for _ in range(300):
            try:
                frames += len(screen.grab().data) == 1920 * 1080 * 4
            except DesktopLost:
                losses += 1
    finally:
        done.set()
        tamperer.join()
    assert frames + losses == 300
    screen.close()


def patch(file: Path, field: int, value: int) -> None:
    """Overwrite one of the 4-byte fields of an xwd header."""
    with file.open("r+b") as opened:
        opened.seek(4 * field)
        opened.write(value.to_bytes(4, "big"))


def test_an_overwritten_header_loses_the_desktop(tmp_path: Path, xsession: XSession) -> None:
    copy = tmp_path / "copy"
    content = xsession.framebuffer.read_bytes()
    for field in range(20):
        copy.write_bytes(content)
        screen = FramebufferScreen(copy)
        patch(copy, field, 0x7FFFFFFF)
        with pytest.raises(DesktopLost, match="its header was overwritten"):
            screen.grab()
        screen.close()


STRANGE = [
    (0, 4, "has a header of 4 bytes"),
    (1, 6, "is not an xwd file of version 7"),
    (2, 1, "has pixmap format 1"),
    (3, 16, "has depth 16"),
    (4, 0, "has 0x1080 pixels"),
    (5, 2**31, "has 1920x2147483648 pixels"),
    (7, 1, "not ordered blue, green, red"),
    (11, 16, "has 16 bits a pixel"),
    (12, 7676, "has 7676 bytes a row for 1920 pixels"),
    (14, 0xFF, "not ordered blue, green, red"),
    (19, 2**31, "has a colour table of 2147483648 entries"),
    (5, 1081, "has 8297632 of 8305312 bytes"),
]


def test_a_strange_header_is_refused(tmp_path: Path, xsession: XSession) -> None:
    copy = tmp_path / "copy"
    content = xsession.framebuffer.read_bytes()
    for field, value, problem in STRANGE:
        copy.write_bytes(content)
        patch(copy, field, value)
        with pytest.raises(BootError, match=problem):
            FramebufferScreen(copy)


def test_what_is_no_framebuffer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BootError, match="No such file or directory; does Xvfb run with -fbdir"):
        FramebufferScreen(tmp_path / "none")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "short").write_bytes(b"\0" * 50)
    for name in ("fifo", "short"):
        with pytest.raises(BootError, match="not a file with a complete xwd header"):
            FramebufferScreen(tmp_path / name)


@pytest.mark.parametrize("replace", [False, True])
def test_a_removed_or_replaced_framebuffer_loses_the_desktop(replace: bool, xsession: XSession) -> None:
    screen = FramebufferScreen(xsession.framebuffer)
    content = xsession.framebuffer.read_bytes()
    xsession.framebuffer.unlink()
    if replace:
        xsession.framebuffer.write_bytes(content)
    with pytest.raises(DesktopLost, match="was removed or replaced"):
        screen.grab()
    screen.close()


def test_a_server_that_exits_loses_the_desktop(screen: Screen, xsession: XSession) -> None:
    screen.grab()
    xsession.children[0].terminate()

    def lost() -> bool:
        try:
            screen.grab()
        except DesktopLost:
            return True
        return False

    wait_until(lost, "the end of the server is noticed")


def test_a_killed_server_is_noticed_by_shm(xsession: XSession) -> None:
    screen = ShmScreen(xsession.name)
    screen.grab()
    xsession.children[0].kill()
    xsession.children[0].wait()
    with pytest.raises(DesktopLost, match=f"display {xsession.name} gives no picture"):
        screen.grab()
    screen.close()
    with pytest.raises(BootError, match=f"display {xsession.name} gives no picture"):
        ShmScreen(xsession.name)


def test_closing_frees_a_grab_that_waits_for_a_wedged_server(xsession: XSession) -> None:
    screen = ShmScreen(xsession.name)
    grabs: list[Frame | DesktopError] = []

    def grab_until_it_fails() -> None:
        while not grabs or isinstance(grabs[-1], Frame):
            try:
                grabs[:] = [screen.grab()]
            except DesktopError as error:
                grabs[:] = [error]

    xsession.children[0].send_signal(signal.SIGSTOP)
    grabber = threading.Thread(target=grab_until_it_fails, daemon=True)
    grabber.start()
    asleep = Path(f"/proc/self/task/{grabber.native_id}/stat")
    wait_until(lambda: asleep.read_text().rsplit(")", 1)[1].split()[0] == "S", "the grab waits")
    screen.close()
    grabber.join(PATIENCE_S)
    xsession.children[0].send_signal(signal.SIGCONT)
    assert not grabber.is_alive()
    assert isinstance(grabs[0], DesktopError)


def test_close_is_final_and_may_be_repeated(screen: Screen) -> None:
    screen.close()
    screen.close()
    with pytest.raises(DesktopError, match="was closed; open the screen again"):
        screen.grab()


def test_a_frame_holds_what_it_says() -> None:
    for width, height, stride, size in (
        (0, 1, 4, 4),
        (1, 0, 4, 0),
        (2, 1, 4, 8),
        (2, 2, 8, 15),
        (2, 2, 8, 17),
    ):
        with pytest.raises(ValueError, match="bytes"):
            Frame(width, height, stride, b"\0" * size)
