"""Worker processes: one that crashes, hangs or eats memory is noticed and replaced; none outlives its coordinator."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from deskroll.errors import FailureClass, WorkerLost
from deskroll.rollout.backends.process import ProcessBackend
from deskroll.rollout.backends.wire import Channel
from deskroll.rollout.backends.worker_handle import WorkerHandle
from deskroll.rollout.backends.zygote import WorkerZygote
from deskroll.rollout.config import WorkerSettings
from deskroll.rollout.orders import Order, WorkerSetup
from deskroll.rollout.spec import Definition, EpisodeSpec
from deskroll.store.journal import Failed
from deskroll.types import EpisodeKey, Task
from tests.rollout.conftest import ANSWER, Runs, questions, script, until
from tests.waiting import wait_until

CRASHING = "tests.rollout.parts:CrashingEnv"


@pytest.mark.parametrize(
    ("how", "settings", "said"),
    [
        ("exit", {}, "ended with code 3"),
        ("signal", {}, "was killed by signal 40"),
        ("hang", {"hang_after": 2.0}, "it hung for"),
        ("memory", {"worker_memory_mb": 300.0}, "MB of memory"),
    ],
)
async def test_a_worker_that_fails_once_is_replaced_and_its_episode_ends_well(
    runs: Runs, how: str, settings: dict[str, float], said: str
) -> None:
    tasks = [*questions(1, crash=how, once=str(runs.folder / "once")), *questions(4)[1:]]
    outcomes = await runs.run(script(ANSWER), tasks, env=CRASHING, backend="process", workers=2, **settings)
    assert [each.score.value for each in outcomes] == [1.0] * 4
    lost = [each.episode for each in runs.read().records(Failed) if each.episode.key.task == "task-0"]
    assert len(lost) == 1
    assert lost[0].failure is not None
    assert said in lost[0].failure.message


async def test_what_a_worker_has_of_its_memory_is_part_of_its_load() -> None:
    ours, theirs = socket.socketpair()
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    ended.set_result(0)  # so that nothing is ever killed here
    channel = await Channel.over(ours)
    handle = WorkerHandle(os.getpid(), channel, ended, isolated=False)
    handle.check_memory(2 * handle.rss_mb())
    assert handle.load.memory == pytest.approx(0.5, abs=0.2)
    assert handle.killed_for == ""
    await channel.close()
    theirs.close()


async def test_a_hanging_worker_says_where_it_hung(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    tasks = questions(1, crash="hang")
    (outcome,) = await runs.run(script(ANSWER), tasks, env=CRASHING, backend="process", workers=1, hang_after=2.0)
    assert outcome.failure is not None
    assert 'parts.py", line' in outcome.failure.message, "the place is in the message"
    assert outcome.failure.message.count("\n") == 0, "the whole stack is told once, and not with every episode"
    assert sum("(most recent call first)" in line for line in caplog.messages) == outcome.attempt
    assert (outcome.failure.failure_class, outcome.score.value) == (FailureClass.WORKER, None)


async def test_a_poison_task_takes_nobody_with_it(runs: Runs) -> None:
    tasks = [*questions(2, crash="exit"), *questions(10)[2:]]
    outcomes = await runs.run(script(ANSWER, latency=0.1), tasks, env=CRASHING, backend="process", num_rollouts=10)
    assert [each.score.value for each in outcomes] == [None, None, *[1.0] * 8]
    assert all(each.attempt == 2 for each in outcomes[:2])


FORK = """
import os
from pathlib import Path
fork, here = os.fork, Path(__file__).parent
def refused():
    tries = here / "tries"
    if (here / "crashed").exists() and len(text := tries.read_text() if tries.exists() else "") < 2:
        tries.write_text(text + "x")
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return fork()
os.fork = refused
"""


async def test_a_worker_that_there_is_no_room_for_at_the_moment_costs_nothing(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash the system refuses to make a process, twice: neither the run nor the episode ends by that."""
    (tmp_path / "sitecustomize.py").write_text(FORK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    tasks = questions(1, crash="exit", once=str(tmp_path / "crashed"))
    (outcome,) = await runs.run(script(ANSWER), tasks, env=CRASHING, backend="process", workers=1)
    assert (tmp_path / "tries").read_text() == "xx", "it was refused indeed"
    assert (outcome.score.value, outcome.attempt) == (1.0, 2)


async def test_no_files_for_a_worker_is_said_and_passes() -> None:
    async with WorkerZygote() as zygote:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        os.close(free := os.dup(0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
        try:
            with pytest.raises(WorkerLost, match=r"no worker can be started: .*Too many open files"):
                await zygote.worker()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        _, connection, end = await zygote.worker()
        connection.close()
        await end


SLOW = """
import os, time
from deskroll.envs.math import MathEnv
if os.getpid() != {coordinator}:
    time.sleep(5)
class SlowEnv(MathEnv): pass
"""


async def test_a_worker_that_imports_for_long_does_not_hang(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_to_import.py").write_text(SLOW.format(coordinator=os.getpid()))
    monkeypatch.syspath_prepend(tmp_path)
    (outcome,) = await runs.run(
        script(ANSWER), questions(1), env="slow_to_import:SlowEnv", backend="process", workers=1, hang_after=2.0
    )
    assert (outcome.score.value, outcome.attempt) == (1.0, 1)


HELD = """
import os
from deskroll.envs.math import MathEnv
class HeldEnv(MathEnv): pass
if os.getpid() != {coordinator}:
    open({gate!r}).read()
"""


def opened_by_a_reader(gate: Path) -> int | None:
    try:
        return os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # nobody reads it yet
        return None


async def test_what_a_worker_tells_late_of_a_spec_that_was_forgotten_is_not_held_against_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that imports hears of a spec and that it is forgotten in one go, and then tells that it is not there."""
    os.mkfifo(gate := tmp_path / "gate")
    (tmp_path / "held_import.py").write_text(HELD.format(gate=str(gate), coordinator=os.getpid()))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    agent, model = "tests.rollout.parts:AnsweringAgent", {"name": "none", "base_url": "http://127.0.0.1:9/v1"}
    held, other = (
        Definition.of(EpisodeSpec.model_validate({"env": env, "agent": agent, "model": model}))
        for env in ("held_import:HeldEnv", "math")
    )

    def order(definition: Definition, attempt: int, task: Task) -> Order:
        key = EpisodeKey(phase="eval", round=0, task=task.id, sample=0)
        return Order(key=key, attempt=attempt, task=task, spec=definition.digest)

    first, second = questions(2)
    async with ProcessBackend(WorkerSetup(storage=str(tmp_path)), WorkerSettings(workers=1)) as backend:
        backend.define(held)
        holding = asyncio.create_task(backend.run(order(held, 1, first)))
        writers: list[int | None] = []
        await until(lambda: writers.append(opened_by_a_reader(gate)) or writers[-1], "the worker imports")
        backend.define(other)
        unwanted = asyncio.create_task(backend.run(order(other, 1, second)))
        await until(lambda: backend.workers()[0].running == 2, "it was ordered")
        unwanted.cancel()
        await asyncio.wait((unwanted,))
        backend.forget(other.digest)
        os.close(writers[-1] or -1)
        ended = await holding
        backend.define(other)
        again = await backend.run(order(other, 2, second))
    assert [each and each.score.value for each in (ended, again)] == [1.0, 1.0]


async def test_what_workers_print_does_not_grow_without_end(runs: Runs) -> None:
    (outcome,) = await runs.run(
        script(ANSWER), questions(1), env="tests.rollout.parts:TalkativeEnv", backend="process", workers=1,
        retries={"setup": 0},
    )  # fmt: skip
    assert (outcome.score.value, outcome.failure) == (1.0, None)


async def test_workers_are_gone_after_the_run(runs: Runs) -> None:
    async with runs.open(script(ANSWER), questions(4), backend="process", workers=3) as session:
        await session.run()
        workers = [psutil.Process(each.pid) for each in session.status().workers]
        assert len(workers) == 3
        zygote = workers[0].parent()
        assert zygote is not None
    assert not any(process.is_running() for process in [*workers, zygote])


async def test_a_killed_zygote_ends_every_worker(runs: Runs) -> None:
    tasks = questions(2)
    async with runs.open(script(ANSWER, latency=3600.0), tasks, backend="process", workers=2) as session:
        await until(lambda: len(session.status().workers) == 2, "workers are there")
        pids = [each.pid for each in session.status().workers]
        psutil.Process(psutil.Process(pids[0]).ppid()).kill()
        await until(lambda: not any(map(_alive, pids)), "its workers are gone with it")


COORDINATOR = """
import asyncio, sys
from pathlib import Path
from tests.rollout.conftest import Runs, questions, script, ANSWER
async def main():
    async with Runs(Path(sys.argv[1])).open(script(ANSWER, latency=3600.0), questions(4), backend="process") as session:
        asyncio.create_task(session.run())
        while len(session.engine.running) < 4:
            await asyncio.sleep(0.01)
        print(*[each.pid for each in session.status().workers], flush=True)
        await asyncio.sleep(3600)
asyncio.run(main())
"""


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "hanging"])
async def test_no_worker_outlives_a_killed_coordinator_even_if_it_hangs(runs: Runs, stopped: bool) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", COORDINATOR, str(runs.folder)], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    ) as coordinator:
        assert coordinator.stdout is not None
        workers = [int(pid) for pid in coordinator.stdout.readline().split()]
        assert workers
        if stopped:
            for pid in workers:
                os.kill(pid, signal.SIGSTOP)
        coordinator.kill()
    wait_until(lambda: not any(map(_alive, workers)), "its workers are gone")
    outcomes = await runs.run(script(ANSWER), questions(4), resume=True, backend="process")
    assert [each.score.value for each in outcomes] == [1.0] * 4


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
