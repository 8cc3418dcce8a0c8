"""What the tests of the engine share: scripts, tasks, settings, and runs from beginning to end in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deskroll.models.scripted import Script, ScriptedServer
from deskroll.rollout.config import RunConfig
from deskroll.rollout.session import Session
from deskroll.store import Run
from deskroll.tasks import parse_task
from deskroll.types import Episode, Task
from tests.store.conftest import bucket, s3_server

__all__ = ["bucket", "s3_server"]

CALCULATE = {"text": "let me see", "tools": [{"name": "calculator", "arguments": {"expressions": ["6*7"]}}]}
ANSWER = {"text": "42"}
CLICK = {"tools": [{"name": "computer", "arguments": {"action_type": "CLICK", "parameters": {"x": 5, "y": 5}}}]}
DONE = {"tools": [{"name": "computer", "arguments": {"action_type": "DONE"}}]}
INFEASIBLE = {"func": "infeasible"}


def script(*turns: dict[str, Any], **settings: Any) -> Script:
    """A model that always says the same."""
    return Script.parse({"replies": [{"turns": list(turns)}], **settings})


def questions(count: int, **fields: Any) -> list[Task]:
    """Tasks whose answer is 42."""
    return [
        parse_task({"id": f"task-{n}", "question": f"What is 6*7? ({n})", "answer": "42", **fields}, "here")
        for n in range(count)
    ]


class Runs:
    """Makes runs in a folder of the test's own."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = folder

    def config(self, server: ScriptedServer | None = None, **fields: Any) -> RunConfig:
        """Settings for a run; the model's client is impatient."""
        model = {"name": "scripted", "backoff": 0.01, "base_url": server.url if server else "http://127.0.0.1:9/v1"}
        fields = {
            "env": "math", "backend": "inline", "output_dir": str(self.folder), "run_id": "run",
            "retries": {"backoff": 0.01}, **fields, "model": model | fields.get("model", {}),
        }  # fmt: skip
        return RunConfig.model_validate(fields)

    @asynccontextmanager
    async def open(
        self, script: Script, tasks: Sequence[Task], *, resume: bool = False, force: bool = False, **fields: Any
    ) -> AsyncIterator[Session]:
        """A session with a model that answers from a script."""
        async with ScriptedServer(script) as server:
            config = self.config(server, **fields)
            root = f"{self.folder}/{config.run_id}" if resume else ""
            async with Session.open(config, tasks, resume=root, force=force) as session:
                yield session

    async def run(self, script: Script, tasks: Sequence[Task], **fields: Any) -> list[Episode]:
        """A run from beginning to end."""
        async with self.open(script, tasks, **fields) as session:
            return await session.run()

    def read(self, run_id: str = "run") -> Run:
        """What is left of it."""
        return Run.open(f"{self.folder}/{run_id}")


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Runs in a folder of the test's own."""
    return Runs(tmp_path)


async def until(condition: Callable[[], object], what: str, timeout: float = 90.0) -> None:
    """Wait on a condition of this process."""
    deadline = asyncio.get_running_loop().time() + timeout
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"{what}: still not so after {timeout:g} s"
        await asyncio.sleep(0.01)
