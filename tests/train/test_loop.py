"""The training loop: steps on groups with a signal, weights that reach servers, evaluations of one version, resume."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from deskroll.errors import DeskrollError, ModelError, Untrainable
from deskroll.events import (
    EvaluationBegun,
    EvaluationEnded,
    Event,
    LoopWait,
    StepFailed,
    StepTaken,
    TrainStarted,
    TrainWaits,
    WeightsRefused,
    WeightsServed,
    kind_of,
)
from deskroll.models.scripted import Script
from deskroll.models.weights.refusal import CheckpointRefused, Refusal
from deskroll.store import Run
from deskroll.store.training import EvalRecord, StepRecord
from deskroll.train.feed import NoSignal
from deskroll.train.log import TrainLog
from deskroll.train.staleness import Pace, Staleness
from deskroll.types import Task
from tests.rollout.conftest import script, until
from tests.train.parts import training

CALCULATE = [{"name": "calculator", "arguments": {"expressions": ["6*7"]}}]


def steps_of(folder: Path) -> list[StepRecord]:
    log = TrainLog(folder / "run")
    log.open()
    return log.steps


async def test_three_steps(tmp_path: Path) -> None:
    async with training(tmp_path) as run:
        await run.loop.run()
    records = steps_of(tmp_path)
    assert [each.step for each in records] == [1, 2, 3]
    assert [batch.step for batch in run.trainer.batches] == [1, 2, 3]
    used = Counter((group.round, group.task) for each in records for group in each.groups)
    assert (len(used), set(used.values())) == (6, {1})
    assert all(0 < group.score < 1 for each in records for group in each.groups), "each has a signal"
    for record, batch in zip(records, run.trainer.batches, strict=True):
        assert {version for each in batch.sequences for version in each.versions} == {record.step - 1}
        assert record.lag_max == 0
        assert record.report.loss == 0.5
        assert abs(sum(each.advantage for each in batch.sequences)) < 1e-6
    assert sorted(path.name for path in (tmp_path / "run/weights").iterdir()) == ["step_0", "step_2", "step_3"]
    assert {each.key.phase for each in Run.open(tmp_path / "run").outcomes()} == {"train"}


async def test_baseline_and_evaluations_are_of_one_version_each(tmp_path: Path) -> None:
    pace = Pace(groups_per_batch=2, most_behind=2)
    async with training(tmp_path, baseline=True, eval_every=2, steps=5, pace=pace) as run:
        await run.loop.run()
        evaluations = [each for each in run.loop.log.records if isinstance(each, EvalRecord)]
    assert [(each.phase, each.step, each.versions) for each in evaluations] == [
        ("baseline", 0, ("0",)), ("eval", 2, ("2",)), ("eval", 4, ("4",)), ("eval", 5, ("5",)),
    ]  # fmt: skip
    assert all((each.episodes, each.scored) == (3, 3) for each in evaluations)
    rounds = {(each.key.phase, each.key.round) for each in Run.open(tmp_path / "run").outcomes()}
    assert {each for each in rounds if each[0] != "train"} == {("baseline", 0), ("eval", 2), ("eval", 4), ("eval", 5)}


async def test_what_it_does_is_told_as_events(tmp_path: Path) -> None:
    async with training(tmp_path, baseline=True, eval_every=2, steps=2) as run:
        told: list[Event] = []
        for kind in (TrainStarted, TrainWaits, StepTaken, StepFailed, EvaluationBegun, EvaluationEnded, WeightsServed,
                     WeightsRefused):  # fmt: skip
            run.loop.runtime.hub.on(kind, told.append)
        run.trainer.fails, run.servers.refuses = 1, 1
        await run.loop.run()
        status = run.loop.runtime.status()
        records = run.loop.log.steps
    steps = [each for each in told if not isinstance(each, TrainWaits)]
    assert [kind_of(each) for each in steps if each.at and "evaluation" not in kind_of(each)] == [
        "train.started", "step.failed", "step.taken", "weights.refused", "step.taken", "weights.served",
    ]  # fmt: skip
    assert [(each.step, each.reward) for each in told if isinstance(each, StepTaken)] == [
        (each.step, each.reward) for each in records
    ]  # fmt: skip
    ended = [(each.phase, each.round, each.versions) for each in told if isinstance(each, EvaluationEnded)]
    assert ended == [("baseline", 0, ("0",)), ("eval", 2, ("2",))]
    waits = [each.what for each in told if isinstance(each, TrainWaits) and each.step == 2]
    assert waits[-4:] == [LoopWait.TRAINER, LoopWait.CHECKPOINT, LoopWait.SERVERS, LoopWait.NOTHING]
    assert status.training is not None
    assert (status.training.step, status.training.version, status.training.over) == (2, 2, True)
    assert status.training.failures == {"step": 1, "refresh": 1}
    assert status.limit == "nothing is left to do"


SLOW = Script.parse(
    {
        "latency": [0.001, 0.01],
        "replies": [
            {
                "when": "slowly",
                "turns": [*[{"tools": CALCULATE, "latency": 0.25}] * 3, {"text": "42", "latency": 0.25}],
            },
            {"turns": [{"text": "42", "by_seed": ["42", "7"]}]},
        ],
    }
)
"""An evaluation of several turns, which lasts while many steps are taken."""


@pytest.mark.parametrize("adapters", [True, False])
async def test_an_evaluation_holds_up_whole_weights_alone(tmp_path: Path, adapters: bool) -> None:
    slow = [Task(id=f"e{n}", instruction=f"slowly: 6*7? ({n})", answer="42") for n in range(3)]
    pace, steps = Pace(groups_per_batch=1, most_behind=1), 12
    async with training(
        tmp_path, script=SLOW, adapters=adapters, eval_tasks=slow, eval_every=4, steps=steps, pace=pace, baseline=True
    ) as run:
        await run.loop.run()
        records = run.loop.log.records
    evaluations = [each for each in records if isinstance(each, EvalRecord)]
    due = [("baseline", 0), *(("eval", step) for step in range(4, steps + 1, 4))]
    assert [(each.phase, each.step, each.versions) for each in evaluations] == [
        (phase, step, (str(step),)) for phase, step in due
    ]
    assert all((each.scored, each.successes) == (3, 3) for each in evaluations)
    for each in Run.open(tmp_path / "run").outcomes():
        if each.key.phase != "train":
            assert (each.versions, each.steps) == ((str(each.key.round),), 4)
    holds = {each.step: each.seconds["hold"] for each in records if isinstance(each, StepRecord)}
    meanwhile = {
        each.step: max((other.step for other in records[:at] if isinstance(other, StepRecord)), default=0) - each.step
        for at, each in enumerate(records) if isinstance(each, EvalRecord)
    }  # fmt: skip
    if adapters:
        assert min(meanwhile[0], meanwhile[4]) >= 1, "steps were taken while they ran"
    else:
        assert set(meanwhile.values()) == {0}
        assert min(holds[1], holds[5], holds[9]) > 0.25


async def test_evaluations_that_were_left_are_finished_by_a_resume(tmp_path: Path) -> None:
    """With adapters steps go on while evaluations run: those of older versions are made of those versions."""
    slow = [Task(id=f"e{n}", instruction=f"slowly: 6*7? ({n})", answer="42") for n in range(3)]
    plan = {
        "script": SLOW, "adapters": True, "eval_tasks": slow, "eval_every": 2, "baseline": True,
        "pace": Pace(groups_per_batch=1, most_behind=1),
    }  # fmt: skip
    async with training(tmp_path, steps=30, **plan) as run:
        work = asyncio.create_task(run.loop.run())
        await until(lambda: run.loop.step >= 3, "three steps were taken")
        work.cancel()
        await asyncio.wait((work,))
        before = run.loop.step
        assert ("eval", 2) not in run.loop.log.evaluated, "it was left"
    async with training(tmp_path, steps=before + 1, **plan) as run:
        await run.loop.run()
        evaluations = [each for each in run.loop.log.records if isinstance(each, EvalRecord)]
    made = sorted((each.step, each.versions) for each in evaluations)
    due = sorted({0, *range(2, before + 2, 2), before + 1})
    assert made == [(step, (str(step),)) for step in due]


async def test_told_to_stop_while_an_evaluation_runs_it_takes_no_step(tmp_path: Path) -> None:
    slow = [Task(id=f"e{n}", instruction=f"slowly: 6*7? ({n})", answer="42") for n in range(3)]
    plan = {"script": SLOW, "eval_tasks": slow, "eval_every": 1, "pace": Pace(groups_per_batch=1, most_behind=1)}
    async with training(tmp_path, steps=3, **plan) as run:
        work = asyncio.create_task(run.loop.run())
        await until(lambda: run.loop.step >= 1, "a step was taken")
        run.loop.stop(now=True)
        await work
        assert run.loop.step == 1
        assert run.loop.log.evaluated == set()
    async with training(tmp_path, steps=3, **plan) as run:
        await run.loop.run()
        assert run.loop.log.evaluated == {("eval", 1), ("eval", 2), ("eval", 3)}


@pytest.mark.parametrize(
    ("plan", "phases"),
    [
        ({"baseline_only": True, "steps": 3}, {"baseline"}),
        ({"baseline": True, "steps": 0}, {"baseline"}),
        ({"baseline": False, "eval_every": 0, "steps": 1}, {"train"}),
        ({"baseline": True, "eval_every": 0, "steps": 1}, {"baseline", "train"}),
        ({"baseline": False, "eval_every": 1, "steps": 1}, {"eval", "train"}),
        ({"baseline": False, "steps": 0}, set()),
    ],
)
async def test_exactly_what_is_said_runs(tmp_path: Path, plan: dict, phases: set[str]) -> None:
    async with training(tmp_path, **plan) as run:
        await run.loop.run()
    assert {each.key.phase for each in Run.open(tmp_path / "run").outcomes()} == phases


@pytest.mark.parametrize("staleness", list(Staleness))
async def test_generation_goes_on_while_the_trainer_works(tmp_path: Path, staleness: Staleness) -> None:
    pace = Pace(groups_per_batch=2, most_behind=2, staleness=staleness)
    async with training(tmp_path, pace=pace, steps=8) as run:
        await run.loop.run()
    records = steps_of(tmp_path)
    assert len(records) == 8
    if staleness is not Staleness.PACE:
        assert max(each.lag_max for each in records) <= 2
    used = Counter((group.round, group.task) for each in records for group in each.groups)
    assert set(used.values()) == {1}


async def test_a_trainer_that_fails_is_begun_anew_from_the_last_step(tmp_path: Path) -> None:
    async with training(tmp_path) as run:
        run.trainer.fails = 2
        await run.loop.run()
    assert run.trainer.opened == ["step_0", "step_0", "step_0"]
    assert [each.step for each in steps_of(tmp_path)] == [1, 2, 3]
    assert sum("step 1 failed, and is taken again: out of memory" in each for each in run.told) == 2


async def test_three_failures_in_a_row_end_it_and_it_can_go_on(tmp_path: Path) -> None:
    async with training(tmp_path) as run:
        run.trainer.fails = 3
        with pytest.raises(DeskrollError, match="out of memory"):
            await run.loop.run()
    async with training(tmp_path) as run:
        await run.loop.run()
    assert [each.step for each in steps_of(tmp_path)] == [1, 2, 3]


async def test_a_batch_that_no_try_would_mend_ends_it_at_once(tmp_path: Path) -> None:
    async with training(tmp_path) as run:
        run.trainer.refuses = True
        with pytest.raises(Untrainable, match=r"the worst is token 3 of train/0/t\d/"):
            await run.loop.run()
    assert (run.trainer.asked, run.trainer.opened) == (1, ["step_0"])
    assert not any("is taken again" in each for each in run.told)
    async with training(tmp_path) as run:
        await run.loop.run()
    assert [each.step for each in steps_of(tmp_path)] == [1, 2, 3]


@pytest.mark.parametrize("error", [ModelError("none is up"), CheckpointRefused(Refusal.UNREADABLE, "it is no model")])
async def test_servers_that_do_not_take_weights_go_on_with_the_old_ones(tmp_path: Path, error: DeskrollError) -> None:
    async with training(tmp_path, steps=4, pace=Pace(groups_per_batch=2, most_behind=1)) as run:
        run.servers.refuses, run.servers.error = 2, error
        await run.loop.run()
    records = steps_of(tmp_path)
    assert [(each.step, each.served) for each in records] == [(1, 0), (2, 0), (3, 0), (4, 3)]
    assert (tmp_path / "run/weights/step_3").exists()
    assert sum("is not served, and version 0 goes on" in each for each in run.told) == 2


async def test_servers_that_take_no_weights_three_times_end_it(tmp_path: Path) -> None:
    async with training(tmp_path, steps=9) as run:
        run.servers.refuses = 3
        with pytest.raises(ModelError, match="no server takes it"):
            await run.loop.run()
    assert [each.step for each in steps_of(tmp_path)] == [1, 2, 3]


async def test_no_signal_at_all_ends_it(tmp_path: Path) -> None:
    async with training(tmp_path, script=script({"text": "42"})) as run:
        with pytest.raises(NoSignal):
            await run.loop.run()


async def test_a_resume_uses_what_was_closed_and_repeats_nothing(tmp_path: Path) -> None:
    pace = Pace(groups_per_batch=2, most_behind=2)
    async with training(tmp_path, steps=30, pace=pace) as run:
        work = asyncio.create_task(run.loop.run())
        await until(lambda: run.loop.step >= 2, "two steps were taken")
        work.cancel()
        await asyncio.wait((work,))
    before = steps_of(tmp_path)
    async with training(tmp_path, steps=len(before) + 3, pace=pace) as run:
        await run.loop.run()
    records = steps_of(tmp_path)
    assert [each.step for each in records] == list(range(1, len(before) + 4))
    used = Counter((group.round, group.task) for each in records for group in each.groups)
    assert set(used.values()) == {1}, "none is trained on twice"
    passed = [name for each in records for name in (*each.no_signal, *each.failed, *each.withheld)]
    assert len(passed) == len(set(passed))
    assert not set(passed) & set(used)
    run_ = Run.open(tmp_path / "run")
    assert run_.verify() == []
    outcomes = Counter(each.key for each in run_.outcomes())
    assert set(outcomes.values()) == {1}


async def test_a_step_without_its_weights_is_taken_again(tmp_path: Path) -> None:
    async with training(tmp_path, steps=2) as run:
        await run.loop.run()
    (tmp_path / "run/weights/step_2/READY").unlink()
    with (tmp_path / "run/train.jsonl").open("ab") as file:
        file.write(b'{"type":"step","step":3')  # torn
    async with training(tmp_path, steps=3) as run:
        await run.loop.run()
    assert [each.step for each in steps_of(tmp_path)] == [1, 2, 3]
    assert run.trainer.opened[0] == "step_1"
    lines = (tmp_path / "run/train.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3]
