"""Everything goes wrong at once, for thousands of leases: nobody gets a dirty desktop, or one that is somebody's."""

from __future__ import annotations

import asyncio
import random
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from deskroll.desktops.service import PoolService
from deskroll.host.listen import Listen
from tests.desktops.pool.conftest import Open, SimPool

ROOT = Path(__file__).parent.parent.parent.parent
PROCESSES = 4
HOLDERS = 25
DESKTOPS = 40
# Each is drawn by itself: a fifth of all boots, of all resets and of all steps fail or hang.
FAULTS = {
    "boot_fails": "0.1", "boot_hangs": "0.07", "boot_leaks": "0.06",
    "reset_fails": "0.12", "reset_hangs": "0.1", "reset_slow": "0.06",
    "step_crashes": "0.12", "step_hangs": "0.1", "dies_idle": "0.05", "dies_after": "0.05", "stop_fails": "0.2",
}  # fmt: skip
PATIENCE = {"boot_timeout": 0.3, "reset_timeout": 0.3, "check_timeout": 0.3, "stop_timeout": 1.0, "check_every": 0.5}


class Holders:
    """Holder processes: what they say is counted; now and then one is killed and another takes its place."""

    def __init__(self, at: str, wanted: int) -> None:
        self._at = at
        self._wanted = wanted
        self._started = 0
        self.leases = 0
        self.killed = 0
        self.complaints: list[str] = []
        self.enough = asyncio.Event()

    async def run_one(self, dice: random.Random) -> None:
        """One process after another, each killed after some of its leases."""
        while not self.enough.is_set():
            self._started += 1
            command = [
                sys.executable,
                "-m",
                "tests.desktops.pool.chaos_holder",
                self._at,
                f"p{self._started}",
                str(HOLDERS),
            ]
            process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE, cwd=ROOT)
            try:
                await self._listen(process, dice.randint(100, 400))
            finally:
                process.kill()
                _, errors = await process.communicate()
            assert b"Traceback" not in errors, errors.decode()
            self.killed += 1

    async def _listen(self, process: Process, leases: int) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            word = line.split()[0]
            if word != b"LEASED":
                self.complaints.append(line.decode().strip())
                continue
            self.leases += 1
            leases -= 1
            if self.leases >= self._wanted:
                self.enough.set()
            if leases == 0 or self.enough.is_set():
                return


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("recycling", "fence", "leases"),
    [("revert", "hard", 5_000), ("replace", "hard", 1_500), ("revert", "timed", 1_500)],
)
async def test_chaos(open_pool: Open, tmp_path: Path, recycling: str, fence: str, leases: int) -> None:
    sim = {**FAULTS, "recycling": recycling, "fence": fence, "boot": "0..0.02", "reset": "0..0.02", "step": "0..0.01"}
    pool: SimPool = await open_pool(sim, num_vms=DESKTOPS, backoff=0.01, backoff_max=0.1, **PATIENCE)
    at = f"unix:{tmp_path / 'pool.sock'}"
    holders = Holders(at, leases)
    async with PoolService(pool, Listen.parse(at)), asyncio.TaskGroup() as tasks:
        for number in range(PROCESSES):
            tasks.create_task(holders.run_one(random.Random(number)))
    assert holders.complaints == []
    assert holders.leases >= leases
    assert holders.killed > PROCESSES, "some were killed in the middle of it"
    assert pool.world.violations == []
    assert pool.world.peak_alive <= DESKTOPS
    for kind in ("desktop.broken", "desktop.boot_failed", "desktop.unstoppable", "lease.lost"):
        assert pool.events.of(kind), f"the test did not get to see any {kind}"
    await pool.until_ready(DESKTOPS)
