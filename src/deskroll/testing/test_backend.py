"""What every backend must do. Runs small episodes without a model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deskroll.actions import Answer
from deskroll.agents import NO_MODEL, Agent
from deskroll.envs.tooled import ToolEnv
from deskroll.errors import EvaluatorError, FailureClass
from deskroll.models.settings import ModelSettings
from deskroll.rollout.backends import Backend, BackendContext
from deskroll.rollout.config import WorkerSettings
from deskroll.rollout.orders import Order, WorkerSetup
from deskroll.rollout.spec import Definition, EpisodeSpec
from deskroll.testing import Chosen, awaited
from deskroll.types import Decision, Episode, EpisodeKey, Observation, Task

HERE = "deskroll.testing.test_backend"


class QuestionEnv(ToolEnv):
    """A question without tools."""


class AnsweringAgent(Agent):
    """Says what the task's answer is; where there is none, it takes for ever."""

    protocol = NO_MODEL

    async def act(self, observation: Observation) -> Decision:
        """See `Agent`."""
        task = self.context.task
        if task is None or task.answer is None:
            await asyncio.Event().wait()
        return Decision(actions=(Answer(text=str(task.answer if task else "")),))


@asynccontextmanager
async def opened(chosen: Chosen, folder: Path) -> AsyncIterator[Backend]:
    """The backend of a run in that folder."""
    (folder / "run.json").write_text("{}")
    context, setup = BackendContext(workers=WorkerSettings(workers=2)), WorkerSetup(storage=str(folder))
    kind: type[Backend] = chosen.load()
    async with kind.for_run(setup, chosen.settings(), context) as backend:
        backend.define(definition())
        yield backend


def definition() -> Definition:
    """What all attempts have in common."""
    model = ModelSettings(name="none", base_url="http://127.0.0.1:9/v1")
    return Definition.of(EpisodeSpec(env=f"{HERE}:QuestionEnv", agent=f"{HERE}:AnsweringAgent", model=model))


def order(number: int, *, answer: str | None = "42", isolated: bool = False) -> Order:
    """One attempt; without an answer it never ends."""
    task = Task(id=f"task-{number}", instruction="What is 6 times 7?", answer=answer)
    key = EpisodeKey(phase="eval", round=0, task=task.id, sample=0)
    return Order(key=key, attempt=1, task=task, spec=definition().digest, isolated=isolated)


async def begin_hanging(backend: Backend) -> tuple[Order, asyncio.Future[Episode | None]]:
    """An attempt that never ends, once it acts."""
    hanging = order(0, answer=None)
    work = asyncio.ensure_future(backend.run(hanging))
    while not any(each.vitals.running for each in backend.workers()):
        await asyncio.sleep(0.02)
    return hanging, work


def children() -> set[int]:
    """The processes that this one has started and that run."""
    found = set()
    for path in Path("/proc/self/task").glob("*/children"):
        found |= {int(pid) for pid in path.read_text().split()}
    return found


@awaited
async def test_each_attempt_ends_with_its_episode_and_its_files(chosen: Chosen, tmp_path: Path) -> None:
    """Many at a time; what was done is in the run's folder."""
    async with opened(chosen, tmp_path) as backend:
        orders = [order(number, isolated=number == 0) for number in range(12)]
        episodes = await asyncio.gather(*map(backend.run, orders))
        assert backend.workers(), "nobody can see what its workers do"
    for each, ordered in zip(episodes, orders, strict=True):
        assert each is not None
        assert (each.key, each.attempt, each.score.value, each.failure) == (ordered.key, 1, 1.0, None)
    assert len(list(tmp_path.glob("episodes/**/steps.jsonl"))) == 12


@pytest.mark.parametrize("why", [None, EvaluatorError("it took too long")], ids=["unwanted", "error"])
@awaited
async def test_an_attempt_that_is_stopped_ends_as_it_was_told(
    chosen: Chosen, tmp_path: Path, why: EvaluatorError | None
) -> None:
    """And the others go on."""
    async with opened(chosen, tmp_path) as backend:
        hanging, work = await begin_hanging(backend)
        assert backend.stop(hanging.key, 1, why)
        episode = await work
        assert episode is not None
        assert episode.failure is not None
        assert episode.failure.failure_class is (FailureClass.CANCELLED if why is None else why.failure)
        other = await backend.run(order(1))
        assert other is not None
        assert other.score.value == 1.0


@awaited
async def test_where_an_attempt_stands_can_be_written_down(chosen: Chosen, tmp_path: Path) -> None:
    """In its folder, while it hangs."""
    async with opened(chosen, tmp_path) as backend:
        hanging, work = await begin_hanging(backend)
        backend.dump(hanging.key, 1, "the contract wants to know")
        while not any("the contract wants" in _text(each) for each in tmp_path.rglob("*") if each.is_file()):
            await asyncio.sleep(0.05)
        backend.stop(hanging.key, 1, None)
        await work


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.suffix in (".txt", ".json", ".jsonl", "") else ""


@awaited
async def test_giving_back_says_how_many_come_to_their_end(chosen: Chosen, tmp_path: Path) -> None:
    """What has begun goes on; nothing is lost between the two."""
    async with opened(chosen, tmp_path) as backend:
        hanging, work = await begin_hanging(backend)
        assert await backend.give_back([(hanging.key, 1)]) == 1
        backend.stop(hanging.key, 1, None)
        assert await work is not None


def test_nothing_that_it_started_is_left(chosen: Chosen, tmp_path: Path) -> None:
    """Whatever was running when the block was left."""
    before = children()

    @awaited
    async def check() -> None:
        async with opened(chosen, tmp_path) as backend:
            assert json.dumps([each.name for each in backend.workers()])
            _, work = await begin_hanging(backend)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    check()
    assert children() <= before
