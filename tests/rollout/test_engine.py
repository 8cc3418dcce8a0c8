"""The engine: plan, permits over all phases, stop, resume."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from deskroll.errors import InputError, StoreError
from deskroll.report.results import Results
from deskroll.rollout.job import Job
from deskroll.store.journal import Failed, GroupClosed, GroupOpened, Reopened, Sealed, Started
from tests.rollout import parts
from tests.rollout.conftest import ANSWER, CALCULATE, Runs, questions, script, until

COUNTING = "tests.rollout.parts:CountingEnv"


@pytest.fixture(autouse=True)
def _nobody_counted() -> None:
    parts.CountingEnv.live = parts.CountingEnv.most = 0


async def test_no_more_episodes_in_flight_than_allowed(runs: Runs) -> None:
    await runs.run(script(ANSWER), questions(12), env=COUNTING, num_rollouts=3)
    assert parts.CountingEnv.most == 3


async def test_no_more_groups_in_flight_than_allowed(runs: Runs) -> None:
    """Two groups of four are eight episodes at most, whatever num_rollouts says."""
    async with runs.open(
        script(ANSWER), questions(5), env=COUNTING, num_rollouts=100, max_concurrent_rollouts=2, group_size=4
    ) as session:
        outcomes = await session.run()
    assert len(outcomes) == 20
    assert parts.CountingEnv.most == 8
    run = runs.read()
    changes = sorted(
        [(each.at, 1) for each in run.records(GroupOpened)] + [(each.at, -1) for each in run.records(GroupClosed)]
    )
    held = [sum(change for _, change in changes[: n + 1]) for n in range(len(changes))]
    assert (max(held), held[-1]) == (2, 0)


async def test_limits_hold_over_every_phase_that_shares_the_engine(runs: Runs) -> None:
    async with runs.open(script(ANSWER, latency=0.02), questions(1), env=COUNTING, num_rollouts=4) as session:
        train, evaluation = await asyncio.gather(
            session.runtime.run(Job("train", questions(6), session.config, group_size=2)).outcomes(),
            session.runtime.run(Job("eval", questions(6), session.config)).outcomes(),
        )
    assert (len(train), len(evaluation)) == (12, 6)
    assert parts.CountingEnv.most == 4


async def test_an_evaluation_with_a_reserved_share_is_not_held_up(runs: Runs) -> None:
    async with runs.open(
        script(ANSWER, latency=0.1), questions(1), env=COUNTING, num_rollouts=4, reserved={"eval": 1}
    ) as session:
        training = session.runtime.run(Job("train", questions(40), session.config))
        await until(lambda: session.engine.limits.episodes.used_by("train") == 3, "training uses what is not reserved")
        await session.runtime.run(Job("eval", questions(2), session.config)).outcomes()
        assert session.engine.jobs == {"train": training}
        training.stop()
        await training.outcomes()
    assert parts.CountingEnv.most <= 4


async def test_limits_change_while_it_runs(runs: Runs) -> None:
    async with runs.open(script(ANSWER, latency=0.05), questions(40), env=COUNTING, num_rollouts=1) as session:
        work = asyncio.create_task(session.run())
        await until(lambda: session.state.standing().done >= 2, "some are done")
        session.engine.limits.change(num_rollouts=10)
        await work
    assert parts.CountingEnv.most == 10


async def test_stop_finishes_what_runs_and_a_resume_does_the_rest(runs: Runs) -> None:
    tasks = questions(10)
    async with runs.open(script(CALCULATE, ANSWER, latency=0.05), tasks, num_rollouts=2) as session:
        work = asyncio.create_task(session.run())
        await until(lambda: session.state.standing().done >= 2, "some are done")
        session.stop()
        outcomes = await work
    assert 2 <= len(outcomes) < 10
    assert all(each.score.value == 1.0 for each in outcomes)
    before = {each.key for each in outcomes}
    after = await runs.run(script(CALCULATE, ANSWER), tasks, resume=True)
    assert len(after) == 10
    started = [each.key for each in runs.read().records(Started)]  # one that was given back is started again
    assert [started.count(key) for key in before] == [1] * len(before), "nothing that was done was done again"
    assert before < {each.key for each in after}


async def test_stop_gives_back_what_has_no_desktop_yet(runs: Runs) -> None:
    tasks = questions(8)
    desktops = {"env": "osworld", "provider": "sim", "num_vms": 2, "num_rollouts": 8}
    async with runs.open(script(ANSWER, latency=2.0), tasks, **desktops) as session:
        work = asyncio.create_task(session.run())
        await until(lambda: session.status().stages == {"model": 2, "desktop": 6}, "two have a desktop")
        session.stop()
        assert "2 episodes under way will finish, 6 left for a resume" in await session.farewell()
        outcomes = await work
    run = runs.read()
    assert [each.score.value for each in outcomes] == [1.0] * 2
    assert list(run.records(Failed)) == []
    assert (len(run.unfinished()), run.verify()) == (6, [])
    after = await runs.run(script(ANSWER), tasks, resume=True, **desktops)
    assert [each.score.value for each in after] == [1.0] * 8
    assert {each.key for each in outcomes} == {each.key for each in after if each.attempt == 1}


async def test_stop_now_leaves_no_outcome_for_what_ran(runs: Runs) -> None:
    tasks = questions(4)
    async with runs.open(script(ANSWER, latency=3600.0), tasks, num_rollouts=4) as session:
        work = asyncio.create_task(session.run())
        await until(lambda: len(session.engine.running) == 4, "all run")
        session.stop(now=True)
        assert await work == []
    assert len(await runs.run(script(ANSWER), tasks, resume=True)) == 4


async def test_a_resume_does_again_what_infrastructure_spoiled_and_nothing_else(runs: Runs) -> None:
    fails = [*questions(1, fails="setup"), *questions(3)[1:]]
    wrong = {"text": "41"}
    settings = {"env": "tests.rollout.parts:FailingEnv", "retries": {"setup": 0}}
    first = await runs.run(script(wrong), fails, **settings)
    assert [each.score.value for each in first] == [None, 0.0, 0.0]
    # The task is as it was, for its set-up is what fails; the model has become better meanwhile.
    second = await runs.run(script(ANSWER), fails, resume=True, **settings)
    assert [each.score.value for each in second] == [None, 0.0, 0.0], "a wrong answer stays one"
    run = runs.read()
    assert [each.key.task for each in run.records(Reopened)] == ["task-0"]
    assert [each.episode.attempt for each in run.records(Sealed) if each.episode.key.task == "task-0"] == [1, 2]


async def test_a_resume_refuses_changed_tasks_and_settings_and_says_which(runs: Runs) -> None:
    await runs.run(script(ANSWER), questions(2))
    changed = [*questions(2)[:1], *questions(3, domain="new")[1:]]
    with pytest.raises(InputError) as caught:
        await runs.run(script(ANSWER), changed, resume=True, limits={"max_turns": 7})
    message = str(caught.value)
    for part in ("limits.max_turns was 50 and is 7", "'task-1' has changed", "'task-2' is new", "--force"):
        assert part in message
    outcomes = await runs.run(script(ANSWER), changed, resume=True, force=True, limits={"max_turns": 7})
    assert len(outcomes) == 3


@pytest.mark.parametrize("lines", [1, 3])
async def test_a_run_that_was_killed_while_it_planned_goes_on(runs: Runs, lines: int) -> None:
    await runs.run(script(ANSWER), questions(4))
    journal = Path(runs.read().root) / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:lines]))
    broken = Results.read(runs.read().root)
    assert broken.state.startswith("broken off: 0 of ")
    assert not broken.summary().finished
    assert any("planned yet" in note for note in broken.summary().notes)
    if lines > 1:
        with pytest.raises(InputError, match="2 tasks are not planned yet, and 3 are there for it"):
            await runs.run(script(ANSWER), questions(5), resume=True)
    assert len(await runs.run(script(ANSWER), questions(4), resume=True)) == 4
    assert Results.read(runs.read().root).summary().finished


async def test_how_fast_it_runs_may_change_with_a_resume(runs: Runs) -> None:
    await runs.run(script(ANSWER), questions(2), num_rollouts=1)
    assert len(await runs.run(script(ANSWER), questions(2), resume=True, num_rollouts=7, workers=3)) == 2


async def test_a_run_is_not_begun_twice(runs: Runs) -> None:
    await runs.run(script(ANSWER), questions(1))
    with pytest.raises(StoreError, match="holds a run already"):
        await runs.run(script(ANSWER), questions(1))


async def test_samples_of_a_task_are_one_group(runs: Runs) -> None:
    outcomes = await runs.run(script(ANSWER), questions(2), group_size=3)
    assert [(each.key.task, each.key.sample) for each in outcomes] == [
        (f"task-{task}", sample) for task in range(2) for sample in range(3)
    ]
    assert len(list(runs.read().records(GroupOpened))) == 2
