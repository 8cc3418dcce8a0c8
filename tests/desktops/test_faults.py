"""Whatever part of a desktop is killed or stopped: a clear error in time, nobody else notices, nothing is left."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from deskroll.actions import Click, Typing
from deskroll.desktops.base import Address, DesktopSpec, Observe
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.notes import RENEWAL, Note
from deskroll.desktops.providers.local import places
from deskroll.desktops.providers.local.provider import LocalProvider
from deskroll.errors import DesktopError, DesktopLost, DesktopTimeout, GuestError
from tests.desktops.conftest import Boot, host_processes, keeper_of, leftovers, youngest_zygote
from tests.waiting import eventually, kill_task

T = TypeVar("T")
DEADLINE_S = 10.0
CALL_S = 2.5
"""What the client is told; a step that settles may take the longest settling, 2 s, on top."""
SPEC = DesktopSpec(width=640, height=480)
PARTS = [
    "Xvfb",
    "openbox",
    "dbus-daemon",
    "at-spi-bus-launcher",
    "deskroll-guest",
    "first",
    "a11y bus",
    "registry",
]


def part(address: Address, name: str) -> psutil.Process:
    if name == "keeper":
        return keeper_of(address)
    if name == "dbus-daemon":  # there are two: the session's own is the guest's child, the other one AT-SPI's
        guest = host_processes(address)["deskroll-guest"]
        return next(child for child in guest.children() if child.name() == name)
    if name == "a11y bus":
        return next(child for child in host_processes(address)["at-spi-bus-launcher"].children())
    if name == "registry":
        return host_processes(address)["at-spi2-registryd"]
    return host_processes(address)[name]


async def use(desktop: GuestDesktop) -> None:
    """Everything that a holder does in a step."""
    await desktop.step([Click(x=10, y=10), Typing(text="x")], observe=Observe(tree=True))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
@pytest.mark.parametrize("name", PARTS)
async def test_a_lost_part_is_a_clear_error_in_time(
    boot: Boot, provider: LocalProvider, runtime_folder: Path, name: str, number: signal.Signals
) -> None:
    healthy, other = await boot(SPEC), await boot(SPEC)
    await use(healthy)
    processes = list(host_processes(healthy.address).values())
    os.kill(part(healthy.address, name).pid, number)
    async with GuestDesktop(healthy.address, timeout=CALL_S) as victim:
        with pytest.raises(DesktopError) as caught:
            while True:  # a killed process is noticed as soon as the kernel has told; until then steps may succeed
                began = time.monotonic()
                await use(victim)
    assert time.monotonic() - began < DEADLINE_S
    assert victim.id in str(caught.value)
    assert isinstance(caught.value, DesktopLost | DesktopTimeout)
    await use(other)
    await provider.stop(victim.id)
    assert leftovers(victim.id, runtime_folder) == []
    assert not [process for process in processes if process.is_running()]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
async def test_a_lost_keeper_leaves_nothing(
    provider: LocalProvider, boot: Boot, runtime_folder: Path, number: signal.Signals
) -> None:
    other = await boot(SPEC)
    address = await provider.boot(SPEC)
    processes = list(host_processes(address).values())
    keeper = keeper_of(address)
    os.kill(keeper.pid, number)
    await provider.stop(address.id)

    async def gone() -> bool:
        return not [process for process in [keeper, *processes] if process.is_running()]

    await eventually(gone, "every process of the desktop is gone")
    assert leftovers(address.id, runtime_folder) == []
    await use(other)


async def test_a_killed_zygote_costs_no_desktop_and_is_replaced(runtime_folder: Path) -> None:
    async with LocalProvider() as local:
        one = await local.boot(SPEC)
        zygote = keeper_of(one).parent()
        assert zygote is not None
        zygote.kill()
        two = await eventually(lambda: _try_boot(local), "another desktop boots")
        for address in (one, two):
            async with GuestDesktop(address) as desktop:
                await use(desktop)
    for address in (one, two):
        assert leftovers(address.id, runtime_folder) == []


async def _try_boot(local: LocalProvider) -> Address | None:
    try:
        return await local.boot(SPEC)
    except DesktopError:
        return None


async def test_a_truncated_framebuffer_is_a_clear_error(boot: Boot) -> None:
    victim, other = await boot(SPEC), await boot(SPEC)
    await victim.run("truncate -s 100 /run/deskroll/fb/Xvfb_screen0")
    with pytest.raises(DesktopLost, match=f"{victim.id}.*framebuffer"):
        await victim.screenshot()
    await use(other)


async def test_a_stopped_program_does_not_hang_the_tree(boot: Boot) -> None:
    desktop = await boot(SPEC, timeout=30.0)
    await desktop.launch(["mousepad"])
    await desktop.launch(["galculator"])

    async def both() -> bool:
        tree = await desktop.accessibility_tree()
        return 'name="mousepad"' in tree and 'name="galculator"' in tree

    await eventually(both, "both programs are in the tree")
    await desktop.run("pkill -STOP mousepad")
    tree = await desktop.accessibility_tree()
    assert 'cut="silent"' in tree
    assert "toggle-button" in tree


async def test_killing_programs_from_inside_costs_this_desktop_only(boot: Boot) -> None:
    victim, other = await boot(SPEC, timeout=DEADLINE_S), await boot(SPEC)
    with pytest.raises(DesktopError):
        await victim.run("kill -9 -1")
        await use(victim)
    await use(other)


async def test_a_lost_desktop_stays_lost(boot: Boot) -> None:
    victim = await boot(SPEC, timeout=DEADLINE_S)
    await victim.run("pkill -9 Xvfb")
    with pytest.raises(DesktopError):
        while True:  # a signal takes a moment to arrive
            await victim.check()
    for call in (victim.screenshot, victim.check, victim.accessibility_tree):
        with pytest.raises(DesktopError, match=r"must be replaced|gone"):
            await call()


async def test_a_hanging_program_does_not_outlive_its_deadline(desktop: GuestDesktop) -> None:
    with pytest.raises(GuestError, match=f"{desktop.id}.*timed out"):
        await desktop.run("sleep 1000 & sleep 1001", timeout=6.0)

    async def ended() -> bool:
        return (await desktop.run("pgrep -f 'sleep 100[01]'")).returncode == 1

    await eventually(ended, "the program was ended with the request")


async def test_a_background_program_does_not_hold_up_the_answer(desktop: GuestDesktop) -> None:
    result = await asyncio.wait_for(desktop.run("echo started; sleep 1000 &"), 20)
    assert (result.returncode, result.output) == (0, "started\n")


async def test_a_background_program_may_go_on_printing(desktop: GuestDesktop) -> None:
    await desktop.run("(sleep 1; echo still; echo here; echo alive > alive.txt) &")

    async def alive() -> bool:
        return (await desktop.run("cat alive.txt")).output == "alive\n"

    await eventually(alive, "the program has lived on after its first line")


async def test_looking_does_not_wait_for_a_long_action(desktop: GuestDesktop) -> None:
    typing = asyncio.create_task(desktop.step([Typing(text="中文字符" * 500)], settle=None))
    for _ in range(5):
        await desktop.check()
        await desktop.screenshot()
        assert await desktop.windows() == []
    result = await typing
    assert result.results[0].ok
    await desktop.check()


async def test_a_stopped_guest_costs_no_more_than_the_deadline_in_any_call(boot: Boot) -> None:
    healthy = await boot(SPEC)
    await healthy.check()
    os.kill(part(healthy.address, "deskroll-guest").pid, signal.SIGSTOP)
    async with GuestDesktop(healthy.address, timeout=1.0) as victim:
        calls = (victim.screenshot, victim.check, victim.windows, victim.accessibility_tree, victim.end_recording)
        for call in calls:
            with pytest.raises(DesktopTimeout, match="within 1 s"):
                await call()
        for work in (victim.read_file("/etc/hostname"), victim.write_file("/tmp/x", b"x"), victim.launch(["true"])):
            with pytest.raises(DesktopTimeout, match="within 1 s"):
                await work


async def test_death_by_any_signal_is_a_lost_desktop(boot: Boot) -> None:
    victim = await boot(SPEC, timeout=DEADLINE_S)
    await victim.run("pkill -40 openbox")
    with pytest.raises(DesktopLost):
        while True:  # a signal takes a moment to arrive
            await victim.screenshot()


async def test_a_keeper_stopped_in_the_middle_of_a_boot_leaves_nothing(runtime_folder: Path) -> None:
    async with LocalProvider() as local:
        await local.warm_up()
        zygote = youngest_zygote()
        booting = asyncio.create_task(local.boot(SPEC))
        keeper = await eventually(_async(zygote.children), "a keeper runs")
        name = keeper[0].name()
        os.kill(keeper[0].pid, signal.SIGSTOP)
        booting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await booting
        await eventually(_async(lambda: not zygote.children()), "the keeper is gone")
    assert [path for path in (runtime_folder / "desktops").iterdir() if name in path.name] == []


def _async(look: Callable[[], T]) -> Callable[[], Awaitable[T]]:
    async def call() -> T:
        return look()

    return call


async def test_a_killed_renewal_of_notes_is_started_again(
    runtime_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with LocalProvider() as provider:
        address = await provider.boot(DesktopSpec(width=640, height=480))

        def read() -> Note:
            note = places.notebook().read(address.id)
            assert note is not None
            return note

        before = read().expires_at
        await kill_task(RENEWAL)
        await eventually(_async(lambda: read().expires_at > before), "it was renewed once more", 30)
    assert f"{RENEWAL} died (CancelledError), and is started again" in caplog.messages
