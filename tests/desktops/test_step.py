"""A step: actions in order, refused ones as results, the screen settled, everything in one round trip."""

import io

import pytest
from PIL import Image

from deskroll.actions import Answer, Click, Done, Hotkey, MoveTo, Press, Script, ToolCall, Typing, Wait
from deskroll.desktops.base import DesktopSpec, Observe, Settle, SettleOutcome
from deskroll.desktops.guest.client import GuestDesktop
from tests.desktops.conftest import Boot
from tests.waiting import eventually


async def open_editor(desktop: GuestDesktop) -> None:
    await desktop.launch(["mousepad"])

    async def active() -> bool:
        return any(window.active and "mousepad" in window.wm_class for window in await desktop.windows())

    await eventually(active, "the editor has the focus")


async def until_editor_has(desktop: GuestDesktop, text: str) -> None:
    await desktop.write_clipboard("not copied yet")
    await desktop.step([Hotkey(keys=("ctrl", "a")), Hotkey(keys=("ctrl", "c"))])

    async def copied() -> bool:
        return await desktop.read_clipboard() == text

    await eventually(copied, "the editor has this text, and has copied it")


async def test_a_step_acts_settles_and_looks(desktop: GuestDesktop) -> None:
    await open_editor(desktop)
    result = await desktop.step(
        [Typing(text="hello"), Press(key="enter"), Typing(text="中文")],
        settle=Settle(cap=20.0),
        observe=Observe(tree=True),
    )
    assert [one.ok for one in result.results] == [True, True, True]
    assert result.settle is SettleOutcome.SETTLED
    assert result.screenshot is not None
    assert Image.open(io.BytesIO(result.screenshot)).size == (1024, 768)
    assert result.tree is not None
    assert "hello" in result.tree
    assert {"act", "settle", "look", "tree"} <= result.seconds.keys()
    await until_editor_has(desktop, "hello\n中文")


async def test_what_the_agent_got_wrong_is_a_result(desktop: GuestDesktop) -> None:
    result = await desktop.step([Click(x=5000, y=5), Press(key="enter")], settle=None)
    assert "CLICK.x is 5000; allowed: 0 to 1023" in result.results[0].error
    assert result.results[1].error == "not performed, because an action before it failed"
    result = await desktop.step([Press(key="retrun")], settle=None)
    assert "did you mean return" in result.results[0].error
    for action in (ToolCall(name="x"), Answer(text="x")):
        assert "not an action of a desktop" in (await desktop.step([action], settle=None)).results[0].error


async def test_done_and_wait_do_nothing_to_the_screen(desktop: GuestDesktop) -> None:
    before = await desktop.screenshot()
    result = await desktop.step([Wait(seconds=0.1), Wait(), Done()])
    assert [one.ok for one in result.results] == [True, True, True]
    assert result.settle is SettleOutcome.NO_REACTION
    assert result.screenshot == before


async def test_scripts_run_inside(desktop: GuestDesktop) -> None:
    code = "import pyautogui\nfor x in (100, 200):\n    pyautogui.moveTo(x, 50)\nprint('moved')"
    result = await desktop.step([Script(code=code)], settle=None)
    assert result.results[0].output == "moved\n"
    assert await desktop.cursor_position() == (200, 50)
    failed = (await desktop.step([Script(code="raise ValueError('no')")], settle=None)).results[0]
    assert not failed.ok
    assert "ValueError: no" in failed.error


async def test_an_endless_animation_is_capped(desktop: GuestDesktop) -> None:
    await desktop.launch(["xterm", "-e", "while :; do date +%N; done"])
    await eventually(desktop.windows, "the terminal is open")

    async def moving() -> bool:
        return await desktop.screenshot() != await desktop.screenshot()

    await eventually(moving, "the terminal prints")
    result = await desktop.step([MoveTo(x=1, y=1)], settle=Settle(quiet=2.0, cap=3.0))
    assert result.settle is SettleOutcome.CAPPED


async def test_a_blinking_caret_does_not_keep_a_step_waiting(desktop: GuestDesktop) -> None:
    await open_editor(desktop)
    await desktop.step([Wait(seconds=2.5)], settle=None)  # three blinks: the guest has to have seen them
    result = await desktop.step([Wait(seconds=0.1)], settle=Settle(cap=5.0))
    assert result.settle is SettleOutcome.NO_REACTION


async def stop_editor(desktop: GuestDesktop) -> int:
    """Open an editor that reads nothing; returns its process."""
    await open_editor(desktop)
    (pid,) = [window.pid for window in await desktop.windows()]
    assert pid is not None
    assert (await desktop.run(["kill", "-STOP", str(pid)])).returncode == 0
    return pid


async def test_a_screen_has_not_settled_before_the_program_has_read_its_input(desktop: GuestDesktop) -> None:
    pid = await stop_editor(desktop)
    await desktop.launch(f"sleep 1; kill -CONT {pid}")  # later than programs react that are there
    result = await desktop.step([Typing(text="late")], settle=Settle(cap=60.0), observe=Observe(tree=True))
    assert result.settle is SettleOutcome.SETTLED
    assert ">late<" in (result.tree or "")


async def test_a_program_that_hangs_costs_the_longest_wait(desktop: GuestDesktop) -> None:
    await stop_editor(desktop)
    for actions in ([Typing(text="lost")], []):
        result = await desktop.step(actions, settle=Settle(cap=1.0))
        assert result.settle is SettleOutcome.CAPPED


async def test_a_step_without_actions_waits_until_the_screen_is_at_rest(desktop: GuestDesktop) -> None:
    await desktop.launch(["xterm", "-e", "while :; do date +%N; done"])
    await eventually(desktop.windows, "the terminal is open")
    assert (await desktop.step([], settle=Settle(cap=1.0))).settle is SettleOutcome.CAPPED


@pytest.mark.parametrize("image", ["png", "jpeg"])
async def test_image_formats(desktop: GuestDesktop, image: str) -> None:
    result = await desktop.step([], observe=Observe(image=image))
    assert result.screenshot is not None
    assert Image.open(io.BytesIO(result.screenshot)).format == image.upper()
    assert Image.open(io.BytesIO(await desktop.screenshot(image))).format == image.upper()


async def test_200_mixed_characters_arrive_identical_20_times(boot: Boot) -> None:
    desktop = await boot(DesktopSpec(width=1024, height=768))
    await open_editor(desktop)
    text = (
        "The quick brown fox, {[(1+2)*3]}; ~`!@#$%^&|\\ \"'<>?/ "
        + "敏捷的棕色狐狸跳过懒狗。"
        + "😀🎉👩🚀🐍"
        + "äöüßéñçŁ€"
    ) * 3
    text = text[:200]
    assert len(text) == 200
    for _ in range(20):
        result = await desktop.step([Hotkey(keys=("ctrl", "a")), Press(key="delete"), Typing(text=text)])
        assert all(one.ok for one in result.results)
        await until_editor_has(desktop, text)
