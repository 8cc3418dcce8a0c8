"""Staleness on simulated desktops: what is begun, trained on and withheld; a slow task loses nothing by being slow."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from deskroll.events import BatchPlanned, EpisodeSealed, Event, GroupEnded
from deskroll.models.scripted import Script
from deskroll.rollout.config import Resources
from deskroll.store import Run
from deskroll.train.log import StepRecord
from deskroll.train.loop import TrainLoop
from deskroll.train.staleness import Pace, Staleness
from deskroll.types import GroupEnd, Task
from tests.train.parts import tasks, training
from tests.train.timed_env import ENV, lognormal, reply

BATCH, SAMPLES, BEHIND, STEPS = 3, 2, 1, 20
SLOW = Task(id="slow", instruction="Take your time")
KINDS = 40
LENGTHS = lognormal(0.015, 1.0, KINDS)
Name = tuple[int, str]


def turn(factor: float) -> dict[str, object]:
    """Scores of an eighth each, so that some groups have no signal."""
    times = [reply(factor * each, n % 8 / 8) for n, each in enumerate(LENGTHS)]
    return {"text": reply(0.0, 0.0), "by_seed": times}


SCRIPT = Script.parse({"replies": [{"when": SLOW.instruction, "turns": [turn(10.0)]}, {"turns": [turn(1.0)]}]})
"""One task takes ten times as long as the others."""


class Groups:
    """Hears which groups are begun and closed; `over`: how many were begun beyond the formula."""

    def __init__(self) -> None:
        self.loop: TrainLoop | None = None
        self.begun = self.over = 0
        self.closed: dict[Name, bool] = {}
        """Whether they have a signal."""
        self._scores: dict[Name, set[float | None]] = {}

    def emit(self, event: Event) -> None:
        if isinstance(event, BatchPlanned):
            self._admit()
        elif isinstance(event, EpisodeSealed):
            self._scores.setdefault((event.key.round, event.key.task), set()).add(event.score)
        elif isinstance(event, GroupEnded) and event.end is not GroupEnd.STOPPED:
            self.closed[event.round, event.task] = len(self._scores[event.round, event.task]) > 1

    def _admit(self) -> None:
        """In flight and closed with signal since the start are fewer than (max_steps_off_policy + step + 1) batches."""
        assert self.loop is not None
        count = self.begun - len(self.closed) + sum(self.closed.values())
        self.over += count >= (BEHIND + self.loop.step + 1) * BATCH
        self.begun += 1


class Load:
    """What came of a run."""

    def __init__(self, steps: list[StepRecord], run: Run, heard: Groups) -> None:
        self.steps, self.heard = steps, heard
        self.drawn = {(each.round, each.task) for each in run.index.planned}
        self.trained = Counter((group.round, group.task) for each in steps for group in each.groups)
        self.withheld = {name for each in steps for name in each.withheld}
        self.no_signal = {name for each in steps for name in each.no_signal}
        self.no_signal |= {
            name for name, signal in heard.closed.items() if not signal
        }  # those since the last step, too
        self._episodes = run.outcomes()

    def lags(self) -> list[int]:
        """Of every group that was trained on, by what its episodes themselves say."""
        versions: dict[Name, int] = {}
        for each in self._episodes:
            name = (each.key.round, each.key.task)
            versions[name] = min(versions.get(name, STEPS), *map(int, each.versions))
        return [each.step - 1 - versions[group.round, group.task] for each in self.steps for group in each.groups]


async def load(folder: Path, staleness: Staleness) -> Load:
    heard = Groups()
    resources = Resources(
        backend="inline", provider="sim", provider_options={"boot": "0.01", "reset": "0.002"}, num_vms=12,
        num_rollouts=12,
    )  # fmt: skip
    pace = Pace(groups_per_batch=BATCH, most_behind=BEHIND, staleness=staleness)
    async with training(
        folder, script=SCRIPT, pace=pace, env=ENV, resources=resources, sink=heard, steps=STEPS, group_size=SAMPLES,
        tasks=[*tasks(4), SLOW],
    ) as run:  # fmt: skip
        heard.loop = run.loop
        await run.loop.run()
    return Load(run.loop.log.steps, Run.open(folder / "run"), heard)


@pytest.mark.parametrize("staleness", list(Staleness))
async def test_every_group_that_is_drawn_has_one_fate_and_none_is_too_old(tmp_path: Path, staleness: Staleness) -> None:
    found = await load(tmp_path, staleness)
    assert len(found.steps) == STEPS
    assert set(found.trained.values()) == {1}, "none is trained on twice"
    fates = (set(found.trained), found.withheld, found.no_signal)
    assert sum(map(len, fates)) == len(set().union(*fates))
    under_way = found.drawn.difference(*fates)
    assert len(under_way) <= (BEHIND + 1) * BATCH, "all others came to an end that is told"
    if staleness is Staleness.PACE:
        assert [group.lag for each in found.steps for group in each.groups] == found.lags()
    else:
        assert max(found.lags()) <= BEHIND
    if staleness is not Staleness.WITHHOLD:  # there, what is withheld makes room
        assert found.heard.over == 0, "none was begun beyond the formula"
        assert not found.withheld, "what is drawn is trained on, unless it says nothing, however long it takes"
    print(staleness, *(Counter(task for _, task in each) for each in (found.drawn, *fates, under_way)), sep="\n  ")
