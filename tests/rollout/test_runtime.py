"""Jobs on one runtime: side by side with specs of their own, round after round, each ended without the others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from deskroll.errors import BackendLost, ConfigError, DeskrollError, InputError, JobStopped, ModelError
from deskroll.events import BatchPlanned, Event, JobStarted
from deskroll.models.scripted import Script, ScriptedServer
from deskroll.rollout.asking import find_live, stop_run
from deskroll.rollout.config import Resources
from deskroll.rollout.engine import SPECS
from deskroll.rollout.group import GroupResult
from deskroll.rollout.job import Batch, Job
from deskroll.rollout.job_run import JobRun
from deskroll.rollout.models import Models
from deskroll.rollout.runtime import Runtime
from deskroll.rollout.spec import EpisodeSpec
from deskroll.store import Run
from deskroll.store.journal import Started
from deskroll.store.run import WAIT_S
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


async def stopped_from_outside(folder: Path) -> None:
    """What `deskroll status RUN --stop` does."""
    assert (await stop_run(await find_live(str(folder / "run")))).stopping


async def test_a_job_that_somebody_else_stops_does_not_look_complete(tmp_path: Path) -> None:
    seen: list[GroupResult] = []
    async with opened(tmp_path, script(ANSWER, latency=0.05), num_rollouts=1) as (runtime, server):
        with pytest.raises(JobStopped, match=r"job 'train' was stopped by somebody else .*: \d+ of 24 ") as stopped:
            async for group in runtime.run(Job("train", questions(12), spec_of(server), group_size=2)):
                seen.append(group)
                if len(seen) == 2:
                    await stopped_from_outside(tmp_path)
        with pytest.raises(JobStopped, match=r"job 'late' .*: 0 of 3 episodes done"):
            await runtime.run(Job("late", questions(3), spec_of(server))).outcomes()
    assert f"kept in {tmp_path}/run: open a Runtime on that store again" in str(stopped.value)
    assert f" {len(Run.open(tmp_path / 'run').outcomes())} of 24 " in str(stopped.value)
    assert 2 <= len(seen) < 12
    async with opened(tmp_path) as (runtime, server):
        assert len(await groups_of(runtime.run(Job("train", questions(12), spec_of(server), group_size=2)))) == 12


async def test_a_source_that_somebody_else_stops_is_not_complete(tmp_path: Path) -> None:
    feed, seen = Feed(), list[GroupResult]()
    async with opened(tmp_path) as (runtime, server):
        feed.put(questions(1), 0)
        with pytest.raises(JobStopped, match=r"1 of 1 episodes done"):
            async for group in runtime.run(Job("train", feed, spec_of(server))):
                seen.append(group)
                await stopped_from_outside(tmp_path)
    assert len(seen) == 1


async def test_a_job_that_was_complete_all_the_same_or_that_the_program_stopped_ends_quietly(tmp_path: Path) -> None:
    async with opened(tmp_path, script(ANSWER, latency=1.0)) as (runtime, server):
        whole = runtime.run(Job("eval", questions(2), spec_of(server)))
        await until(lambda: len(runtime.engine.running) == 2, "all of it is under way")
        await stopped_from_outside(tmp_path)
        assert len(await groups_of(whole)) == 2
    async with opened(tmp_path, script(ANSWER, latency=0.05), num_rollouts=1) as (runtime, server):
        own = runtime.run(Job("train", questions(12), spec_of(server)))
        await until(lambda: own.status().done, "one is done")
        await stopped_from_outside(tmp_path)
        runtime.stop()
        assert len(await groups_of(own)) < 12


class Told:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)


async def test_a_job_that_is_run_again_counts_once(tmp_path: Path) -> None:
    odd = Script.parse({"replies": [{"when": "(1)", "turns": [{"text": "41"}]}, {"turns": [ANSWER]}]})
    async with opened(tmp_path, odd) as (runtime, server):
        for _ in range(2):
            await groups_of(runtime.run(Job("train", questions(3), spec_of(server), group_size=2)))
            standing = runtime.status().standing
            assert (standing.planned, standing.done, standing.before) == (6, 6, 0)
            assert (standing.scored, standing.successes, standing.score_sum) == (6, 4, 4.0)
        await groups_of(runtime.run(Job("train", questions(3), spec_of(server), round=1)))
        assert (runtime.status().standing.planned, runtime.status().standing.done) == (9, 9), "rounds add up"
    async with opened(tmp_path) as (runtime, server):
        await groups_of(runtime.run(Job("train", questions(3), spec_of(server), group_size=2)))
        standing = runtime.status().standing
    assert (standing.planned, standing.done, standing.before, standing.successes) == (6, 6, 6, 4)


async def test_what_is_done_again_is_not_taken_for_what_earlier_starts_did(tmp_path: Path) -> None:
    good, bad = questions(8)[:5], questions(8, fails="setup")[5:7]
    tasks = [*good, *bad, questions(8)[7]]

    def job(server: ScriptedServer, tasks: Sequence[Task]) -> Job:
        failing = {"env": "tests.rollout.parts:FailingEnv", "retries": {"setup": 0, "backoff": 0.01}}
        return Job("train", tasks, spec_of(server, **failing))

    async with opened(tmp_path) as (runtime, server):
        await groups_of(runtime.run(job(server, good)))
    async with opened(tmp_path) as (runtime, server):
        for _ in range(3):
            await groups_of(runtime.run(job(server, tasks)))
            standing = runtime.status().standing
            assert (standing.planned, standing.done, standing.before) == (8, 8, 5)
            assert (standing.scored, standing.unscored) == (6, {"setup": 2})
        await groups_of(runtime.run(job(server, good)))
        standing = runtime.status().standing
    assert (standing.planned, standing.done, standing.before, standing.unscored) == (5, 5, 5, {})


async def test_a_job_begins_once_however_many_batches_it_has(tmp_path: Path) -> None:
    async def source() -> AsyncIterator[Batch]:
        for n in range(4):
            yield Batch(tasks=(questions(4)[n],), round=n // 2)

    told = Told()
    resources = Resources(backend="inline")
    async with (
        ScriptedServer(script(ANSWER)) as server,
        Runtime.open(resources, store=tmp_path / "run", sink=told) as runtime,
    ):
        await groups_of(runtime.run(Job("train", source(), spec_of(server))))
        standing = runtime.status().standing
    assert [(each.phase, each.round) for each in told.events if isinstance(each, JobStarted)] == [("train", 0)]
    planned = [(each.round, each.first, each.episodes) for each in told.events if isinstance(each, BatchPlanned)]
    assert planned == [(0, True, 1), (0, False, 1), (1, True, 1), (1, False, 1)]
    assert (standing.planned, standing.done) == (4, 4)


@BACKENDS
async def test_specs_that_no_job_has_any_more_are_forgotten(tmp_path: Path, backend: str) -> None:
    def job(server: ScriptedServer, number: int, name: str = "train") -> Job:
        return Job(name, questions(1), spec_of(server, model={"timeout": 60 + number}), round=number)

    def clients(runtime: Runtime) -> int:
        return sum(len(each.vitals.endpoints) for each in runtime.status().workers)

    feed, number = Feed(), SPECS + 8
    async with opened(tmp_path, backend=backend, workers=1) as (runtime, server):
        lasting = runtime.run(Job("lasting", feed, spec_of(server)))
        feed.put(questions(1), 0)
        await until(lambda: lasting.status().done == 1, "it has its own")
        for n in range(number):
            assert len(await groups_of(runtime.run(job(server, n)))) == 1
        wanted = range(SPECS - 1, SPECS + 2)  # one that is let go is closed when the next one is opened
        await until(lambda: clients(runtime) in wanted, "clients of the last ones are open, and no others")
        assert len(await groups_of(runtime.run(job(server, 0, "again")))) == 1, "the first is defined anew"
        feed.put(questions(1), 1)
        feed.end()
        assert len(await groups_of(lasting)) == 2, "its own was kept all the time"
    assert len(Run.open(tmp_path / "run").outcomes()) == number + 3


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
        async with TestServer(web.Application()) as empty:  # it lists no models, and answers nothing
            failing_model = spec_of(server, model={"base_url": str(empty.make_url("/v1")), "retries": 0})
            with pytest.raises(ModelError, match="refused: status 404"):
                await groups_of(runtime.run(Job("baseline", questions(60), failing_model)))
        assert len(await groups_of(other)) == 20
        assert (runtime.engine.limits.groups.used, runtime.engine.limits.episodes.used) == (0, 0), "none is kept"


async def test_bad_tasks_and_names_are_refused_before_anything_runs(tmp_path: Path) -> None:
    async with opened(tmp_path) as (runtime, server):
        with pytest.raises(ConfigError, match="1 to 100 characters"):
            Job("", questions(1), spec_of(server))
        with pytest.raises(InputError, match="task 'task-0': env is 'maths'"):
            await groups_of(runtime.run(Job("eval", questions(1, env="maths"), spec_of(server))))
        with pytest.raises(InputError, match="task 'task-0' is given twice"):
            Job("eval", [*questions(1), *questions(1)], spec_of(server))
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


async def test_what_is_wrong_with_a_batch_is_raised_in_its_source_which_may_go_on(tmp_path: Path) -> None:
    wrong: list[str] = []

    async def source(*, lenient: bool) -> AsyncIterator[Batch]:
        for number, env in enumerate(("math", "maths", "math")):
            try:
                yield Batch(tasks=tuple(questions(1, env=env)), round=number)
            except InputError as error:
                wrong.append(str(error))
                if not lenient:
                    raise

    async with opened(tmp_path) as (runtime, server):
        groups = await groups_of(runtime.run(Job("train", source(lenient=True), spec_of(server))))
        assert [group.round for group in groups] == [0, 2]
        assert len(wrong) == 1
        assert "env is 'maths'" in wrong[0]
        with pytest.raises(InputError, match="env is 'maths'"):
            await groups_of(runtime.run(Job("strict", source(lenient=False), spec_of(server))))
        with pytest.raises(InputError, match="env is 'maths'"):
            await groups_of(runtime.run(Job("plain", Iterated(questions(1, env="maths")), spec_of(server))))


class Iterated:
    """A source that is no generator."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._batches = [Batch(tasks=tuple(tasks))]

    def __aiter__(self) -> Iterated:
        return self

    async def __anext__(self) -> Batch:
        if not self._batches:
            raise StopAsyncIteration
        return self._batches.pop()


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
        said = r"job 'train', round 0, cannot go on as it was begun:\n  task 'task-0' has changed\n  task 'task-1'"
        with pytest.raises(InputError, match=said):
            await groups_of(runtime.run(Job("train", changed, spec_of(server))))
        assert len(await groups_of(runtime.run(Job("train", changed, spec_of(server), round=1)))) == 2


async def test_a_round_goes_on_with_the_spec_that_it_was_begun_with(tmp_path: Path) -> None:
    def job(server: ScriptedServer, *, round_: int = 0, **fields: Any) -> Job:
        return Job("train", questions(2), spec_of(server, **fields), round=round_)

    async with opened(tmp_path) as (runtime, server):
        assert len(await groups_of(runtime.run(job(server, model={"temperature": 1.0, "timeout": 50})))) == 2
        assert len(await groups_of(runtime.run(job(server, round_=1, model={"temperature": 0.5})))) == 2
    async with opened(tmp_path) as (runtime, server):  # at another address, which changes nothing
        others = job(server, model={"temperature": 0.5, "name": "other"}, limits={"max_turns": 7})
        said = (
            "job 'train', round 0, cannot go on as it was begun:\n  limits.max_turns was 50 and is 7\n"
            "  model.name was 'scripted' and is 'other'\n  model.temperature was 1.0 and is 0.5\n"
        )
        with pytest.raises(InputError, match=re.escape(said)):
            await groups_of(runtime.run(others))
        patient = job(server, model={"temperature": 1.0, "retries": 9}, retries={"backoff": 0.02})
        assert [group.resumed for group in await groups_of(runtime.run(patient))] == [True, True]
        again = await groups_of(runtime.run(job(server, round_=1, model={"temperature": 0.5})))
        assert [group.resumed for group in again] == [True, True]
        assert [group.resumed for group in await groups_of(runtime.run(others, force=True))] == [True, True]
        with pytest.raises(InputError, match=r"model\.name was 'other' and is 'scripted'"):
            await groups_of(runtime.run(patient))
    assert Run.open(tmp_path / "run").verify() == []


async def test_a_round_goes_on_though_its_note_is_older_than_some_settings(tmp_path: Path) -> None:
    def job(server: ScriptedServer, **fields: Any) -> Job:
        return Job("train", questions(2), spec_of(server, **fields))

    async with opened(tmp_path) as (runtime, server):
        await groups_of(runtime.run(job(server, limits={"max_turns": 7})))
    (file,) = (tmp_path / "run/specs").iterdir()
    note = json.loads(file.read_text())
    del note["spec"]["model"]["served_as"], note["spec"]["limits"]["max_turns"], note["spec"]["evaluate"]
    file.write_text(json.dumps(note))
    async with opened(tmp_path) as (runtime, server):
        with pytest.raises(InputError, match=r"begun:\n  evaluate was True and is False\ngive"):
            await groups_of(runtime.run(job(server, evaluate=False)))
        assert [group.resumed for group in await groups_of(runtime.run(job(server)))] == [True, True]


async def test_a_note_of_a_spec_that_a_kill_left_torn_is_written_anew(tmp_path: Path) -> None:
    async with opened(tmp_path) as (runtime, server):
        await groups_of(runtime.run(Job("train", questions(2), spec_of(server))))
    (note,) = (tmp_path / "run/specs").iterdir()
    whole = note.read_bytes()
    for torn in (b"", whole[:20]):
        note.write_bytes(torn)
        async with opened(tmp_path) as (runtime, server):
            again = await groups_of(runtime.run(Job("train", questions(2), spec_of(server))))
            assert [group.resumed for group in again] == [True, True]
            assert note.read_bytes() == whole
            with pytest.raises(InputError, match=r"model\.name was 'scripted' and is 'other'"):
                await groups_of(runtime.run(Job("train", questions(2), spec_of(server, model={"name": "other"}))))
    assert list(note.parent.iterdir()) == [note]


async def test_a_round_goes_on_with_the_code_that_it_was_begun_with(tmp_path: Path) -> None:
    code = "from deskroll.agents.noop import NoopAgent\n\n\nclass Mine(NoopAgent):\n    pass\n"
    file = tmp_path / "mine.py"
    for wanted, told in (("", ""), ("# other\n", "mine.py has changed")):
        file.write_text(code + wanted)
        async with opened(tmp_path) as (runtime, server):
            run = runtime.run(Job("eval", questions(1), spec_of(server, agent=f"{file}:Mine")))
            with pytest.raises(InputError, match=told) if told else contextlib.nullcontext():
                await groups_of(run)


async def test_what_has_no_outcome_yet_may_change(tmp_path: Path) -> None:
    async with opened(tmp_path, script(ANSWER, latency=3600.0)) as (runtime, server):
        run = runtime.run(Job("train", questions(2), spec_of(server)))
        await until(lambda: len(runtime.engine.running) == 2, "they run")
        await run.cancel()
    async with opened(tmp_path) as (runtime, server):
        other = spec_of(server, model={"name": "other"})
        groups = await groups_of(runtime.run(Job("train", questions(2), other)))
    assert {each.model for group in groups for each in group.episodes} == {"other"}


async def test_what_could_never_run_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path, num_rollouts=2, reserved={"eval": 2}) as (runtime, server):
        with pytest.raises(ConfigError, match="none is left for 'train'"):
            runtime.run(Job("train", questions(1), spec_of(server)))
        assert len(await groups_of(runtime.run(Job("eval", questions(1), spec_of(server))))) == 1
        with pytest.raises(ConfigError, match="source is a str; give a list of tasks"):
            Job("eval", "tasks.jsonl", spec_of(server))  # type: ignore[arg-type]


class ListingServer:
    """Lists the models that it has, or keeps everybody waiting for the list; counts who asks, and who is there."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.asked = self.waiting = 0
        self._hangs = hangs

    async def _list(self, request: web.Request) -> web.Response:
        self.asked += 1
        self.waiting += 1
        try:
            if self._hangs:
                await asyncio.sleep(3600)
        finally:
            self.waiting -= 1
        return web.json_response({"data": [{"id": "mine"}]})

    async def _answer(self, request: web.Request) -> web.Response:
        return web.json_response({"choices": [{"message": {"content": "42"}, "finish_reason": "stop"}]})

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_get("/v1/models", self._list)
        app.router.add_post("/v1/chat/completions", self._answer)
        async with TestServer(app, handler_cancellation=True) as server:
            yield str(server.make_url("/v1"))


@BACKENDS
async def test_a_script_is_served_for_whoever_names_it(tmp_path: Path, backend: str) -> None:
    (tmp_path / "answers.yaml").write_text("replies:\n  - turns: [{text: '42'}]\n")
    model = {"name": f"scripted:{tmp_path}/answers.yaml"}
    async with Runtime.open(Resources(backend=backend, workers=1), store=tmp_path / "run") as runtime:
        for round_ in range(2):
            job = Job("train", questions(2), EpisodeSpec(env="math", model=model), round=round_)
            groups = await groups_of(runtime.run(job))
            assert {each.score.value for group in groups for each in group.episodes} == {1.0}
        await until(lambda: runtime.status().endpoints, "the worker tells whom it asks")
        assert len({each.url for each in runtime.status().endpoints}) == 1, "the same server"
        assert job.spec.model.base_url == ""


async def test_a_job_takes_plain_objects_as_a_file_has_them(tmp_path: Path) -> None:
    tasks = [{"id": "a", "question": "What is 6*7?", "answer": "42"}, *questions(1)]
    async with opened(tmp_path) as (runtime, server):
        spec = {"env": "math", "model": {"name": "scripted", "base_url": server.url}}
        groups = await groups_of(runtime.run(Job("eval", tasks, spec)))
    assert {group.task.id: group.episodes[0].score.value for group in groups} == {"a": 1.0, "task-0": 1.0}
    with pytest.raises(InputError, match="task 1: task 'b': question"):
        Job("eval", [*questions(1), {"id": "b"}], spec)
    with pytest.raises(ConfigError, match=r"^job 'eval': spec: modle: there is no such field; did you mean model\?"):
        Job("eval", tasks, {"modle": {}})


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        (EpisodeSpec, {"modle": "x"}, "EpisodeSpec: modle: there is no such field; did you mean model?"),
        (EpisodeSpec, {"model": {"nam": "x"}}, "EpisodeSpec: model.nam: there is no such field; did you mean name?"),
        (EpisodeSpec, {"limits": {"max_turns": 0}}, "EpisodeSpec: limits.max_turns: input should be greater than"),
        (Resources, {"num_vm": 3}, "Resources: num_vm: there is no such field; did you mean num_vms?"),
        (Resources, {"reserved": {"eval": 9}}, "Resources: reserved asks for 9, and num_rollouts is 5"),
    ],
)
def test_what_is_wrong_is_told_as_of_a_file(kind: type[Any], fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(said)}"):
        kind(**fields)


async def test_a_model_is_asked_once_whether_it_answers(tmp_path: Path) -> None:
    listing = ListingServer()
    async with listing.served() as url, opened(tmp_path) as (runtime, server):
        jobs = [
            Job(name, questions(1), spec_of(server, model={"name": "mine", "base_url": url, "temperature": heat}))
            for name, heat in (("a", 0.0), ("b", 1.0), ("c", 0.5))
        ]
        await asyncio.gather(*(groups_of(runtime.run(job)) for job in jobs[:2]))
        await groups_of(runtime.run(jobs[2]))
    assert listing.asked == 1
    stored = [run.attempt(each.key, each.attempt) for run in [Run.open(tmp_path / "run")] for each in run.outcomes()]
    assert len(stored) == 3


async def test_a_job_whose_model_cannot_be_asked_ends_before_anything_is_started(tmp_path: Path) -> None:
    async with opened(tmp_path, script(ANSWER, latency=0.02), provider="sim", num_vms=1) as (runtime, server):
        other = runtime.run(Job("eval", questions(9), spec_of(server)))
        dead = spec_of(server, env="osworld", model={"base_url": "http://127.0.0.1:9/v1"})
        with pytest.raises(ConfigError, match=r"^model: .* no connection: .*; set OPENAI_BASE_URL"):
            await groups_of(runtime.run(Job("train", questions(1, **DESKTOP), dead)))
        judged = spec_of(server, judge={"name": "scripted:nowhere.yaml"})
        with pytest.raises(ConfigError, match=r"judge\.name is .*there is no such file \(nowhere\.yaml\)"):
            await groups_of(runtime.run(Job("train", questions(1), judged)))
        limited = spec_of(server, limits={"max_cost_usd": 1.0})
        with pytest.raises(ConfigError, match=r"limits\.max_cost_usd is set, .*: set model\.price, too"):
            await groups_of(runtime.run(Job("train", questions(1), limited)))
        unasked = spec_of(server, agent="noop", model={"base_url": "http://127.0.0.1:9/v1"})
        assert len(await groups_of(runtime.run(Job("none", questions(1), unasked)))) == 1
        assert len(await groups_of(other)) == 9
        assert runtime.status().pool is None
    assert {each.phase for each in Run.open(tmp_path / "run").index.planned} == {"eval", "none"}


LEAVING = """
import sys
from contextlib import asynccontextmanager
from deskroll.models.openai import OpenAIModel
class Leaving(OpenAIModel):
    @classmethod
    @asynccontextmanager
    async def serve(cls, settings, name, sink=None):
        if {begins}:
            sys.exit("no licence")
        yield settings
        sys.exit("no licence")
"""


@pytest.mark.parametrize("begins", [True, False], ids=["as it begins", "as it ends"])
async def test_a_model_that_wants_to_end_the_program_is_told_as_what_it_is(tmp_path: Path, begins: bool) -> None:
    (tmp_path / "leaving.py").write_text(LEAVING.format(begins=begins))
    spec = EpisodeSpec.model_validate({"model": {"name": "mine", "kind": f"{tmp_path}/leaving.py:Leaving"}})
    said = r"^model: what serves it wanted to end the whole program \(SystemExit: no licence\)"
    with pytest.raises(ConfigError, match=said) as told:
        async with Models() as models:
            await models.serving(spec)
            assert not begins, "this is not come to"
    assert isinstance(told.value.__cause__, SystemExit)


COUNTED = """
from contextlib import asynccontextmanager
from pathlib import Path
from deskroll.models.openai import OpenAIModel
class Counted(OpenAIModel):
    @classmethod
    @asynccontextmanager
    async def serve(cls, settings, name, sink=None):
        with Path(__file__).with_name("served").open("a") as file:
            file.write("once\\n")
        yield settings
"""


async def test_versions_of_one_pool_are_one_model(tmp_path: Path) -> None:
    (tmp_path / "counted.py").write_text(COUNTED)
    model = {"name": "mine", "pool": "unix:/nowhere/none", "kind": f"{tmp_path}/counted.py:Counted"}
    names = ["mine@1", "", "mine@2", "mine@1"]
    async with Models() as models:
        specs = [EpisodeSpec.model_validate({"model": {**model, "served_as": name}}) for name in names]
        assert [(await models.serving(spec)).model.served_as for spec in specs] == names
    assert (tmp_path / "served").read_text() == "once\n"


async def test_a_job_that_is_done_needs_no_model(tmp_path: Path) -> None:
    async with opened(tmp_path) as (runtime, server):
        await groups_of(runtime.run(Job("train", questions(2), spec_of(server))))
        dead = spec_of(server, model={"base_url": "http://127.0.0.1:9/v1"})
        again = await groups_of(runtime.run(Job("train", questions(2), dead)))
        assert [group.resumed for group in again] == [True, True]
        feed = Feed()
        feed.put(questions(2), 0)
        feed.put(questions(2), 1)
        seen = []
        with pytest.raises(ConfigError, match=r"^model: .* no connection"):
            async for group in runtime.run(Job("train", feed, dead)):
                seen.append((group.round, group.resumed))
    assert seen == [(0, True), (0, True)]
    assert {each.round for each in Run.open(tmp_path / "run").index.planned} == {0}, "the other round is not begun"


async def test_a_job_that_is_cancelled_while_its_model_is_asked_leaves_nothing(tmp_path: Path) -> None:
    listing = ListingServer(hangs=True)
    async with listing.served() as url:
        async with opened(tmp_path) as (runtime, server):
            spec = spec_of(server, model={"name": "mine", "base_url": url})
            run = runtime.run(Job("train", questions(1), spec))
            await until(lambda: listing.waiting, "it is asked")
            await asyncio.wait_for(run.cancel(), 5)
            assert not runtime.engine.jobs
            stopped = runtime.run(Job("train", questions(1), spec_of(server, model={"name": "other", "base_url": url})))
            await until(lambda: listing.asked == 2, "another one is asked")
            stopped.stop()
            assert await asyncio.wait_for(groups_of(stopped), 5) == []
            stopped_at_once = runtime.run(Job("train", questions(1), spec))
            stopped_at_once.stop()
            assert await asyncio.wait_for(groups_of(stopped_at_once), 5) == []
            assert len(await groups_of(runtime.run(Job("train", questions(1), spec_of(server))))) == 1
        await until(lambda: not listing.waiting, "nobody asks any more")
    assert listing.asked == 2
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("model ")]


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


async def test_a_store_whose_run_is_live_is_refused_at_once(tmp_path: Path) -> None:
    async with ScriptedServer(script(ANSWER, latency=3600.0)) as server:
        command = [sys.executable, str(PROGRAM), server.url, str(tmp_path / "run")]
        live = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
        try:
            await until(lambda: is_live(tmp_path / "run"), "it answers")
            began = asyncio.get_running_loop().time()
            said = rf"run .*/run is live, in process {live.pid}: see  deskroll status .*/run  \(--stop ends it\)"
            with pytest.raises(InputError, match=said):
                async with Runtime.open(Resources(backend="inline"), store=tmp_path / "run"):
                    pass
            assert asyncio.get_running_loop().time() - began < WAIT_S / 2
        finally:
            live.kill()
            await live.wait()


def is_live(folder: Path) -> bool:
    holder = Run.open(folder).holder() if (folder / "run.json").exists() else None
    return holder is not None and bool(holder.socket)


@pytest.mark.parametrize("store", ["", " ", "notes", "."])
async def test_a_store_among_other_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    with pytest.raises(
        InputError, match=r"store is empty; name a folder|is not empty \((a.txt|notes/)\): name a folder"
    ):
        async with Runtime.open(Resources(backend="inline"), store=store):
            pass
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["a.txt", "notes"]


async def test_a_store_may_be_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").touch()
    async with opened(tmp_path) as (runtime, server):
        assert len(await groups_of(runtime.run(Job("eval", questions(1), spec_of(server))))) == 1
