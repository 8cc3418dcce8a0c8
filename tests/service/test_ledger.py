"""Which batches a service has had: durably, whoever is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

from deskroll.service.ledger import BatchLedger
from deskroll.store.local import LocalStorage
from deskroll.tasks.batches import BadBatch, BatchName, TaskBatch
from deskroll.types import Task

BATCH = TaskBatch(id="one", digest="d", tasks=(Task(id="a", instruction="?"),))


async def test_what_was_begun_is_written_also_where_its_writer_is_cancelled(tmp_path: Path) -> None:
    with BatchLedger(LocalStorage(tmp_path)) as ledger:
        for work in (ledger.take(BATCH), ledger.refuse(BadBatch(id="two", digest="d", error="bad"))):
            begun = asyncio.ensure_future(work)
            for _ in range(2):
                await asyncio.sleep(0)
                begun.cancel()
            await asyncio.wait((begun,))
            assert begun.cancelled()
        assert (ledger.taken, ledger.bad_count) == (1, 1)
    with BatchLedger(LocalStorage(tmp_path)) as ledger:
        assert (ledger.taken, ledger.bad_count) == (1, 1)
        assert await ledger.tasks(ledger.unfinished[0]) == BATCH.tasks


async def test_a_batch_that_was_given_up_may_come_again(tmp_path: Path) -> None:
    with BatchLedger(LocalStorage(tmp_path)) as ledger:
        await ledger.give_up(await ledger.take(BATCH), "a file is gone")
    with BatchLedger(LocalStorage(tmp_path)) as ledger:
        assert [(each.id, each.error) for each in ledger.bad] == [("one", "a file is gone")]
        assert not ledger.knows(BatchName(id="one", digest="d"))
        assert ledger.unfinished == {}
        assert (await ledger.take(BATCH)).round == 1
