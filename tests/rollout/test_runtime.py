"""Jobs on one runtime: side by side with specs of their own, round after round, each ended without the others."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from deskroll.errors import BackendLost, ConfigError, DeskrollError, InputError, ModelError
from deskroll.models.scripted import Script, ScriptedServer
from deskroll.rollout.config import Resources
from deskroll.rollout.group import GroupResult
from deskroll.rollout.job import Batch, Job
from deskroll.rollout.job_run import JobRun
from deskroll.rollout.runtime import Runtime
from deskroll.rollout.spec import EpisodeSpec
from deskroll.store import Run
from deskroll.store.journal import Started
from deskroll.types import Sampling, Task
from tests.rollout.conftest import ANSWER, CALCULATE, DONE, questions, script, until

BACKENDS = pytest.mark.parametrize("backend", ["inline", "process"])
DESKTOP: dict[str, Any] = {"evaluator": {"func": "infeasible"}}


def spec_of(server: ScriptedServer, **fields: Any) -> EpisodeSpec:
    model = {"name": "scripted", "base_url": server.url, "backoff": 0.01, **fields.pop("model", {})}
    return EpisodeSpec.model_validate({"env": "math", "retries": {"backoff": 0.01}, **fields, "model": model})


@asynccontextmanager
async def opened(
    folder: Path, answers: Script | None = None, **resources: Any
) -> AsyncIterator[tuple[Runtime, ScriptedServer]]:
    async with ScriptedServer(answers or script(ANSWER), keep_requests=True) as server:
        settings = Resources.model_validate({"backend": "inline", **resources})
        async with Runtime.open(settings, store=folder / "run") as runtime:
            yield runtime, server


async def groups_of(run: JobRun) -> list[GroupResult]:
    return [group async for group in run]


class Feed:
    """A source that a trainer feeds: batches as they are put in; None ends it."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Batch | None] = asyncio.Queue()
        self.taken = 0

    def put(self, tasks: Sequence[Task], round_: int) -> None:
        self._queue.put_nowait(Batch(tasks=tuple(tasks), round=round_, whole=True))

    def end(self) -> None:
        self._queue.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[Batch]:
        while (batch := await self._queue.get()) is not None:
            self.taken += 1
            yield batch


@BACKENDS
async def test_a_job_may_sample_otherwise_than_its_spec(tmp_path: Path, backend: str) -> None:
    async with opened(tmp_path, backend=backend, workers=1) as (runtime, server):
        spec = spec_of(server, model={"temperature": 0.5, "seed": 3})
        warm = Job("warm", questions(1), spec, group_size=2, sampling=Sampling(temperature=1.0))
        for job in (Job("cool", questions(1), spec, group_size=2), warm):
            await groups_of(runtime.run(job))
        found = {}
        for episode in await runtime.store.outcomes():
            (step,) = runtime.store.attempt(episode.key, episode.attempt).steps()
            assert step.completion is not None
            assert step.completion.sampling is not None
            found[episode.key.phase, episode.key.sample] = step.completion.sampling
    assert [found[name].temperature for name in sorted(found)] == [0.5, 0.5, 1.0, 1.0]
    assert len({each.seed for each in found.values()} - {None, 3}) == 4, "each sample has a seed of its own"
    assert [json.loads(each)["temperature"] for each in server.requests] == [0.5, 0.5, 1.0, 1.0]


@BACKENDS
async def test_jobs_with_specs_of_their_own_share_the_workers(tmp_path: Path, backend: str) -> None:
    async with opened(tmp_path, script(ANSWER, latency=0.02), backend=backend, workers=2) as (runtime, server):
        warm = Job("train", questions(5), spec_of(server, model={"temperature": 1.0, "seed": 7}), group_size=3)
        cold = Job("eval", questions(4), spec_of(server, agent="noop", model={"temperature": 0.0}))
        trained, evaluated = await asyncio.gather(groups_of(runtime.run(warm)), groups_of(runtime.run(cold)))
        workers = {each.pid for each in runtime.status().workers}
    assert Counter(group.task.id for group in trained) == Counter(f"task-{n}" for n in range(5))
    assert all([each.key.sample for each in group.episodes] == [0, 1, 2] for group in trained)
    assert {each.score.value for group in trained for each in group.episodes} == {1.0}
    assert {each.score.value for group in evaluated for each in group.episodes} == {0.0}, "this agent answers nothing"
    assert {each.model for group in evaluated for each in group.episodes} == {""}
    assert len(workers) == (2 if backend == "process" else 1)
    asked = [json.loads(each) for each in server.requests]
    assert [each["temperature"] for each in asked] == [1.0] * 15
    assert len({each["seed"] for each in asked}) == 15, "each sample has its own"


async def test_groups_come_in_the_order_in_which_they_finish(tmp_path: Path) -> None:
    long = {"when": "(0)", "turns": [*[CALCULATE] * 5, ANSWER]}
    answers = Script.parse({"latency": 0.1, "replies": [long, {"turns": [ANSWER]}]})
    async with opened(tmp_path, answers) as (runtime, server):
        groups = await groups_of(runtime.run(Job("eval", questions(3), spec_of(server))))
    assert groups[-1].task.id == "task-0"
    assert {group.task.id for group in groups} == {"task-0", "task-1", "task-2"}


async def test_rounds_follow_each_other_while_everything_stays_open(tmp_path: Path) -> None:
    feed, tasks = Feed(), questions(2)
    async with opened(tmp_path, backend="process", workers=1) as (runtime, server):
        run = runtime.run(Job("train", feed, spec_of(server), group_size=2))
        workers = {each.pid for each in runtime.status().workers}
        seen = []
        feed.put(tasks, 0)
        async for group in run:
            seen.append((group.round, group.task.id))
            if len(seen) % 2 == 0 and group.round < 4:
                feed.put(tasks, group.round + 1)
            elif len(seen) == 10:
                feed.end()
        assert workers == {each.pid for each in runtime.status().workers}
    assert [number for number, _ in seen] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    run_read = Run.open(tmp_path / "run")
    assert run_read.index.finished
    assert len(run_read.outcomes()) == 20
    assert run_read.verify() == []


async def test_a_task_is_not_run_twice_in_one_round(tmp_path: Path) -> None:
    feed = Feed()
    async with opened(tmp_path) as (runtime, server):
        feed.put(questions(1), 0)
        feed.put(questions(1), 0)
        with pytest.raises(InputError, match="task 'task-0' comes twice in round 0 of job 'train'"):
            await groups_of(runtime.run(Job("train", feed, spec_of(server))))
    assert len(list(Run.open(tmp_path / "run").records(Started))) == 1


async def test_limits_hold_over_jobs_and_the_higher_priority_is_served_first(tmp_path: Path) -> None:
    async with opened(tmp_path, script(ANSWER, latency=0.05), num_rollouts=2) as (runtime, server):
        low = runtime.run(Job("train", questions(12), spec_of(server)))
        await until(lambda: runtime.engine.limits.episodes.used_by("train") == 2, "training has all permits")
        high = runtime.run(Job("eval", questions(4), spec_of(server), priority=1))
        await groups_of(high)
        assert low.status().done < 10, "the rest of it waited"
        assert runtime.engine.jobs == {"train": low}
        await groups_of(low)


async def test_an_older_plan_comes_before_a_younger_one(tmp_path: Path) -> None:
    async with opened(tmp_path, script(ANSWER, latency=0.02), num_rollouts=1) as (runtime, server):
        first = runtime.run(Job("train", questions(4), spec_of(server)))
        await until(lambda: runtime.engine.running, "the first one runs")
        second = runtime.run(Job("eval", questions(4), spec_of(server)))
        await asyncio.gather(groups_of(first), groups_of(second))
    started = [each.key.phase for each in Run.open(tmp_path / "run").records(Started)]
    assert started == ["train"] * 4 + ["eval"] * 4


@BACKENDS
async def test_a_job_that_is_stopped_leaves_the_others_alone(tmp_path: Path, backend: str) -> None:
    async with opened(tmp_path, script(CALCULATE, ANSWER, latency=0.05), backend=backend) as (runtime, server):
        stopped = runtime.run(Job("train", questions(30), spec_of(server)))
        other = runtime.run(Job("eval", questions(10), spec_of(server)))
        await until(lambda: stopped.status().done >= 2, "some are done")
        stopped.stop()
        some, every = await asyncio.gather(groups_of(stopped), groups_of(other))
        assert len(every) == 10
        assert 2 <= len(some) < 30
        again = await groups_of(runtime.run(Job("train", questions(30), spec_of(server))))
    assert len(again) == 30
    assert sum(group.resumed for group in again) == len(some)


async def test_a_job_that_is_left_is_cancelled(tmp_path: Path) -> None:
    async with opened(tmp_path, script(ANSWER, latency=0.02)) as (runtime, server):
        async for group in runtime.run(Job("train", questions(30), spec_of(server))):
            assert group.episodes
            break
        await until(lambda: not runtime.engine.jobs, "nobody wants the rest")
        assert len(await groups_of(runtime.run(Job("eval", questions(2), spec_of(server))))) == 2


@BACKENDS
async def test_a_job_that_fails_leaves_the_others_alone(tmp_path: Path, backend: str) -> None:
    async with opened(tmp_path, script(ANSWER, latency=0.02), backend=backend) as (runtime, server):
        other = runtime.run(Job("eval", questions(20), spec_of(server)))
        (tmp_path / "mine.py").write_text("from deskroll.agents.noop import NoopAgent\nclass Mine(NoopAgent): pass\n")
        spec = spec_of(server, agent=f"{tmp_path}/mine.py:Mine")
        failing = runtime.run(Job("train", questions(20), spec))
        (tmp_path / "mine.py").write_text("raise RuntimeError('too late')\n")
        with pytest.raises(ConfigError, match="has changed since the run began"):
            await groups_of(failing)
        forbidden = spec_of(server, model={"base_url": "http://127.0.0.1:9/v1", "retries": 0})
        with pytest.raises(ModelError, match="in a row failed by the model's server"):
            await groups_of(runtime.run(Job("baseline", questions(60), forbidden)))
        assert len(await groups_of(other)) == 20
        assert (runtime.engine.limits.groups.used, runtime.engine.limits.episodes.used) == (0, 0), "none is kept"


async def test_bad_tasks_and_names_are_refused_before_anything_runs(tmp_path: Path) -> None:
    async with opened(tmp_path) as (runtime, server):
        with pytest.raises(ConfigError, match="1 to 100 characters"):
            Job("", questions(1), spec_of(server))
        with pytest.raises(InputError, match="task 'task-0': env is 'maths'"):
            await groups_of(runtime.run(Job("eval", questions(1, env="maths"), spec_of(server))))
        with pytest.raises(InputError, match="task 'task-0' comes twice in round 0"):
            await groups_of(runtime.run(Job("eval", [*questions(1), *questions(1)], spec_of(server))))
        run = runtime.run(Job("eval", questions(3), spec_of(server)))
        with pytest.raises(ConfigError, match="job 'eval' runs already"):
            runtime.run(Job("eval", questions(3), spec_of(server)))
        assert len(await groups_of(run)) == 3


async def test_a_source_that_fails_is_the_jobs_error(tmp_path: Path) -> None:
    async def source() -> AsyncIterator[Batch]:
        yield Batch(tasks=tuple(questions(1)))
        raise LookupError("the trainer's own bug")

    async with opened(tmp_path) as (runtime, server):
        with pytest.raises(LookupError, match="the trainer's own bug"):
            await groups_of(runtime.run(Job("train", source(), spec_of(server))))


async def test_desktops_are_there_once_a_job_needs_them(tmp_path: Path) -> None:
    async with opened(tmp_path, script(DONE), provider="sim", num_vms=2) as (runtime, server):
        await groups_of(runtime.run(Job("baseline", questions(2), spec_of(server, agent="noop"))))
        assert runtime.status().pool is None, "nobody needed one"
        first, second = (Job(name, questions(3, **DESKTOP), spec_of(server, env="osworld")) for name in ("a", "b"))
        groups = await asyncio.gather(groups_of(runtime.run(first)), groups_of(runtime.run(second)))
        await until(lambda: runtime.status().pool is not None, "the status tells of them")
    desktops = {each.desktop for run in groups for group in run for each in group.episodes}
    assert len(desktops) <= 2 * 3
    assert "" not in desktops


async def test_a_runtime_that_is_left_ends_its_jobs(tmp_path: Path) -> None:
    async with opened(tmp_path, script(ANSWER, latency=3600.0)) as (runtime, server):
        run = runtime.run(Job("train", questions(4), spec_of(server)))
        await until(lambda: len(runtime.engine.running) == 4, "all run")
    with pytest.raises(DeskrollError, match="the runtime was closed, and job 'train' with it"):
        await groups_of(run)


async def test_a_job_that_has_ended_stops_no_other_of_its_name(tmp_path: Path) -> None:
    async with opened(tmp_path, script(ANSWER, latency=0.02)) as (runtime, server):
        first = runtime.run(Job("train", questions(2), spec_of(server)))
        await groups_of(first)
        second = runtime.run(Job("train", questions(9), spec_of(server), round=1))
        first.stop()
        assert len(await groups_of(second)) == 9


async def test_a_job_that_is_cancelled_before_it_begins_leaves_its_name(tmp_path: Path) -> None:
    async with opened(tmp_path) as (runtime, server):
        run = runtime.run(Job("train", questions(2), spec_of(server)))
        await run.cancel()
        assert await asyncio.wait_for(groups_of(run), 30) == []
        assert len(await groups_of(runtime.run(Job("train", questions(2), spec_of(server))))) == 2


async def test_a_changed_task_is_not_taken_for_the_one_that_was_run(tmp_path: Path) -> None:
    async with opened(tmp_path) as (runtime, server):
        await groups_of(runtime.run(Job("train", questions(2), spec_of(server))))
        changed = questions(2, domain="other")
        with pytest.raises(InputError, match="task 'task-0' of job 'train', round 0, has changed since it was run"):
            await groups_of(runtime.run(Job("train", changed, spec_of(server))))
        assert len(await groups_of(runtime.run(Job("train", changed, spec_of(server), round=1)))) == 2


async def test_what_could_never_run_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path, num_rollouts=2, reserved={"eval": 2}) as (runtime, server):
        with pytest.raises(ConfigError, match="none is left for 'train'"):
            runtime.run(Job("train", questions(1), spec_of(server)))
        assert len(await groups_of(runtime.run(Job("eval", questions(1), spec_of(server))))) == 1
        with pytest.raises(ConfigError, match="source is a str; give a list of tasks"):
            Job("eval", "tasks.jsonl", spec_of(server))  # type: ignore[arg-type]
        unserved = EpisodeSpec.model_validate({"env": "math", "model": {"name": "scripted:answers.yaml"}})
        with pytest.raises(ConfigError, match="which nobody serves here"):
            runtime.run(Job("eval", questions(1), unserved, round=1))


async def test_the_end_of_all_workers_ends_a_job_that_only_waits(tmp_path: Path) -> None:
    async with opened(tmp_path, backend="process", workers=1) as (runtime, server):
        run = runtime.run(Job("train", Feed(), spec_of(server)))
        (worker,) = runtime.status().workers
        zygote = psutil.Process(worker.pid).parent()
        assert zygote is not None
        zygote.kill()
        with pytest.raises(BackendLost, match="was killed"):
            await asyncio.wait_for(groups_of(run), 60)


async def test_the_source_is_closed_with_its_job(tmp_path: Path) -> None:
    closed = asyncio.Event()

    async def source() -> AsyncIterator[Batch]:
        try:
            for number in range(100):
                yield Batch(tasks=tuple(questions(3)), round=number)
        finally:
            closed.set()

    async with opened(tmp_path, script(ANSWER, latency=0.02), num_rollouts=1) as (runtime, server):
        async for _ in runtime.run(Job("train", source(), spec_of(server))):
            break
        await asyncio.wait_for(closed.wait(), 60)


async def test_a_provider_is_chosen_where_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESKROLL_PROVIDER", "sim")
    async with opened(tmp_path, script(DONE)) as (runtime, server):
        (group,) = await groups_of(runtime.run(Job("eval", questions(1, **DESKTOP), spec_of(server, env="osworld"))))
    assert group.episodes[0].desktop.startswith("sim-")


PROGRAM = Path(__file__).with_name("two_jobs.py")


async def test_two_jobs_of_five_rounds_killed_in_the_third_and_resumed(tmp_path: Path) -> None:
    answers = script(ANSWER, latency=0.05)
    async with ScriptedServer(answers) as server:
        command = [sys.executable, str(PROGRAM), server.url, str(tmp_path / "run")]
        first = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert first.stdout is not None
        async for line in first.stdout:
            if line.startswith(b"train 2 "):
                os.kill(first.pid, signal.SIGKILL)
                break
        await first.communicate()
        assert first.returncode == -signal.SIGKILL
        second = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        told, _ = await asyncio.wait_for(second.communicate(), 120)
        assert second.returncode == 0
    keys = {(job, n, t, s) for job, size in (("train", 4), ("eval", 1)) for n in range(5) for t in range(3)
            for s in range(size)}  # fmt: skip
    run = Run.open(tmp_path / "run")
    outcomes = [each.key for each in run.outcomes()]
    assert sorted(outcomes) == sorted(set(outcomes))
    assert {(key.phase, key.round, int(key.task[1:]), key.sample) for key in outcomes} == keys
    assert (run.index.finished, run.verify()) == (True, [])
    assert len(told.splitlines()) == 30, "every group was handed out once, those of the first start included"
