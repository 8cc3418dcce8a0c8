"""Two real vLLMs, one of which is killed: no episode is lost, it comes back by itself, and no process is left."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deskroll.clocks import running_time
from deskroll.host.owner import process_start
from deskroll.models.router.roster import EndpointState
from deskroll.models.vllm.family import family
from deskroll.models.vllm.notes import ServerNotes
from deskroll.models.vllm.pool import ModelServicePool
from deskroll.rollout.config import RunConfig
from deskroll.rollout.session import Session
from deskroll.store import Run
from deskroll.tasks import parse_task
from tests.vllm.real import START_S, make_models, real_pool
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(3600)
EPISODES = 48


@pytest.fixture(scope="module")
async def pool(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ModelServicePool]:
    models = make_models("text", tmp_path_factory.mktemp("models"), 1)
    async with real_pool(models / "step_1", [], replicas=2) as pool:
        await pool.ready()
        yield pool
    assert [note for note in ServerNotes().list() if note.owner.pid == os.getpid()] == []


def server_id(endpoint: str) -> str:
    return Path(endpoint.removeprefix("unix:")).parent.name


def api_process(server: str) -> int:
    """The one that answers: it leads the session of all of them."""
    (found,) = [pid for pid in family(server) if os.getsid(pid) == pid]
    return found


def run_config(pool: ModelServicePool, folder: Path) -> RunConfig:
    fields = {
        "env": "math", "backend": "process", "workers": 2, "num_rollouts": 16, "output_dir": str(folder),
        "run_id": "run", "agent": "tests.vllm.talking:TalkingAgent",
        "model": {"name": "policy", "pool": pool.address, "exact": True, "temperature": 1.0, "max_tokens": 48},
    }  # fmt: skip
    return RunConfig.model_validate(fields)


@pytest.mark.parametrize("whole", [False, True], ids=["its API process alone", "all of it"])
async def test_no_episode_is_lost(pool: ModelServicePool, tmp_path: Path, whole: bool) -> None:
    tasks = [parse_task({"id": f"t{n}", "question": f"What is {n}?", "answer": "42"}, "") for n in range(EPISODES)]
    before = [view.name for view in pool.endpoints()]
    victim = server_id(before[0])
    pids = family(victim)
    async with Session.open(run_config(pool, tmp_path), tasks) as session:
        running = asyncio.create_task(session.run())

        async def is_busy() -> bool:
            views = {view.name: view for view in pool.endpoints()}
            return views[before[0]].in_flight >= 4

        await eventually(is_busy, "the first server is asked")
        killed = running_time()
        for pid in pids if whole else [api_process(victim)]:
            os.kill(pid, signal.SIGKILL)

        async def is_back() -> bool:
            views = pool.endpoints()
            return before[0] not in {v.name for v in views} and [v.state for v in views] == [EndpointState.UP] * 2

        await eventually(is_back, "it is back", START_S)
        back_s = running_time() - killed
        episodes = await running
    assert [each.score is not None and each.failure is None for each in episodes] == [True] * EPISODES
    assert {each.attempt for each in episodes} == {1}, "nothing was attempted anew"
    assert family(victim) == set()
    assert all(process_start(pid) == 0 for pid in pids)
    run = Run.open(f"{tmp_path}/run")
    said = [step.completion for each in episodes for step in run.attempt(each.key, 1).steps() if step.completion]
    assert {each.version for each in said} == {"1"}
    tries = sum(each.tries > 1 for each in said)
    print(f"\n{len(pids)} processes; back after {back_s:.0f} s; of {len(said)} answers {tries} were asked for again")
