"""Simulated desktops: through SimProvider and the ordinary client, over real HTTP."""

from __future__ import annotations

import asyncio
import io
import random
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import aiohttp
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from deskroll.actions import (
    Action,
    Answer,
    Click,
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
    Script,
    Scroll,
    Typing,
    Wait,
)
from deskroll.desktops.base import Address, DesktopSpec, Fence, Observe, Recycling, Settle, SettleOutcome
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.guest.requests import LEASE_HEADER
from deskroll.desktops.providers import make_provider
from deskroll.desktops.providers.base import Provider
from deskroll.desktops.providers.sim.provider import SimProvider
from deskroll.desktops.providers.sim.settings import SimSettings
from deskroll.desktops.providers.sim.times import MAX_S, MAX_SIGMA, Shape, Times
from deskroll.desktops.providers.sim.world import SimWorld
from deskroll.errors import (
    BootError,
    DesktopError,
    DesktopLost,
    DesktopTimeout,
    GuestError,
    InputError,
    ResetError,
)
from deskroll.host.owner import Owner, host_id
from tests.waiting import eventually

SPEC = DesktopSpec(width=640, height=360)
NEVER = 60.0


def settings(**options: str) -> SimSettings:
    """Settings that take no time, except for what is given."""
    return SimSettings.model_validate({"boot": "0", "reset": "0", "step": "0", **options})


async def ask(address: Address, method: str, path: str, lease: str = "", body: aiohttp.FormData | None = None) -> int:
    """The status of one request, on behalf of a lease."""
    headers = {"Authorization": f"Bearer {address.token}"} | ({LEASE_HEADER: lease} if lease else {})
    connector = aiohttp.UnixConnector(path=address.endpoint.removeprefix("unix:"))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.request(method, f"http://desktop{path}", headers=headers, data=body) as response,
    ):
        await response.read()
        return response.status


def dead_owner() -> Owner:
    """A process that has exited."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return Owner(host=host_id(), pid=process.pid, start=1)


# Times and settings


def times() -> st.SearchStrategy[Times]:
    seconds = st.floats(0, MAX_S)
    return st.one_of(
        seconds.map(Times.fixed),
        st.tuples(seconds, seconds).map(lambda ab: Times(shape=Shape.UNIFORM, first=min(ab), second=max(ab))),
        seconds.map(lambda mean: Times(shape=Shape.EXPONENTIAL, first=mean)),
        st.tuples(seconds, st.floats(0, MAX_SIGMA)).map(
            lambda ab: Times(shape=Shape.LOGNORMAL, first=ab[0], second=ab[1])
        ),
    )


@given(times(), st.integers())
def test_times_survive_writing_and_are_never_negative(some: Times, seed: int) -> None:
    assert Times.parse(str(some)) == some
    assert 0 <= some.sample(random.Random(seed)) < float("inf")
    assert some.sample(random.Random(seed)) == some.sample(random.Random(seed))


@given(st.text())
def test_any_text_is_a_time_or_refused(text: str) -> None:
    try:
        assert Times.parse(text).sample(random.Random(0)) >= 0
    except InputError as error:
        assert "allowed" in str(error) or "out of bounds" in str(error)


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "3..1", "exp -1", "lognormal 1", "1 2", "", "1e99", "..", "1_0"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        Times.parse(text)


@pytest.mark.parametrize(
    ("text", "shape", "first", "second"),
    [
        ("0.5", Shape.FIXED, 0.5, 0.0),
        ("1..3", Shape.UNIFORM, 1.0, 3.0),
        ("0.1..0.25", Shape.UNIFORM, 0.1, 0.25),
        ("exp 0.5", Shape.EXPONENTIAL, 0.5, 0.0),
        ("lognormal 0.5 0.3", Shape.LOGNORMAL, 0.5, 0.3),
    ],
)
def test_times_are_read(text: str, shape: Shape, first: float, second: float) -> None:
    assert Times.parse(text) == Times(shape=shape, first=first, second=second)


def test_settings_are_read() -> None:
    options = {"boot": "1..3", "seed": "7", "boot_fails": "0.2", "fence": "timed", "recycling": "replace"}
    read = SimSettings.model_validate({**options, "snapshots": "a, b", "proxy": "false", "dies_after": "2"})
    assert read == SimSettings(
        boot=Times.parse("1..3"),
        seed=7,
        boot_fails=0.2,
        dies_after=Times.fixed(2.0),
        fence=Fence.TIMED,
        recycling=Recycling.REPLACE,
        snapshots=("a", "b"),
        proxy=False,
    )
    assert SimSettings.model_validate({}) == SimSettings()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"bot": "1"}, ["bot: ", "boot", "step_crashes"]),
        ({"boot": "soon"}, ["boot", "soon", "1..3"]),
        ({"boot_fails": "1.5"}, ["boot_fails", "less than or equal to 1"]),
        ({"boot_fails": "nan"}, ["boot_fails", "finite"]),
        ({"seed": "x"}, ["seed"]),
        ({"fence": "soft"}, ["fence"]),
        ({"proxy": "maybe"}, ["proxy"]),
        ({"faults": "1"}, ["faults: "]),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], told: list[str]) -> None:
    with pytest.raises(InputError) as error:
        make_provider("sim", options)
    assert all(word in str(error.value) for word in told)


def test_specs_are_checked() -> None:
    provider = SimProvider(SimSettings(snapshots=("office", "web"), proxy=False))
    for spec in (SPEC, DesktopSpec(snapshot="web"), DesktopSpec(fixed_ip=True)):
        provider.check_spec(spec)
    with pytest.raises(InputError, match="office, web"):
        provider.check_spec(DesktopSpec(snapshot="games"))
    for spec in (DesktopSpec(proxy=True), DesktopSpec(width=1), DesktopSpec(height=99999)):
        with pytest.raises(InputError):
            provider.check_spec(spec)


def test_capabilities_follow_the_settings() -> None:
    provider: Provider = SimProvider(settings(boot="1..3", reset="exp 2", fence="timed"))
    able = provider.capabilities
    assert (able.boot_s, able.reset_s, able.fence, able.recycling) == (2.0, 2.0, Fence.TIMED, Recycling.REVERT)
    assert able.adopts
    assert able.host_only
    assert SimProvider(settings(boot="4", stop="1", recycling="replace")).capabilities.reset_s == 5.0


# What a desktop does


EVERYTHING: tuple[Action, ...] = (
    Click(x=100, y=100), Typing("two\nlines"), Press("backspace"), RightClick(x=10, y=10),
    DoubleClick(), MoveTo(300, 200), DragTo(600, 20),
    Scroll(dx=2, dy=-3), Press("enter"), Press("f5"), Hotkey(("ctrl", "s")), KeyDown("shift"),
    KeyUp("shift"), MouseDown(), MoveTo(5, 300), MouseUp(), Click("middle", 639, 359, 3), Typing("ende"),
)  # fmt: skip


@pytest.mark.parametrize(("width", "height"), [(1920, 1080), (641, 361), (160, 120)])
async def test_screenshots_are_pictures_of_the_right_size(width: int, height: int) -> None:
    async with SimProvider(settings()) as provider:
        address = await provider.boot(DesktopSpec(width=width, height=height))
        async with GuestDesktop(address) as desktop:
            before = await desktop.screenshot()
            after = (await desktop.step([Click(x=150, y=110), Typing("hello " * 50)])).screenshot
    assert after is not None
    pictures = [Image.open(io.BytesIO(data)) for data in (before, after)]
    for picture in pictures:
        picture.verify()
        assert picture.size == (width, height)
    one, two = (Image.open(io.BytesIO(data)).convert("RGB") for data in (before, after))
    assert one.tobytes() != two.tobytes()


async def test_what_is_clicked_changes_and_nothing_else() -> None:
    async with SimProvider(settings()) as provider, GuestDesktop(await provider.boot(SPEC)) as desktop:
        await desktop.step([MoveTo(8, 8)])
        before = Image.open(io.BytesIO(await desktop.screenshot())).convert("RGB")
        await desktop.step([Click(x=200, y=100), MoveTo(8, 8)])
        after = Image.open(io.BytesIO(await desktop.screenshot())).convert("RGB")
        assert await desktop.cursor_position() == (8, 8)
    changed = [(x, y) for x in range(640) for y in range(360) if before.getpixel((x, y)) != after.getpixel((x, y))]
    assert changed == [(x, y) for x in range(192, 208) for y in range(96, 112)]


async def test_every_action_shows_and_the_same_actions_show_the_same() -> None:
    seen: list[list[bytes | None]] = []
    async with SimProvider(settings()) as provider:
        for _ in range(2):
            async with GuestDesktop(await provider.boot(SPEC)) as desktop:
                steps = [await desktop.step([action]) for action in EVERYTHING]
                assert all(step.results[0].ok for step in steps)
                seen.append([step.screenshot for step in steps])
    assert seen[0] == seen[1]
    # A button that goes down or up changes nothing by itself, nor does a new line; all else does.
    assert len(set(seen[0])) == len(EVERYTHING) - 3


async def test_a_step_tells_what_came_of_it() -> None:
    async with SimProvider(settings()) as provider, GuestDesktop(await provider.boot(SPEC)) as desktop:
        done = await desktop.step([Click(x=9999, y=1), Typing("x")], observe=Observe(screenshot=False, tree=True))
        assert [result.ok for result in done.results] == [False, False]
        assert "CLICK.x" in done.results[0].error
        assert done.settle is SettleOutcome.NO_REACTION
        assert done.screenshot is None
        assert done.tree is not None
        assert (await desktop.step([Click(x=1, y=1)])).settle is SettleOutcome.SETTLED
        assert (await desktop.step([Click(x=1, y=1)], settle=None)).settle is SettleOutcome.SKIPPED
        assert not (await desktop.step([Answer("42")])).results[0].ok
        assert (await desktop.step([Wait(0.001), Script("print(1)")], settle=Settle())).results[1].ok
        assert (await desktop.step([])).screenshot == await desktop.screenshot()
        with pytest.raises(GuestError, match="png"):
            await desktop.screenshot("jpeg")


async def test_programs_files_and_clipboard_are_there_until_a_revert() -> None:
    async with SimProvider(settings()) as provider:
        address = await provider.boot(SPEC)
        async with GuestDesktop(address) as desktop:
            clean = await desktop.screenshot()
            assert (await desktop.run("ls -l")).returncode == 0
            await desktop.launch(["/usr/bin/gimp", "a.png"])
            await desktop.launch("mousepad 'x'")
            await desktop.activate_window("gimp")
            assert [(window.title, window.active) for window in await desktop.windows()] == [
                ("gimp", True),
                ("mousepad", False),
            ]
            frames = ET.fromstring(await desktop.accessibility_tree()).findall("./application/frame")
            assert [frame.get("name") for frame in frames] == ["gimp", "mousepad"]
            await desktop.write_file("~/a/../b.txt", b"\x00text")
            assert await desktop.read_file("/home/user/b.txt") == b"\x00text"
            await desktop.write_clipboard("copied")
            assert await desktop.read_clipboard() == "copied"
            assert await desktop.terminal() is None
            assert await desktop.screenshot() != clean
        async with GuestDesktop(await provider.revert(address.id, SPEC)) as desktop:
            assert await desktop.windows() == []
            assert await desktop.read_clipboard() == ""
            assert await desktop.screenshot() == clean
            with pytest.raises(GuestError) as error:
                await desktop.read_file("~/b.txt")
            assert error.value.status == 404


async def test_files_have_a_limit() -> None:
    async with SimProvider(settings()) as provider:
        address = await provider.boot(SPEC)
        for size, status in ((16 * 1024 * 1024, 200), (16 * 1024 * 1024 + 1, 413)):
            form = aiohttp.FormData({"file_path": "big"})
            form.add_field("file_data", io.BytesIO(bytes(size)), filename="file")
            assert await ask(address, "POST", "/setup/upload", body=form) == status


async def test_other_requests() -> None:
    async with SimProvider(settings()) as provider:
        address = await provider.boot(SPEC)
        for method, path, status in (
            ("GET", "/platform", 200), ("POST", "/screen_size", 200), ("GET", "/nowhere", 404),
            ("POST", "/nowhere", 404), ("POST", "/file", 400), ("POST", "/setup/upload", 400),
            ("POST", "/execute", 400),
        ):  # fmt: skip
            assert await ask(address, method, path) == status, path
        folder = Path(address.endpoint.removeprefix("unix:")).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not folder.exists()


HOLDER = """
import asyncio, sys, msgspec
import deskroll.desktops.providers.sim.provider
from deskroll.desktops.base import Address
from deskroll.desktops.guest.client import GuestDesktop

async def main():
    async with GuestDesktop(msgspec.json.decode(sys.argv[1], type=Address)) as desktop:
        await desktop.write_clipboard("from afar")

asyncio.run(main())
print(*{"numpy", "PIL", "Xlib", "deskroll.desktops.x11"} & set(sys.modules))
"""


async def test_another_process_can_hold_a_desktop_without_any_extra() -> None:
    async with SimProvider(settings()) as provider:
        address = await provider.boot(SPEC)
        argument = msgspec.json.encode(address).decode()
        holder = await asyncio.create_subprocess_exec(
            sys.executable, "-c", HOLDER, argument, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await holder.communicate()
        assert (holder.returncode, output.strip()) == (0, b"")
        async with GuestDesktop(address) as desktop:
            assert await desktop.read_clipboard() == "from afar"


# Identity and cleanliness


async def test_a_revert_ends_the_old_address() -> None:
    async with SimProvider(settings(snapshots="office")) as provider:
        old = await provider.boot(SPEC, desktop_id="mine")
        new = await provider.revert("mine", DesktopSpec(width=640, height=360, snapshot="office"))
        assert (old.id, new.id, old.endpoint) == ("mine", "mine", new.endpoint)
        with pytest.raises(DesktopLost, match="any more"):
            await provider.check(old)
        async with GuestDesktop(old) as late:
            with pytest.raises(GuestError) as error:
                await late.screenshot()
        assert error.value.status == 401
        await provider.check(new)
        with pytest.raises(ResetError, match="width"):
            await provider.revert("mine", DesktopSpec(width=800, height=360))
        with pytest.raises(ResetError, match="not here"):
            await provider.revert("another", SPEC)
        with pytest.raises(BootError, match="already"):
            await provider.boot(SPEC, desktop_id="mine")


async def test_a_revert_ends_what_is_under_way() -> None:
    async with SimProvider(settings(step=str(NEVER))) as provider:
        address = await provider.boot(SPEC)
        async with GuestDesktop(address) as desktop:
            steps = [asyncio.ensure_future(desktop.step([Typing("late")])) for _ in range(2)]
            await eventually(lambda: _both_there(provider.world, address.id), "one is under way, the other waits")
            new = await provider.revert(address.id, SPEC)
            for step in steps:
                with pytest.raises(DesktopLost, match="being reset"):
                    await step
        async with GuestDesktop(new) as desktop, GuestDesktop(await provider.boot(SPEC)) as other:
            assert await desktop.screenshot() == await other.screenshot()


async def _both_there(world: SimWorld, desktop_id: str) -> bool:
    """Whether a step is under way and another one waits for it."""
    acting = world.desktops[desktop_id].acting
    return acting.locked() and bool(acting._waiters)  # type: ignore[attr-defined]  (a lock does not tell)


async def test_a_timed_fence_keeps_the_address() -> None:
    async with SimProvider(settings(fence="timed")) as provider:
        old = await provider.boot(SPEC)
        assert await provider.revert(old.id, SPEC) == old
        await provider.check(old)


async def test_desktops_that_are_replaced_cannot_be_reverted() -> None:
    async with SimProvider(settings(recycling="replace")) as provider:
        address = await provider.boot(SPEC)
        with pytest.raises(ResetError, match="replace"):
            await provider.revert(address.id, SPEC)


async def test_a_second_lease_is_a_violation() -> None:
    async with SimProvider(settings()) as provider:
        address = await provider.boot(SPEC)
        await provider.check(address)
        for lease in ("first", "first", "second", "second"):
            await ask(address, "GET", "/screenshot", lease)
        assert len(provider.world.violations) == 1
        assert all(word in provider.world.violations[0] for word in (address.id, "generation 1", "first", "second"))
        address = await provider.revert(address.id, SPEC)
        await provider.check(address)
        await ask(address, "GET", "/screenshot", "third")
        assert len(provider.world.violations) == 1


async def test_use_before_the_check_is_a_violation() -> None:
    async with SimProvider(settings()) as provider:
        address = await provider.boot(SPEC)
        assert await ask(address, "GET", "/windows") == 200
        assert provider.world.violations == []
        await ask(address, "GET", "/windows", "early")
        assert len(provider.world.violations) == 1
        assert "handed out unchecked" in provider.world.violations[0]
        assert address.id in provider.world.violations[0]
        assert "early" in provider.world.violations[0]


async def test_use_during_a_reset_is_a_violation_of_a_timed_fence_and_impossible_with_a_hard_one() -> None:
    for fence, status, violations in (("timed", 503, 1), ("hard", 401, 0)):
        async with SimProvider(settings(fence=fence, reset=str(NEVER))) as provider:
            address = await provider.boot(SPEC)
            await provider.check(address)
            reverting = asyncio.ensure_future(provider.revert(address.id, SPEC))
            await eventually(lambda: _resets(provider.world), "the reset has begun")
            assert await ask(address, "GET", "/screenshot", "late") == status
            assert len(provider.world.violations) == violations
            reverting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reverting


async def _resets(world: SimWorld) -> int:
    return world.resets


# Faults


async def outcomes(seed: int, count: int = 40) -> list[str]:
    """What becomes of some desktops that are used all at once."""
    faults = {"boot_fails": "0.2", "reset_fails": "0.2", "step_crashes": "0.2"}
    world = SimWorld()

    async def live(provider: SimProvider, n: int) -> str:
        done: list[str] = []
        try:
            address = await provider.boot(SPEC, desktop_id=f"d{n}")
            for _ in range(3):
                async with GuestDesktop(address) as desktop:
                    await desktop.step([Click(x=n, y=n)])
                done.append("step")
                address = await provider.revert(address.id, SPEC)
        except DesktopError as error:
            done.append(type(error).__name__)
        return " ".join(done)

    options = {"boot": "exp 0.005", "reset": "0..0.01", "step": "lognormal 0.003 0.5"}
    async with SimProvider(settings(seed=str(seed), **options, **faults), world=world) as provider:
        return await asyncio.gather(*(live(provider, n) for n in range(count)))


async def test_a_seed_decides_everything() -> None:
    first = await outcomes(1)
    assert await outcomes(1) == first
    assert await outcomes(2) != first
    assert {outcome.split()[-1] for outcome in first} == {"step", "BootError", "ResetError", "DesktopLost"}


async def test_a_boot_that_fails_leaves_nothing() -> None:
    async with SimProvider(settings(boot_fails="1")) as provider:
        with pytest.raises(BootError, match="boot_fails"):
            await provider.boot(SPEC)
        assert (provider.world.alive, provider.world.peak_alive, provider.world.boots) == (0, 1, 1)
        assert await provider.notes() == []


async def test_a_boot_that_leaks_leaves_a_machine_until_it_is_stopped() -> None:
    async with SimProvider(settings(boot_leaks="1")) as provider:
        with pytest.raises(BootError):
            await provider.boot(SPEC, desktop_id="leak")
        assert provider.world.alive == 1
        assert [note.id for note in await provider.notes()] == ["leak"]
        await provider.stop("leak")
        assert provider.world.alive == 0


@pytest.mark.parametrize("options", [{"boot_hangs": "1"}, {"boot": str(NEVER)}])
async def test_a_cancelled_boot_leaves_nothing(options: dict[str, str]) -> None:
    async with SimProvider(settings(**options)) as provider:
        booting = asyncio.ensure_future(provider.boot(SPEC, desktop_id="slow"))
        await eventually(lambda: _noted(provider, "slow"), "the desktop is noted before it is there")
        assert provider.world.alive == 1
        booting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await booting
        assert provider.world.alive == 0
        assert not await _noted(provider, "slow")


async def test_a_stop_ends_a_boot() -> None:
    async with SimProvider(settings(boot_hangs="1")) as provider:
        booting = asyncio.ensure_future(provider.boot(SPEC, desktop_id="slow"))
        await eventually(lambda: _noted(provider, "slow"), "the desktop is noted before it is there")
        await provider.stop("slow")
        with pytest.raises(BootError, match="was stopped"):
            await booting
        assert provider.world.alive == 0


async def _noted(provider: SimProvider, desktop_id: str) -> bool:
    return desktop_id in [note.id for note in await provider.notes()]


async def test_a_reset_that_fails_leaves_a_broken_machine() -> None:
    async with SimProvider(settings(reset_fails="1")) as provider:
        address = await provider.boot(SPEC)
        with pytest.raises(ResetError, match="reset_fails"):
            await provider.revert(address.id, SPEC)
        with pytest.raises(DesktopError):
            await provider.check(address)
        assert provider.world.alive == 1
        await provider.stop(address.id)
        assert provider.world.alive == 0


async def test_a_reset_that_hangs_can_be_called_off() -> None:
    async with SimProvider(settings(reset_hangs="1")) as provider:
        address = await provider.boot(SPEC)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(provider.revert(address.id, SPEC), 0.05)
        with pytest.raises(DesktopError):
            await provider.check(address)
        await provider.stop(address.id)
        assert provider.world.alive == 0


async def test_a_slow_reset_takes_longer() -> None:
    async with SimProvider(settings(reset="0.001", reset_slow="1", slow_factor="50")) as provider:
        address = await provider.boot(SPEC)
        began = asyncio.get_running_loop().time()
        await provider.revert(address.id, SPEC)
        assert asyncio.get_running_loop().time() - began >= 0.05


async def test_a_desktop_that_crashes_is_lost_until_it_is_reverted() -> None:
    lost: list[tuple[str, str]] = []
    async with SimProvider(settings(step_crashes="1")) as provider:
        provider.on_lost(lambda desktop_id, reason, _: lost.append((desktop_id, reason)))
        address = await provider.boot(SPEC)
        async with GuestDesktop(address) as desktop:
            for act in (lambda: desktop.step([]), desktop.check, desktop.windows):
                call: Callable[[], Awaitable[object]] = act
                with pytest.raises(DesktopLost, match="crashed"):
                    await call()
        assert [desktop_id for desktop_id, _ in lost] == [address.id]
        assert provider.world.alive == 0
        await provider.check(await provider.revert(address.id, SPEC))
        assert provider.world.alive == 1


async def test_a_desktop_that_hangs_is_wedged_until_it_is_reverted() -> None:
    async with SimProvider(settings(step_hangs="1")) as provider:
        address = await provider.boot(SPEC)
        async with GuestDesktop(address, timeout=1.0) as desktop:
            await desktop.check()
            for act in (lambda: desktop.step([], settle=None), desktop.check, desktop.windows):
                call: Callable[[], Awaitable[object]] = act
                with pytest.raises(DesktopTimeout):
                    await call()
        await provider.check(await provider.revert(address.id, SPEC))


async def test_idle_desktops_die() -> None:
    lost: list[str] = []
    async with SimProvider(settings(dies_idle="1", dies_after="0.01")) as provider:
        provider.on_lost(lambda desktop_id, *_: lost.append(desktop_id))
        address = await provider.boot(SPEC)
        await eventually(lambda: _filled(lost), "its death is told")
        assert lost == [address.id]
        with pytest.raises(DesktopLost, match="nobody used it"):
            await provider.check(address)
        assert provider.world.alive == 0


async def _filled(lost: list[str]) -> bool:
    return bool(lost)


async def test_a_stop_may_fail_and_leaving_ends_all() -> None:
    async with SimProvider(settings(stop_fails="1")) as provider:
        address = await provider.boot(SPEC)
        with pytest.raises(DesktopError, match="stop_fails"):
            await provider.stop(address.id)
        assert provider.world.alive == 1
        with pytest.raises(DesktopLost):
            await provider.check(address)
    assert provider.world.alive == 0


async def test_stopping_twice_is_no_error() -> None:
    async with SimProvider(settings(stop="0.01")) as provider:
        address = await provider.boot(SPEC)
        await asyncio.gather(provider.stop(address.id), provider.stop(address.id))
        await provider.stop(address.id)
        await provider.stop("never was")
        assert (provider.world.alive, provider.world.stops) == (0, 1)
        with pytest.raises(DesktopLost, match="was stopped"):
            await provider.check(address)


async def test_a_closed_provider_boots_nothing() -> None:
    with pytest.raises(BootError, match="async with"):
        await SimProvider().boot(SPEC)


# Owners


async def test_an_orphan_is_adopted_by_one() -> None:
    world = SimWorld()
    first = await SimProvider(settings(), world=world, owner=dead_owner()).__aenter__()
    old = await first.boot(SPEC, desktop_id="orphan")
    async with GuestDesktop(old) as desktop:
        await desktop.write_clipboard("left behind")
    await first.abandon()
    assert world.alive == 1
    async with SimProvider(settings(), world=world) as second, SimProvider(settings(), world=world) as third:
        (note,) = await second.notes()
        assert note.orphaned()
        results = await asyncio.gather(
            second.adopt(note, SPEC), third.adopt(note, SPEC), third.remove(note), return_exceptions=True
        )
        assert isinstance(results[0], Address)
        assert isinstance(results[1], ResetError)
        assert results[2] is None
        await second.check(results[0])
        async with GuestDesktop(results[0]) as desktop:
            assert await desktop.read_clipboard() == ""
        (note,) = await third.notes()
        assert note.owner == Owner.this_process()
        # Who owned it before has no say any more.
        await first.stop("orphan")
        await third.stop("orphan")
        assert world.alive == 1
    assert world.alive == 0


async def test_an_orphan_in_the_middle_of_something_can_be_taken_over() -> None:
    world = SimWorld()
    first = await SimProvider(settings(boot_hangs="1"), world=world, owner=dead_owner()).__aenter__()
    booting = asyncio.ensure_future(first.boot(SPEC, desktop_id="orphan"))
    await eventually(lambda: _noted(first, "orphan"), "the boot has begun")
    await first.abandon()
    async with SimProvider(settings(), world=world) as second:
        await second.check(await second.adopt((await second.notes())[0], SPEC))
        with pytest.raises(BootError):
            await booting
        assert world.alive == 1


async def test_an_orphan_is_removed() -> None:
    world = SimWorld()
    first = await SimProvider(settings(), world=world, owner=dead_owner()).__aenter__()
    await first.boot(SPEC)
    await first.abandon()
    async with SimProvider(settings(), world=world) as second:
        (note,) = await second.notes()
        await second.remove(note)
        await second.remove(note)
        assert world.alive == 0


async def test_a_desktop_with_a_living_owner_is_left_alone() -> None:
    world = SimWorld()
    async with SimProvider(settings(), world=world) as first, SimProvider(settings(), world=world) as second:
        address = await first.boot(SPEC)
        (note,) = await second.notes()
        with pytest.raises(ResetError, match="not an orphan"):
            await second.adopt(note, SPEC)
        await second.remove(note)
        await first.check(address)


async def test_notes_are_renewed_while_their_provider_is_open() -> None:
    world = SimWorld()
    owner = Owner(host="elsewhere", pid=1, start=1)
    provider = await SimProvider(settings(), world=world, owner=owner).__aenter__()
    await provider.boot(SPEC)
    (first,) = await provider.notes()
    (second,) = await provider.notes()
    assert second.expires_at > first.expires_at
    assert not second.orphaned()
    await provider.abandon()
    assert [note.expires_at for note in world.notes()] == [second.expires_at]


# Many


async def test_a_thousand_desktops_boot_in_one_process() -> None:
    async with SimProvider(SimSettings(boot=Times.parse("0..0.2"))) as provider:
        addresses = await asyncio.gather(*(provider.boot(SPEC) for _ in range(1000)))
        assert (provider.world.alive, provider.world.peak_alive) == (1000, 1000)
        assert len({address.token for address in addresses}) == len({address.id for address in addresses}) == 1000
        for start in range(0, 1000, 50):
            await asyncio.gather(*map(provider.check, addresses[start : start + 50]))
        await asyncio.gather(*(provider.stop(address.id) for address in addresses[:500]))
        assert provider.world.alive == 500
    assert provider.world.alive == 0
    assert provider.world.violations == []
