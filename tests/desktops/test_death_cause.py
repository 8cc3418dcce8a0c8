"""Where the cause of a desktop's death lies: told by those who can know, and carried to whoever judges the episode."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from aiohttp import web

from deskroll.desktops.base import Address, DesktopSpec
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.pool import Pool, PoolConfig
from deskroll.desktops.providers.local import network
from deskroll.desktops.providers.local.provider import LocalProvider
from deskroll.desktops.providers.sim.provider import SimProvider
from deskroll.desktops.providers.sim.settings import SimSettings
from deskroll.desktops.service.client import PoolClient
from deskroll.desktops.service.server import PoolService
from deskroll.errors import DeathCause, DesktopLost, DesktopTimeout
from deskroll.host.control_group import can_make_groups
from deskroll.host.listen import Listen
from deskroll.rollout.stopping import error_of
from deskroll.types import Failure
from tests.desktops.conftest import host_processes, keeper_of, sandbox_pid
from tests.waiting import eventually, wait_until

SPEC = DesktopSpec(width=640, height=480, memory_mb=512)


@asynccontextmanager
async def guest_saying(folder: Path, answer: dict[str, object]) -> AsyncIterator[GuestDesktop]:
    """A guest that answers everything with one refusal, as a hostile one may."""

    async def refuse(_request: web.Request) -> web.Response:
        return web.json_response(answer, status=503)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(folder / "guest.sock")).start()
        address = Address(id="d1", endpoint=f"unix:{folder / 'guest.sock'}", provider="static", width=800, height=600)
        async with GuestDesktop(address) as desktop:
            yield desktop
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("said", "believed"),
    [
        ({}, DeathCause.UNKNOWN),
        ({"cause": "inside"}, DeathCause.INSIDE),
        ({"cause": "unknown"}, DeathCause.UNKNOWN),
        ({"cause": "outside"}, DeathCause.UNKNOWN),  # a program inside could say so to be acquitted
        ({"cause": "no such"}, DeathCause.UNKNOWN),
    ],
)
async def test_what_a_guest_says_of_its_death(tmp_path: Path, said: dict[str, object], believed: DeathCause) -> None:
    async with guest_saying(tmp_path, {"message": "Xvfb is gone", "lost": True, **said}) as desktop:
        with pytest.raises(DesktopLost, match="Xvfb is gone") as caught:
            await desktop.screenshot()
    assert caught.value.cause is believed


@pytest.mark.parametrize("cause", DeathCause)
def test_a_failure_keeps_the_cause_and_gives_it_back(cause: DeathCause) -> None:
    failure = Failure.of(DesktopLost("desktop d1 is gone", cause))
    assert failure.cause is cause
    again = error_of(failure)
    assert isinstance(again, DesktopLost) and again.cause is cause and str(again) == "desktop d1 is gone"


def test_no_other_failure_has_a_cause() -> None:
    assert Failure.of(DesktopTimeout("desktop d1 did not answer")).cause is None
    assert DesktopLost("desktop d1 is gone").cause is DeathCause.UNKNOWN


@pytest.fixture
async def pool(runtime_folder: Path) -> AsyncIterator[Pool]:
    async with Pool(LocalProvider(), PoolConfig(num_vms=1, min_vms=0, spec=SPEC)) as local:
        yield local


async def death_of(desktop: GuestDesktop) -> DeathCause:
    """Look at it until it is lost."""

    async def lost() -> DesktopLost | None:
        try:
            await desktop.screenshot()
            await desktop.check()
        except DesktopLost as error:
            return error
        return None

    return (await eventually(lost, f"{desktop.id} is lost")).cause


def the_keeper(address: Address) -> psutil.Process:
    return keeper_of(address)


def the_first(address: Address) -> psutil.Process:
    return psutil.Process(sandbox_pid(address))


def the_sandbox(address: Address) -> psutil.Process:
    parent = the_first(address).parent()
    assert parent is not None
    return parent


@pytest.mark.parametrize("victim", [the_keeper, the_first, the_sandbox])
async def test_what_nothing_inside_reaches_is_killed_from_outside(pool: Pool, victim: object) -> None:
    assert callable(victim)
    async with pool.lease() as lease:
        await lease.desktop.check()
        victim(lease.address).kill()
        assert await death_of(lease.desktop) is DeathCause.OUTSIDE


@pytest.mark.skipif(bool(network.missing()[0]), reason="this machine can give no desktop the network")
async def test_a_killed_way_to_the_network_is_the_hosts_doing(pool: Pool) -> None:
    async with pool.lease(DesktopSpec(width=640, height=480, network=True)) as lease:
        next(each for each in keeper_of(lease.address).children() if each.name() == "slirp4netns").kill()
        assert await death_of(lease.desktop) is DeathCause.OUTSIDE


@pytest.mark.parametrize(
    ("part", "number", "cause"),
    [
        ("Xvfb", signal.SIGSEGV, DeathCause.INSIDE),
        ("openbox", signal.SIGABRT, DeathCause.INSIDE),
        # By whom, nobody can tell: the host's out-of-memory killer and a stopping service send these too.
        ("Xvfb", signal.SIGKILL, DeathCause.UNKNOWN),
        ("Xvfb", signal.SIGTERM, DeathCause.UNKNOWN),
        ("openbox", signal.SIGKILL, DeathCause.UNKNOWN),
        ("deskroll-guest", signal.SIGKILL, DeathCause.UNKNOWN),
    ],
)
async def test_a_part_that_crashes_dies_of_itself(
    pool: Pool, part: str, number: signal.Signals, cause: DeathCause
) -> None:
    async with pool.lease() as lease:
        await lease.desktop.check()
        os.kill(host_processes(lease.address)[part].pid, number)
        assert await death_of(lease.desktop) is cause


async def test_a_window_manager_that_loses_its_server_did_not_fail_by_itself(pool: Pool) -> None:
    """openbox ends with code 1 when Xvfb is gone, and often before Xvfb has."""
    async with pool.lease() as lease:
        parts = host_processes(lease.address)
        parts["deskroll-guest"].suspend()  # so that it finds both of them dead
        parts["Xvfb"].kill()
        wait_until(lambda: parts["openbox"].status() == psutil.STATUS_ZOMBIE, "openbox ends with its server")
        parts["deskroll-guest"].resume()
        assert await death_of(lease.desktop) is DeathCause.UNKNOWN


EAT = """
from Xlib import X, display
d = display.Display()
pixmaps = []
while True:
    pixmap = d.screen().root.create_pixmap(4000, 4000, 24)
    pixmap.fill_rectangle(d.screen().root.create_gc(foreground=1), 0, 0, 4000, 4000)
    pixmaps.append(pixmap)
    d.sync()
"""


@pytest.mark.skipif(not can_make_groups(), reason="no control groups: a desktop has no memory limit of its own")
async def test_a_server_killed_by_the_desktops_own_limit_dies_of_what_was_done_inside(pool: Pool) -> None:
    async with pool.lease() as lease:
        await lease.desktop.launch(["python3", "-c", EAT])
        assert await death_of(lease.desktop) is DeathCause.INSIDE


async def test_a_truncated_framebuffer_is_the_doing_of_a_program_inside(pool: Pool) -> None:
    async with pool.lease() as lease:
        await lease.desktop.run("truncate -s 100 /run/deskroll/fb/Xvfb_screen0")
        assert await death_of(lease.desktop) is DeathCause.INSIDE


@pytest.mark.parametrize("cause", DeathCause)
async def test_a_holder_elsewhere_hears_of_the_cause(tmp_path: Path, cause: DeathCause) -> None:
    settings = SimSettings.model_validate({"step_crashes": "1", "dies_of": cause})
    listen = Listen(path=str(tmp_path / "pool.sock"))
    async with (
        Pool(SimProvider(settings), PoolConfig(num_vms=1)) as sims,
        PoolService(sims, listen),
        PoolClient(str(listen)) as client,
        client.lease() as lease,
    ):
        with pytest.raises(DesktopLost) as caught:
            await lease.desktop.step([])
        assert caught.value.cause is cause
