"""What every provider of desktops must do. Boots real desktops: some twenty, at most three at a time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec
import pytest

from deskroll.desktops.base import Address, Capabilities, DesktopSpec, Fence, Recycling
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.providers import make_provider
from deskroll.desktops.providers.base import Provider
from deskroll.desktops.reaper import orphans, reap
from deskroll.errors import BootError, DesktopError, InputError, ResetError
from deskroll.host.owner import Owner
from deskroll.testing import Chosen, awaited

SPEC = DesktopSpec(width=640, height=480)
_OWNER = """
import asyncio, json, sys
from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.providers import make_provider
async def main():
    async with make_provider(sys.argv[1], json.loads(sys.argv[2])) as provider:
        print((await provider.boot(DesktopSpec(width=640, height=480))).id, flush=True)
        await asyncio.sleep(3600)
asyncio.run(main())
"""


def make(chosen: Chosen) -> Provider:
    """A provider, not yet open."""
    return make_provider(chosen.name, chosen.options)


async def noted(provider: Provider) -> set[str]:
    """The ids of all desktops that are noted."""
    return {note.id for note in await provider.notes()}


async def is_dead(provider: Provider, address: Address) -> bool:
    """Whether nobody can use a desktop at that address."""
    try:
        await provider.check(address)
    except DesktopError:
        return True
    return False


@contextmanager
def owner_of_one(chosen: Chosen) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process that owns one desktop, whose id is given; it is killed in the end."""
    options = msgspec.json.encode(chosen.options).decode()
    with subprocess.Popen([sys.executable, "-c", _OWNER, chosen.name, options], stdout=subprocess.PIPE) as owner:
        try:
            assert owner.stdout is not None
            held = owner.stdout.readline().decode().strip()
            assert held, "the owner's desktop did not boot"
            yield owner, held
        finally:
            owner.kill()


def test_it_says_what_it_is_capable_of(chosen: Chosen) -> None:
    """The pool acts upon it before anything is booted."""
    provider = make(chosen)
    assert isinstance(provider.capabilities, Capabilities)
    assert provider.name
    assert provider.capabilities.boot_s >= 0
    assert set(provider.capabilities.revertible) <= set(SPEC.__struct_fields__)


def test_a_spec_that_can_never_be_is_refused_before_anything_starts(chosen: Chosen) -> None:
    """By an `InputError`, which names the field."""
    provider = make(chosen)
    provider.check_spec(SPEC)
    with pytest.raises(InputError, match="width"):
        provider.check_spec(DesktopSpec(width=1, height=480))


@awaited
async def test_a_desktop_answers_where_its_address_says(chosen: Chosen) -> None:
    """It has the id and the size that were asked for, and shows a screen."""
    async with make(chosen) as provider:
        address = await provider.boot(SPEC, desktop_id=f"{provider.name}-contract")
        assert (address.id, address.width, address.height) == (f"{provider.name}-contract", 640, 480)
        await provider.check(address)
        async with GuestDesktop(address) as desktop:
            assert (await desktop.screenshot()).startswith(b"\x89PNG")


@awaited
async def test_a_desktop_is_noted_as_ours_until_it_is_stopped(chosen: Chosen) -> None:
    """Who finds the note knows whose it is, and that its owner lives."""
    async with make(chosen) as provider:
        address = await provider.boot(SPEC)
        note = next(note for note in await provider.notes() if note.id == address.id)
        assert note.owner == Owner.this_process()
        assert not note.orphaned()
        assert (note.provider, note.width, note.height) == (provider.name, 640, 480)
        await provider.stop(address.id)
        assert address.id not in await noted(provider)


@awaited
async def test_a_stopped_desktop_is_gone_and_stopping_it_again_is_no_error(chosen: Chosen) -> None:
    """Nor is stopping one twice at the same time, or one that never was."""
    async with make(chosen) as provider:
        address = await provider.boot(SPEC)
        await asyncio.gather(provider.stop(address.id), provider.stop(address.id))
        assert await is_dead(provider, address)
        await provider.stop(address.id)
        await provider.stop("there-never-was-one")


@awaited
async def test_leaving_stops_everything_and_a_closed_provider_boots_nothing(chosen: Chosen) -> None:
    """What was booted does not outlive the block."""
    provider = make(chosen)
    async with provider:
        address = await provider.boot(SPEC)
    assert await is_dead(provider, address)
    with pytest.raises(BootError):
        await provider.boot(SPEC)
    async with make(chosen) as other:
        assert address.id not in await noted(other)


@awaited
async def test_several_boot_side_by_side(chosen: Chosen) -> None:
    """Each is a machine of its own; an id that is taken is refused."""
    async with make(chosen) as provider:
        addresses = await asyncio.gather(*(provider.boot(SPEC) for _ in range(3)))
        assert len({(each.endpoint, each.token) for each in addresses}) == 3
        await asyncio.gather(*map(provider.check, addresses))
        with pytest.raises(BootError):
            await provider.boot(SPEC, desktop_id=addresses[0].id)
        await provider.stop(addresses[0].id)
        await provider.check(addresses[1])


@pytest.mark.parametrize("turns", [0, 1, 10, 1000])
@awaited
async def test_a_boot_that_is_cancelled_leaves_nothing(chosen: Chosen, turns: int) -> None:
    """However far it has come; the next boot works as if nothing had happened."""
    async with make(chosen) as provider:
        booting = asyncio.ensure_future(provider.boot(SPEC, desktop_id=f"{provider.name}-cancelled"))
        for _ in range(turns):
            await asyncio.sleep(0)
        booting.cancel()
        with suppress(asyncio.CancelledError):
            await booting
        await provider.stop(f"{provider.name}-cancelled")
        assert f"{provider.name}-cancelled" not in await noted(provider)
        await provider.check(await provider.boot(SPEC, desktop_id=f"{provider.name}-cancelled"))


@awaited
async def test_a_desktop_that_is_reverted_is_clean_and_one_that_cannot_be_says_so(chosen: Chosen) -> None:
    """Nothing of one use is there in the next; with a hard fence, the old address leads nowhere."""
    async with make(chosen) as provider:
        old = await provider.boot(SPEC)
        if provider.capabilities.recycling is not Recycling.REVERT:
            with pytest.raises(ResetError):
                await provider.revert(old.id, SPEC)
            return
        async with GuestDesktop(old) as desktop:
            await desktop.write_clipboard("left behind")
        new = await provider.revert(old.id, SPEC)
        await provider.check(new)
        async with GuestDesktop(new) as desktop:
            assert await desktop.read_clipboard() == ""
        assert new.id == old.id
        if provider.capabilities.fence is Fence.HARD:
            assert await is_dead(provider, old)


def test_what_a_killed_owner_leaves_is_found_and_removed_by_the_next(chosen: Chosen) -> None:
    """Killed with -9, in the middle of its use; where desktops outlive their owner, one can be taken over, too."""
    with owner_of_one(chosen) as (_, left):
        pass

    @awaited
    async def check() -> None:
        async with make(chosen) as provider:
            if provider.capabilities.adopts:
                for note in [note for note in await orphans(provider) if note.id == left]:
                    await provider.check(await provider.adopt(note, SPEC))
                    await provider.stop(note.id)
            assert [each.error for each in await reap(provider) if each.note.id == left and each.error] == []
            assert left not in await noted(provider)

    check()


def test_a_desktop_with_a_living_owner_is_left_alone(chosen: Chosen) -> None:
    """Nobody else may take it over or remove it, while its owner runs."""
    with owner_of_one(chosen) as (owner, held):

        @awaited
        async def check() -> None:
            async with make(chosen) as provider:
                for note in [note for note in await provider.notes() if note.id == held]:
                    assert not note.orphaned()
                    with pytest.raises(ResetError):
                        await provider.adopt(note, SPEC)
                    await provider.remove(note)
                    assert held in await noted(provider)

        check()
        assert owner.poll() is None
    _clean_up(chosen)


@awaited
async def _clean_up(chosen: Chosen) -> None:
    async with make(chosen) as provider:
        await reap(provider)
