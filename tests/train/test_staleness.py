"""How far generation runs ahead: no group beyond the pace, none older than its bound where steps wait, none twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deskroll.rollout.group import GroupResult
from deskroll.rollout.job import Batch
from deskroll.train.feed import Feed, NoSignal, has_signal, version_of
from deskroll.train.order import TaskOrder
from deskroll.train.staleness import Pace, Staleness
from deskroll.types import Episode, EpisodeKey, GroupEnd, Score, StopReason, Task
from tests.train.parts import tasks


def group_of(task: Task, round_: int, scores: tuple[float, ...], version: int) -> GroupResult:
    episodes = tuple(
        Episode(
            key=EpisodeKey(phase="train", round=round_, task=task.id, sample=sample), attempt=1, stop=StopReason.ANSWER,
            score=Score(value=score, reason=""), versions=(str(version),),
        )
        for sample, score in enumerate(scores)
    )  # fmt: skip
    return GroupResult(phase="train", round=round_, task=task, episodes=episodes)


class World:
    """Groups that take as many moments as the dice say, and a trainer that takes one a step."""

    def __init__(self, feed: Feed, pace: Pace, seed: int, slow: str = "") -> None:
        self.feed, self.pace, self.dice, self.slow = feed, pace, random.Random(seed), slow
        self.running: list[tuple[int, Task, int, int]] = []
        """When it ends, task, round, version that it was begun with."""
        self.lags: list[int] = []
        self.drawn: set[tuple[int, str]] = set()
        self.trained: Counter[tuple[int, str]] = Counter()
        self.withheld = 0
        self.most = 0
        self.now = 0

    async def live(self, steps: int, signal: float = 0.7) -> None:
        source = aiter(self.feed)
        begin: asyncio.Task[Batch] = asyncio.ensure_future(anext(source))
        take = asyncio.ensure_future(self.feed.take())
        while self.feed.step < steps:
            for _ in range(5):
                await asyncio.sleep(0)
            if begin.done():
                batch = begin.result()
                span = 30 if batch.tasks[0].id == self.slow else self.dice.randint(1, 6)
                self.running.append((self.now + span, batch.tasks[0], batch.round, self.feed.version))
                self.drawn.add((batch.round, batch.tasks[0].id))
                self.most = max(self.most, self.feed.outstanding)
                begin = asyncio.ensure_future(anext(source))
                continue
            if take.done():
                self.train(take)
                take = asyncio.ensure_future(self.feed.take())
                continue
            self.now += 1
            for each in [each for each in self.running if each[0] <= self.now]:
                self.running.remove(each)
                scores = (0.0, 1.0) if self.dice.random() < signal else (1.0, 1.0)
                self.feed.note_closed(group_of(each[1], each[2], scores, each[3]))
        for task in (begin, take):
            task.cancel()
            await asyncio.wait((task,))

    def train(self, take: asyncio.Future[object]) -> None:
        taken = take.result()
        assert taken is not None
        for group in taken.groups:
            self.trained[group.round, group.task.id] += 1
            self.lags.append(self.feed.step - version_of(group, self.feed.step))
        self.withheld += len(taken.withheld)
        self.feed.version = self.feed.step + 1
        self.feed.done(self.feed.step + 1)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 999), st.integers(1, 4), st.integers(0, 3), st.sampled_from(list(Staleness)))
def test_no_group_beyond_the_pace_and_none_trained_on_twice(
    seed: int, groups: int, behind: int, staleness: Staleness
) -> None:
    async def run() -> World:
        pace = Pace(groups_per_batch=groups, most_behind=behind, staleness=staleness)
        world = World(Feed(TaskOrder(tasks(5), seed), pace), pace, seed)
        await world.live(12)
        return world

    world = asyncio.run(run())
    assert set(world.trained.values()) == {1}
    assert len(world.lags) == 12 * groups
    assert world.most <= (behind + 1) * groups
    if staleness is not Staleness.PACE:
        assert max(world.lags) <= behind
    if staleness is not Staleness.WITHHOLD:
        assert world.withheld == 0
    if not behind:
        assert max(world.lags) == 0, "synchronous"


@pytest.mark.parametrize("staleness", [Staleness.PACE, Staleness.WAIT])
async def test_a_slow_task_is_trained_on_as_often_as_it_is_drawn(staleness: Staleness) -> None:
    pace = Pace(groups_per_batch=4, most_behind=2, staleness=staleness)
    world = World(Feed(TaskOrder(tasks(8), 1), pace), pace, 1, slow="t3")
    await world.live(100, signal=1.0)
    share = sum(count for (_, task), count in world.trained.items() if task == "t3") / world.trained.total()
    assert abs(share - 1 / 8) < 0.02
    under_way = {(round_, task.id) for _, task, round_, _ in world.running}
    left = world.drawn - set(world.trained) - under_way
    assert len(left) == world.feed.waiting, "every other one that was drawn was trained on"


async def test_nothing_but_groups_without_signal_ends_it_with_what_to_change() -> None:
    pace = Pace(groups_per_batch=2)
    world = World(Feed(TaskOrder(tasks(5), 1), pace), pace, 1)
    with pytest.raises(NoSignal, match=r"20 groups in a row had no signal.*group_size.*temperature"):
        await asyncio.wait_for(world.live(5, signal=0.0), 60)


async def test_groups_of_an_earlier_start_come_first() -> None:
    order, pace = TaskOrder(tasks(4), 1), Pace(groups_per_batch=1, most_behind=1)
    feed = Feed(order, pace, step=3, begun=(2, 5), following=7)

    async def names() -> AsyncIterator[tuple[int, str]]:
        async for batch in feed:
            yield batch.round, batch.tasks[0].id

    found = names()
    first, second = await anext(found), await anext(found)
    wanted = [(round_, task.id) for round_, task in (order.at(2), order.at(5), order.at(7))]
    assert [first, second] == wanted[:2]
    third = asyncio.ensure_future(anext(found))
    await asyncio.sleep(0)
    assert not third.done(), "those two are all that the pace allows"
    feed.note_closed(group_of(order.at(2)[1], wanted[0][0], (1.0, 1.0), 3))
    assert await third == wanted[2]
    feed.end()
    assert await feed.take() is None


def test_each_pass_has_every_task_once_in_an_order_of_its_own() -> None:
    order = TaskOrder(tasks(7), 5)
    passes = [[order.at(number)[1].id for number in range(start, start + 7)] for start in (0, 7, 14)]
    assert all(sorted(each) == [f"t{n}" for n in range(7)] for each in passes)
    assert len({tuple(each) for each in passes}) == 3
    assert [order.at(number)[0] for number in (0, 6, 7, 20)] == [0, 0, 1, 2]
    assert order.at(9) == TaskOrder(tasks(7), 5).at(9)


def test_a_group_has_a_signal_where_it_did_not_fail_and_scores_differ() -> None:
    task = tasks(1)[0]
    assert has_signal(group_of(task, 0, (0.0, 1.0), 0))
    assert not has_signal(group_of(task, 0, (1.0, 1.0), 0))
    assert not has_signal(msgspec.structs.replace(group_of(task, 0, (0.0, 1.0), 0), end=GroupEnd.FAILED))
