"""A training run made by hand: its records, its episodes, and all of it in a folder."""

from __future__ import annotations

from pathlib import Path

import msgspec

from deskroll.report.timeline import Start
from deskroll.store import AttemptWriter, RunInfo, RunStore
from deskroll.store.journal import Planned, Sealed, Started
from deskroll.store.paths import TRAIN_CONFIG, TRAIN_LOG
from deskroll.store.training import EvalRecord, StepRecord, StepReport, TrainRecord, UsedGroup
from deskroll.types import Episode
from tests.report.episodes import episode

BEGIN = 1_000.0
STARTS = [Start(begun=BEGIN, ended=BEGIN + 40), Start(begun=BEGIN + 500, ended=BEGIN + 560)]
"""Killed after 40 s, resumed long after, for 60 s."""


def step(number: int, at: float, reward: float, **fields: object) -> StepRecord:
    groups = tuple(UsedGroup(round=0, task=f"t{n}", attempts=(1, 1), score=reward, lag=1) for n in range(2))
    seconds = {"refresh": 0.5, "generate": 4.0, "hold": 0.0, "train": 3.0, "save": 1.0}
    record = StepRecord(
        step=number, at=at, groups=groups, withheld=(), no_signal=(), failed=(), reward=reward, lag_p50=1.0,
        lag_p95=1.0, lag_max=2, sequences=4, report=StepReport(loss=0.25, tokens=100), seconds=seconds,
        served=number - 1,
    )  # fmt: skip
    return msgspec.structs.replace(record, **fields)


def evaluation(phase: str, after: int, at: float) -> EvalRecord:
    return EvalRecord(
        phase=phase, step=after, at=at, episodes=4, scored=4, successes=2, mean_score=0.5, versions=(str(after),),
        seconds=8.0,
    )  # fmt: skip


RECORDS: list[TrainRecord] = [
    evaluation("baseline", 0, BEGIN + 10),
    step(1, BEGIN + 20, 0.2),
    step(2, BEGIN + 30, 0.4, no_signal=((0, "x"), (0, "y"))),
    evaluation("eval", 2, BEGIN + 510),
    step(3, BEGIN + 520, 0.6, seconds={"generate": 1.0, "hold": 8.0, "train": 1.0, "save": 0.0, "refresh": 0.0}),
]


def episodes() -> list[Episode]:
    """Of each phase; three of four tasks succeed in the end, one at the beginning."""
    found = []
    evaluations = (("baseline", 0, 2.0, "1000"), ("eval", 2, 502.0, "1110"), ("eval", 3, 530.0, "1"))
    for phase, after, begun, scores in evaluations:
        for number, score in enumerate(scores):
            made = episode(
                f"e{number}", float(score), phase=phase, round=after, started_at=BEGIN + begun,
                ended_at=BEGIN + begun + 8,
            )  # fmt: skip
            found.append(msgspec.structs.replace(made, versions=(str(after),)))
    for number in range(4):
        begun = BEGIN + 5 + 5 * number
        found.append(episode(f"t{number}", 0.0, phase="train", started_at=begun, ended_at=begun + 5))
    return found


async def write_training(root: Path, records: list[TrainRecord] = RECORDS) -> Path:
    """The run in a folder, as a coordinator leaves it."""
    async with RunStore.create(root, RunInfo(run_id=root.name, created_at=BEGIN, config={"num_rollouts": 8})) as store:
        for each in episodes():
            key = each.key
            store.write(Planned(phase=key.phase, round=key.round, task=key.task, samples=1))
            store.write(Started(key=key, attempt=1, epoch=store.epoch))
            async with AttemptWriter(store.storage, key, 1) as writer:
                await writer.seal(each)
            store.write(Sealed(episode=each, epoch=store.epoch))
    (root / TRAIN_LOG).write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in records) + b'{"torn')
    (root / TRAIN_CONFIG).write_text("steps: 5\n")
    return root
