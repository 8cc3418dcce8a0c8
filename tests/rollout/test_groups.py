"""Groups: each policy closes them as it says; who is given up has one outcome; a resume holds to it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from deskroll.errors import ConfigError, FailureClass, FailureKind, InputError, ModelError
from deskroll.events import DesktopState
from deskroll.report.results import Results
from deskroll.rollout.config import Resources
from deskroll.rollout.group import GroupResult
from deskroll.rollout.group_policy import FailFast, FillUp, GroupPolicy, MinViable
from deskroll.rollout.job import Batch, Job
from deskroll.rollout.runtime import Runtime
from deskroll.rollout.spec import EpisodeSpec
from deskroll.store import Run
from deskroll.store.journal import Failed, GroupClosed, GroupOpened, Sealed, Started
from deskroll.types import GroupEnd, Task
from tests.rollout.conftest import INFEASIBLE, until

AGENT = "tests.rollout.parts:MemberAgent"
BACKENDS = pytest.mark.parametrize("backend", ["inline", "process"])


def spec_of(policy: GroupPolicy, **fields: Any) -> EpisodeSpec:
    retries = {"backoff": 0.01, "model": 0, **fields.pop("retries", {})}
    return EpisodeSpec.model_validate({"env": "math", "agent": AGENT, "retries": retries, "policy": policy, **fields})


def task_of(*plays: str, name: str = "t") -> Task:
    return Task(id=name, instruction="What is 6*7?", answer="42", metadata={"plays": list(plays)})


async def run_group(folder: Path, spec: EpisodeSpec, task: Task, **resources: Any) -> GroupResult:
    settings = Resources.model_validate({"backend": "inline", "num_rollouts": 8, **resources})
    async with Runtime.open(settings, store=folder) as runtime:
        job = Job("train", [task], spec, group_size=len(task.metadata["plays"]))
        (group,) = [group async for group in runtime.run(job)]
    return group


def ends_of(folder: Path) -> list[GroupEnd | None]:
    return [each.end for each in Run.open(folder).records(GroupClosed)]


@BACKENDS
async def test_without_a_policy_a_group_is_complete_whatever_its_members_came_to(tmp_path: Path, backend: str) -> None:
    group = await run_group(tmp_path / "run", spec_of(GroupPolicy()), task_of("42", "7", "model"), backend=backend)
    assert (group.end, group.scores) == (GroupEnd.COMPLETE, (1.0, 0.0))
    assert [each.score.value for each in group.episodes] == [1.0, 0.0, None]
    assert 0 < group.opened_at <= group.closed_at
    assert ends_of(tmp_path / "run") == [GroupEnd.COMPLETE]


async def test_the_end_of_a_group_of_one_is_journalled(tmp_path: Path) -> None:
    group = await run_group(tmp_path / "run", spec_of(FailFast()), task_of("model"))
    assert group.end is GroupEnd.FAILED
    assert ends_of(tmp_path / "run") == [GroupEnd.FAILED]


@BACKENDS
async def test_without_signal_the_rest_is_given_up(tmp_path: Path, backend: str) -> None:
    spec = spec_of(GroupPolicy(no_signal_after=2))
    group = await run_group(tmp_path / "run", spec, task_of("hang", "7", "hang", "7"), backend=backend)
    assert group.end is GroupEnd.NO_SIGNAL
    assert [each.given_up for each in group.episodes] == [True, False, True, False]
    assert group.scores == (0.0, 0.0)
    given_up = group.episodes[0]
    assert given_up.failure is not None
    assert (given_up.failure.failure_class, given_up.failure.kind) == (FailureClass.CANCELLED, FailureKind.GIVEN_UP)
    assert given_up.score.reason == "given up: 2 of 4 members are scored, all alike"
    run = Run.open(tmp_path / "run")
    assert (run.verify(), run.index.finished, len(run.outcomes())) == ([], True, 4)


async def test_members_that_never_ran_are_given_up_without_an_attempt(tmp_path: Path) -> None:
    spec = spec_of(GroupPolicy(no_signal_after=2))
    group = await run_group(tmp_path / "run", spec, task_of("42", "42", "42", "42"), num_rollouts=1)
    assert (group.end, group.scores) == (GroupEnd.NO_SIGNAL, (1.0, 1.0))
    assert [each.attempt for each in group.episodes] == [1, 1, 0, 0]
    run = Run.open(tmp_path / "run")
    assert len(list(run.records(Started))) == 2
    assert run.verify() == []


async def test_with_signal_nobody_is_given_up(tmp_path: Path) -> None:
    spec = spec_of(GroupPolicy(no_signal_after=2))
    group = await run_group(tmp_path / "run", spec, task_of("42", "7", "7", "7"), num_rollouts=1)
    assert (group.end, group.scores) == (GroupEnd.COMPLETE, (1.0, 0.0, 0.0, 0.0))


@BACKENDS
async def test_one_unscored_member_fails_a_group_that_wants_all(tmp_path: Path, backend: str) -> None:
    group = await run_group(tmp_path / "run", spec_of(FailFast()), task_of("hang", "model", "hang"), backend=backend)
    assert group.end is GroupEnd.FAILED
    assert [each.given_up for each in group.episodes] == [True, False, True]
    assert group.episodes[1].failure is not None
    assert group.episodes[1].failure.failure_class is FailureClass.MODEL


async def test_a_group_is_viable_while_enough_can_be_scored(tmp_path: Path) -> None:
    group = await run_group(tmp_path / "a", spec_of(MinViable()), task_of("model", "42", "model", "7"))
    assert (group.end, group.scores) == (GroupEnd.COMPLETE, (1.0, 0.0))
    group = await run_group(tmp_path / "b", spec_of(MinViable()), task_of("model", "hang", "model", "model"))
    assert (group.end, group.scores) == (GroupEnd.FAILED, ())
    assert group.episodes[1].given_up


@BACKENDS
async def test_unscored_members_are_sampled_anew(tmp_path: Path, backend: str) -> None:
    plays = ("42", f"model {tmp_path / 'one'}", f"model {tmp_path / 'two'}", "7")
    group = await run_group(tmp_path / "run", spec_of(FillUp(fill_up=2)), task_of(*plays), backend=backend)
    assert (group.end, group.scores) == (GroupEnd.COMPLETE, (1.0, 1.0, 1.0, 0.0))
    assert [each.attempt for each in group.episodes] == [1, 2, 2, 1]
    assert Counter(each.episode.key for each in Run.open(tmp_path / "run").records(Sealed)).most_common(1)[0][1] == 1


async def test_no_more_members_are_sampled_anew_than_the_policy_says(tmp_path: Path) -> None:
    spec = spec_of(GroupPolicy(fill_up=3))
    group = await run_group(tmp_path / "run", spec, task_of("model", "42", "model"))
    assert (group.end, group.scores) == (GroupEnd.COMPLETE, (1.0,))
    assert sum(each.attempt for each in group.episodes) == 3 + 3, "one attempt each, and three fill-ups"


async def test_fill_ups_of_an_earlier_start_count(tmp_path: Path) -> None:
    task, gate = task_of("model", "42", f"wait {tmp_path / 'gate'}"), tmp_path / "gate"

    def filled() -> int:
        return sum(each.anew for each in Run.open(tmp_path / "run").records(Failed))

    async with Runtime.open(Resources(backend="inline", num_rollouts=8), store=tmp_path / "run") as runtime:
        spec = spec_of(GroupPolicy(fill_up=3), retries={"backoff": 600.0, "backoff_max": 600.0})
        job = runtime.run(Job("train", [task], spec, group_size=3))
        await until(lambda: job.status().done == 1 and filled() == 1, "one fill-up is used")
        job.stop(now=True)
        assert [group async for group in job] == []
    gate.touch()
    group = await run_group(tmp_path / "run", spec_of(GroupPolicy(fill_up=3)), task)
    assert (group.end, group.scores) == (GroupEnd.COMPLETE, (1.0, 1.0))
    assert filled() == 3


async def test_a_server_that_answers_nobody_stops_a_job_whose_groups_fail(tmp_path: Path) -> None:
    tasks = [task_of("model", "hang", name=f"t{n}") for n in range(200)]
    async with Runtime.open(Resources(backend="inline", num_rollouts=4), store=tmp_path / "run") as runtime:
        with pytest.raises(ModelError, match="attempts in a row failed by the model's server"):
            async for _ in runtime.run(Job("train", tasks, spec_of(FailFast()), group_size=2)):
                pass


@BACKENDS
async def test_the_last_member_is_given_up_when_it_takes_too_long(tmp_path: Path, backend: str) -> None:
    spec = spec_of(GroupPolicy(straggler_factor=3))
    group = await run_group(tmp_path / "run", spec, task_of("42", "7", "hang", "42"), backend=backend)
    assert group.end is GroupEnd.ENOUGH
    assert group.scores == (1.0, 0.0, 1.0)
    assert "3 times as long" in group.episodes[2].score.reason
    assert Run.open(tmp_path / "run").verify() == []


async def test_two_members_that_are_left_are_waited_for(tmp_path: Path) -> None:
    spec, task = spec_of(GroupPolicy(straggler_factor=1.5)), task_of("42", "7", "hang", "hang")
    loop = asyncio.get_running_loop()
    async with Runtime.open(Resources(backend="inline"), store=tmp_path / "run") as runtime:
        job, begun = runtime.run(Job("train", [task], spec, group_size=4)), loop.time()
        await until(lambda: job.status().done == 2, "two are scored")
        took = loop.time() - begun
        await until(lambda: loop.time() - begun > 4 * took, "the others take far longer")
        job.stop(now=True)
        assert [group async for group in job] == []
    assert [each.given_up for each in Run.open(tmp_path / "run").outcomes()] == [False, False]


async def test_one_that_sleeps_before_a_retry_is_given_up_too(tmp_path: Path) -> None:
    spec = spec_of(GroupPolicy(straggler_factor=5), retries={"model": 9, "backoff": 600.0, "backoff_max": 600.0})
    group = await asyncio.wait_for(run_group(tmp_path / "run", spec, task_of("42", "model", "7")), 60)
    assert (group.end, group.scores) == (GroupEnd.ENOUGH, (1.0, 0.0))
    assert group.episodes[1].given_up
    assert group.episodes[1].attempt == 1


async def test_one_whose_worker_dies_counts_as_unscored(tmp_path: Path) -> None:
    group = await run_group(
        tmp_path / "run", spec_of(MinViable()), task_of("crash", "42", "42"), backend="process", workers=1
    )
    assert group.end is GroupEnd.COMPLETE
    assert group.scores == (1.0, 1.0)
    assert group.episodes[0].failure is not None
    assert group.episodes[0].failure.failure_class is FailureClass.WORKER


async def test_a_given_up_member_frees_its_permit_for_others(tmp_path: Path) -> None:
    spec = spec_of(GroupPolicy(no_signal_after=2))
    tasks = [task_of("42", "42", "hang", "hang", name=f"t{n}") for n in range(3)]
    async with Runtime.open(Resources(backend="inline", num_rollouts=4), store=tmp_path / "run") as runtime:
        groups = [group async for group in runtime.run(Job("train", tasks, spec, group_size=4))]
        assert runtime.engine.limits.episodes.used == runtime.engine.limits.groups.used == 0
    assert [group.end for group in groups] == [GroupEnd.NO_SIGNAL] * 3


async def test_reports_count_what_was_given_up_apart(tmp_path: Path) -> None:
    spec = spec_of(GroupPolicy(no_signal_after=2))
    await run_group(tmp_path / "run", spec, task_of("42", "hang", "42", "hang", "42"), num_rollouts=3)
    results = Results.read(tmp_path / "run")
    summary = results.summary()
    overall = summary.overall
    assert (overall.planned, overall.attempted, overall.scored, overall.unscored) == (5, 2, 2, 0)
    assert (overall.given_up, overall.over_attempted.value) == (3, 1.0)
    assert (summary.finished, summary.failures, summary.groups) == (True, (), {"no_signal": 1})
    assert any("3 episodes were given up" in note for note in summary.notes)
    line = json.loads((tmp_path / "run/results.jsonl").read_text().splitlines()[-1])
    assert line["score"] is None


async def test_a_policy_that_does_not_fit_is_refused_when_the_job_is_made() -> None:
    with pytest.raises(ConfigError, match=r"job 'train': policy.min_scored is 2, and a group has 1"):
        Job("train", [task_of("42")], spec_of(MinViable()))


async def test_a_group_that_is_withheld_says_so(tmp_path: Path) -> None:
    async with Runtime.open(Resources(backend="inline"), store=tmp_path / "run") as runtime:
        async for group in runtime.run(Job("train", [task_of("42")], spec_of(GroupPolicy()))):
            runtime.withhold(group)
    assert ends_of(tmp_path / "run") == [GroupEnd.COMPLETE, GroupEnd.WITHHELD]
    async with Runtime.open(Resources(backend="inline"), store=tmp_path / "run") as runtime:
        (again,) = [group async for group in runtime.run(Job("train", [task_of("42")], spec_of(GroupPolicy())))]
    assert (again.resumed, again.end) == (True, GroupEnd.WITHHELD)


async def test_who_is_given_up_after_its_end_or_cannot_be_run_is_not_remembered(tmp_path: Path) -> None:
    bad, told = Task(id="bad", instruction="?", env="nowhere"), asyncio.Event()

    async def source() -> AsyncIterator[Batch]:
        yield Batch(tasks=(task_of("42"),))
        try:
            yield Batch(tasks=(bad,), round=1)
        except InputError:
            await told.wait()
        yield Batch(tasks=(task_of("42"),), round=2)

    async with Runtime.open(Resources(backend="inline"), store=tmp_path / "run") as runtime:
        job = runtime.run(Job("train", source(), spec_of(GroupPolicy())))
        job.give_up(1, "bad", "not wanted")
        job.give_up(2, "t", "not wanted")
        ends = []
        async for group in job:
            job.give_up(group.round, group.task.id, "too late")
            job.give_up(1, "bad", "too late")
            told.set()
            ends.append(group.end)
    assert ends == [GroupEnd.COMPLETE, GroupEnd.FAILED]
    assert job._unwanted == {}


# --- resume ---


async def test_what_was_given_up_is_not_run_again(tmp_path: Path) -> None:
    task, spec = task_of("model", "hang", "42", "hang"), spec_of(FailFast())
    first = await run_group(tmp_path / "run", spec, task)
    before = len(list(Run.open(tmp_path / "run").records(Started)))
    again = await run_group(tmp_path / "run", spec, task)
    assert (again.resumed, again.end, again.episodes) == (True, GroupEnd.FAILED, first.episodes)
    assert len(list(Run.open(tmp_path / "run").records(Started))) == before
    assert ends_of(tmp_path / "run") == [GroupEnd.FAILED]


async def test_what_infrastructure_spoiled_is_run_again_where_nothing_was_given_up(tmp_path: Path) -> None:
    task = task_of("42", f"model {tmp_path / 'once'}", "7")
    first = await run_group(tmp_path / "run", spec_of(MinViable()), task)
    assert first.scores == (1.0, 0.0)
    again = await run_group(tmp_path / "run", spec_of(MinViable()), task)
    assert (again.resumed, again.scores) == (False, (1.0, 1.0, 0.0))


async def test_a_resume_decides_by_what_is_there_before_it_runs_anything(tmp_path: Path) -> None:
    task, spec = task_of("42", "42", f"wait {tmp_path / 'gate'}", "hang"), spec_of(GroupPolicy())
    async with Runtime.open(Resources(backend="inline", num_rollouts=4), store=tmp_path / "run") as runtime:
        job = runtime.run(Job("train", [task], spec, group_size=4))
        await until(lambda: job.status().done == 2, "two are scored")
        job.stop(now=True)
        assert [group async for group in job] == []
    started = len(list(Run.open(tmp_path / "run").records(Started)))
    group = await run_group(tmp_path / "run", spec_of(GroupPolicy(no_signal_after=2)), task)
    assert (group.end, group.scores, group.resumed) == (GroupEnd.NO_SIGNAL, (1.0, 1.0), False)
    assert len(list(Run.open(tmp_path / "run").records(Started))) == started
    assert ends_of(tmp_path / "run") == [GroupEnd.STOPPED, GroupEnd.NO_SIGNAL]


PROGRAM = Path(__file__).with_name("policies.py")
POLICIES = ("no_signal", "straggler", "fill_up")


async def test_policies_under_kills_of_workers_and_coordinator(tmp_path: Path) -> None:
    dice, told = random.Random(7), b""
    command = [sys.executable, str(PROGRAM), str(tmp_path / "run"), str(tmp_path)]
    for start in ("coordinator", "worker", "coordinator", "worker", "coordinator", ""):
        kill = start
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        wait = dice.randrange(1, 5) if kill else 10_000
        async for line in process.stdout:
            told += line
            if line.startswith(b"new"):
                wait -= 1
            if wait == 0 and kill == "worker":
                kill_a_worker(process.pid)
                wait, kill = dice.randrange(2, 5), "coordinator"
            elif wait == 0:
                os.kill(process.pid, signal.SIGKILL)
                break
        await asyncio.wait_for(process.communicate(), 120)
    run = Run.open(tmp_path / "run")
    assert (run.verify(), run.index.finished) == ([], True)
    outcomes = Counter(each.episode.key for each in run.records(Sealed))
    assert len(outcomes) == len(POLICIES) * 8 * 4
    assert set(outcomes.values()) == {1}, "one outcome a member"
    closed = [each for each in run.records(GroupClosed) if each.end is not GroupEnd.STOPPED]
    ends = Counter((each.phase, each.task) for each in closed)
    assert len(ends) == len(POLICIES) * 8
    assert set(ends.values()) == {1}, "one end a group"
    by_phase = {phase: {each.end for each in closed if each.phase == phase} for phase in POLICIES}
    assert by_phase == {
        "no_signal": {GroupEnd.NO_SIGNAL}, "straggler": {GroupEnd.ENOUGH}, "fill_up": {GroupEnd.COMPLETE},
    }  # fmt: skip
    given_up = Counter(each.key.phase for each in run.outcomes() if each.given_up)
    assert (given_up["no_signal"], given_up["straggler"], given_up["fill_up"]) == (16, 8, 0)
    assert all(each.points is not None for each in run.outcomes() if each.key.phase == "fill_up")


def kill_a_worker(coordinator: int) -> None:
    """One that runs attempts: a child of the zygote, which is a child of the coordinator."""
    workers = [each for child in psutil.Process(coordinator).children() for each in child.children()]
    for worker in workers[:1]:
        worker.kill()


async def test_two_jobs_never_exceed_the_limits_at_the_desktops_and_the_older_plan_goes_first(tmp_path: Path) -> None:
    tasks = [Task(id=f"t{n}", instruction="do it", evaluator=INFEASIBLE) for n in range(8)]
    spec = EpisodeSpec.model_validate({"agent": "noop"})
    resources = Resources.model_validate(
        {
            "provider": "sim", "provider_options": {"boot": "0.01", "reset": "0.01"}, "num_vms": 12, "workers": 2,
            "num_rollouts": 6, "max_concurrent_rollouts": 3,
        }
    )  # fmt: skip
    leased: dict[str, str] = {}
    most_desktops = most_groups = 0

    def count(event: DesktopState) -> None:
        nonlocal most_desktops, most_groups
        if event.state == "leased":
            leased[event.desktop] = event.group
        else:
            leased.pop(event.desktop, None)
        most_desktops, most_groups = max(most_desktops, len(leased)), max(most_groups, len(set(leased.values())))

    async with Runtime.open(resources, store=tmp_path / "run") as runtime:
        runtime.hub.on(DesktopState, count)
        older = runtime.run(Job("older", tasks, spec, group_size=3))
        await until(lambda: older.status().planned == 24, "the older one is planned")
        younger = runtime.run(Job("younger", tasks, spec, group_size=2))
        done = [[group async for group in job] for job in (older, younger)]
    assert [len(groups) for groups in done] == [8, 8]
    assert 1 < most_desktops <= 6
    assert 1 < most_groups <= 3
    opened = [each.phase for each in Run.open(tmp_path / "run").records(GroupOpened)]
    assert opened == ["older"] * 8 + ["younger"] * 8
