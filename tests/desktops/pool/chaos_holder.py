"""A holder process for the chaos test: leases and uses desktops until it is told to stop, or is killed.

Prints one line a lease when it has it. A desktop must not hold what another holder left in it; that a second holder
comes, the simulated desktops notice by themselves.
"""

from __future__ import annotations

import asyncio
import random
import sys

from deskroll.actions import Click, Typing
from deskroll.desktops.lease import Lease
from deskroll.desktops.service import PoolClient
from deskroll.errors import DesktopError, GuestError

MARK = "/home/user/mark"


async def use(lease: Lease, dice: random.Random) -> None:
    try:
        found = await lease.desktop.read_file(MARK)
        print(f"DIRTY {lease.address.id} holds {found.decode()} for {lease.id}", flush=True)
    except GuestError as error:
        if error.status != 404:
            raise
    await lease.desktop.write_file(MARK, lease.id.encode())
    for _ in range(dice.randint(0, 2)):
        step = lease.desktop.step([Click(x=dice.randint(0, 99), y=9), Typing(text="x")])
        await asyncio.wait_for(step, 0.3)
    if (found := await lease.desktop.read_file(MARK)) != lease.id.encode():
        print(f"TAKEN {lease.address.id} holds {found.decode()} for {lease.id}", flush=True)


async def hold(pool: PoolClient, seed: str) -> None:
    dice = random.Random(seed)
    while True:
        patience = dice.choice([None, None, 0.05])
        try:
            async with asyncio.timeout(patience), pool.lease(priority=dice.randint(0, 1), group=seed) as lease:
                print(f"LEASED {lease.id}", flush=True)
                await use(lease, dice)
        except (DesktopError, TimeoutError):
            continue  # a crash, a hang, a lease that was taken away: the pool's affair, and the next one's


async def main(at: str, name: str, holders: int) -> None:
    async with PoolClient(at, client=name, beat=0.2) as pool, asyncio.TaskGroup() as tasks:
        for number in range(holders):
            tasks.create_task(hold(pool, f"{name}/{number}"))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
