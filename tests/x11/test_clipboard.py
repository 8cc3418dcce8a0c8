"""The clipboard as real programs share it."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator

import psutil
import pytest
from Xlib.display import Display

from deskroll.actions import Hotkey, Typing
from deskroll.desktops.x11 import clipboard, windows
from deskroll.desktops.x11.input import Input
from deskroll.errors import DesktopError, DesktopTimeout, InputError, MissingDependency
from tests.waiting import eventually, wait_until
from tests.x11.conftest import XSession
from tests.x11.test_input import quiet_mousepad


async def test_nothing_was_copied_yet(xsession: XSession) -> None:
    assert await clipboard.read(xsession.env) == ""


@pytest.mark.parametrize("text", ["plain", "中文 😀 e\u0301 \t\r\n\n", " ", "x" * 3_000_000, ""])
async def test_text_comes_back_as_it_was_written(xsession: XSession, text: str) -> None:
    await clipboard.write("before", xsession.env)
    await clipboard.write(text, xsession.env)
    assert await clipboard.read(xsession.env) == text


async def test_clipboard_and_primary_are_apart(xsession: XSession) -> None:
    await clipboard.write("one", xsession.env)
    await clipboard.write("two", xsession.env, selection="primary")
    assert await clipboard.read(xsession.env) == "one"
    assert await clipboard.read(xsession.env, selection="primary") == "two"


async def test_many_writes_and_reads_in_a_row(xsession: XSession) -> None:
    for n in range(30):
        await clipboard.write(f"text {n}", xsession.env)
        assert await clipboard.read(xsession.env) == f"text {n}"


@pytest.fixture
def editor(xsession: XSession) -> Iterator[Input]:
    connection = Display(xsession.name)
    (xsession.home / "note.txt").write_text("")
    quiet_mousepad(xsession)
    xsession.start("mousepad", "note.txt")
    wait_until(lambda: (w := windows.find(connection, "mousepad", by_class=True)) and w.active, "mousepad is up")
    yield Input(connection)
    connection.close()


async def test_a_program_copies_and_pastes(xsession: XSession, editor: Input) -> None:
    editor.perform(Typing("copied 中文 😀"))
    editor.perform(Hotkey(("ctrl", "a")))
    editor.perform(Hotkey(("ctrl", "c")))

    async def copied() -> bool:
        return await clipboard.read(xsession.env) == "copied 中文 😀"

    await eventually(copied, "the program's text is on the clipboard")
    await clipboard.write("pasted ж", xsession.env)
    editor.perform(Hotkey(("ctrl", "v")))
    wait_until(lambda: _saved(xsession, editor) == "pasted ж", "it was pasted")


def _saved(xsession: XSession, editor: Input) -> str:
    """Save and read: a program gets what it pastes when the owner answers, which may be after this save."""
    editor.perform(Hotkey(("ctrl", "s")))
    return (xsession.home / "note.txt").read_text()


async def test_an_owner_that_hangs_costs_no_more_than_the_deadline(xsession: XSession, editor: Input) -> None:
    editor.perform(Typing("mine"))
    editor.perform(Hotkey(("ctrl", "a")))
    editor.perform(Hotkey(("ctrl", "c")))

    async def copied() -> bool:
        return await clipboard.read(xsession.env) == "mine"

    await eventually(copied, "the program's text is on the clipboard")
    owner = xsession.children[-1]
    os.kill(owner.pid, signal.SIGSTOP)
    try:
        before = time.monotonic()
        with pytest.raises(DesktopTimeout, match="does not answer"):
            await clipboard.read(xsession.env, timeout_s=0.5)
        assert time.monotonic() - before < 10
    finally:
        os.kill(owner.pid, signal.SIGCONT)


async def test_a_read_that_is_cancelled_leaves_no_process_behind(xsession: XSession) -> None:
    await clipboard.write("x" * 1_000_000, xsession.env)
    task = asyncio.create_task(clipboard.read(xsession.env))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "xclip" not in [child.name() for child in psutil.Process().children()]
    await clipboard.write("again", xsession.env)
    assert await clipboard.read(xsession.env) == "again"


async def test_too_much_text_is_refused(xsession: XSession) -> None:
    with pytest.raises(InputError, match="bytes"):
        await clipboard.write("x" * (clipboard.MAX_BYTES + 1), xsession.env)
    with pytest.raises(InputError, match="UTF-8"):
        await clipboard.write("\ud800", xsession.env)


async def test_a_display_that_is_not_there(xsession: XSession) -> None:
    env = {**xsession.env, "DISPLAY": ":64999"}
    with pytest.raises(DesktopError, match="open display"):
        await clipboard.read(env)
    with pytest.raises(DesktopError, match="open display"):
        await clipboard.write("x", env)


async def test_a_missing_xclip_is_named(xsession: XSession) -> None:
    with pytest.raises(MissingDependency, match="xclip"):
        await clipboard.read({**xsession.env, "PATH": str(xsession.home)})
