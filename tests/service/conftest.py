"""A service in this process: its folder, its settings, and a scripted model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deskroll.config import check
from deskroll.rollout.loading import check_run
from deskroll.service.config import PHASE, ServiceConfig
from deskroll.service.loop import Service
from deskroll.store import Run
from deskroll.types import Episode
from tests.service.serving import task


class Services:
    """Makes services in a folder of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inbox = folder / "inbox"
        self.inbox.mkdir()
        self.script("replies:\n  - turns: [{text: '42'}]\n")

    def script(self, text: str) -> None:
        """What the model says."""
        (self.folder / "answers.yaml").write_text(text)

    def config(self, **settings: Any) -> ServiceConfig:
        """Settings of a service in this process, whose files are at rest at once."""
        given = {
            "source": {"at": str(self.inbox), "rest_ms": 0}, "env": "math", "backend": "inline", "backoff_ms": 20,
            "model": {"name": f"scripted:{self.folder / 'answers.yaml'}", "backoff": 0.01},
            "output_dir": str(self.folder / "results"), "retries": {"backoff": 0.01}, **settings,
        }  # fmt: skip
        return check_run(check(ServiceConfig, given, "service"), [], PHASE)[0]

    def drop(self, name: str, *names: str, **fields: Any) -> None:
        """Put a batch of such tasks into the folder."""
        (self.inbox / name).write_text(json.dumps([task(each) | fields for each in names]))

    @asynccontextmanager
    async def running(self, *, force: bool = False, **settings: Any) -> AsyncIterator[Service]:
        """A service at work; what ends it is raised."""
        async with Service.open(self.config(**settings)) as service:
            work = asyncio.create_task(service.run(force=force))
            try:
                yield service
                service.stop()
                await asyncio.wait_for(work, 90)
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    async def run(self, *, force: bool = False, **settings: Any) -> None:
        """A service that ends by itself."""
        async with Service.open(self.config(**settings)) as service:
            await asyncio.wait_for(service.run(force=force), 90)

    def read(self) -> Run:
        """What it left."""
        return Run.open(self.folder / "results" / "service")

    def outcomes(self) -> dict[tuple[int, str], Episode]:
        """By round and task."""
        return {(each.key.round, each.key.task): each for each in self.read().outcomes()}


@pytest.fixture
def services(tmp_path: Path) -> Services:
    return Services(tmp_path)
