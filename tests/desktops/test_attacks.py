"""Every attack from inside a desktop fails; afterwards that desktop is well, and nothing of the host was touched."""

from __future__ import annotations

import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.providers.local.provider import LocalProvider
from deskroll.desktops.providers.local.sandbox import TERMINALS
from tests.desktops.attacks import ATTACKS, Attack, Outside
from tests.prey import SECRET, Prey, put_out

SMALL = DesktopSpec(width=640, height=480, disk_mb=64)
FEW = 6
"""Terminals that are opened on the host itself, and beyond what a desktop may have."""
OWN_ROOT = ["unshare", "--user", "--map-root-user", "--mount", "--net", "--"]


@pytest_asyncio.fixture(scope="module")
async def prey(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Prey]:
    async with put_out(tmp_path_factory.mktemp("host")) as prey:
        yield prey


@pytest_asyncio.fixture(scope="module")
async def attacked(prey: Prey, runtime_folder: Path) -> AsyncIterator[GuestDesktop]:
    """One desktop for all attacks, of a provider that was started where the key is."""
    async with LocalProvider() as local, GuestDesktop(await local.boot(SMALL), timeout=60.0) as desktop:
        yield desktop


def said(attack: Attack, prey: Prey) -> str:
    """What an attack prints on the host itself."""
    command = ["/usr/bin/python3", "-c", prey.fill(attack.code, TERMINALS=FEW)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return run.stdout + run.stderr


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_it_fails(attack: Attack, attacked: GuestDesktop, prey: Prey) -> None:
    command = [*(OWN_ROOT if attack.as_root else []), "/usr/bin/python3", "-c"]
    result = await attacked.run([*command, prey.fill(attack.code, TERMINALS=TERMINALS + FEW)])
    text = result.output + result.error
    assert re.search(attack.says, text, re.MULTILINE), text
    # Where a step on the way succeeds, and is to, the pattern says which, and what comes of it.
    assert attack.says.startswith("^DONE") or "DONE" not in text, text
    assert SECRET not in text
    await attacked.check()
    prey.require_untouched()


OUTSIDE = [each for each in ATTACKS if each.outside is not Outside.NO]


@pytest.mark.parametrize("attack", OUTSIDE, ids=lambda attack: attack.name)
def test_it_succeeds_outside(attack: Attack, prey: Prey) -> None:
    """The same code on the host itself: what the test above looks for is what success looks like."""
    text = said(attack, prey)
    prey.visits.clear()
    if attack.outside is Outside.MAYBE and "DONE" not in text:
        pytest.skip(f"this machine lets nobody do it: {text[-200:]}")
    assert "DONE" in text, text


def test_attacks_differ() -> None:
    names, codes = {each.name for each in ATTACKS}, {(each.code, each.as_root) for each in ATTACKS}
    assert len(names) == len(codes) == len(ATTACKS) >= 100
