"""Whoever follows a live run has what happens in it, in order, from every process; a slow one hears what it missed."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Never

import msgspec
import pytest

from deskroll.errors import InputError
from deskroll.events import (
    AttemptEnded,
    AttemptRetried,
    AttemptStarted,
    BatchPlanned,
    DesktopBooted,
    DesktopState,
    EndpointSilent,
    EpisodeSealed,
    Event,
    EventsSkipped,
    GroupBegun,
    GroupEnded,
    JobEnded,
    JobStarted,
    LeaseGranted,
    LimitsChanged,
    ModelAnswered,
    RunClosed,
    RunOpened,
    RunStopping,
    StageEntered,
    WorkerDied,
    WorkerLogged,
    WorkerStarted,
)
from deskroll.rollout.asking import change_limits, find_live, follow_events
from deskroll.rollout.control import Steering, serve_control
from deskroll.rollout.events.batch import EventBatch
from deskroll.rollout.events.hub import EventHub
from deskroll.rollout.session import Session
from deskroll.types import GroupEnd, Stage
from tests.rollout.conftest import ANSWER, CALCULATE, CLICK, DONE, INFEASIBLE, Runs, questions, script, until

DESKTOPS = {
    "env": "osworld", "provider": "sim", "provider_options": {"boot": "0.02", "reset": "0.02", "step": "0"},
    "num_vms": 2, "num_rollouts": 2,
}  # fmt: skip


class Follower:
    """Follows a run from another end of its socket."""

    def __init__(self, session: Session, last: int = 1000) -> None:
        self.events: list[Event] = []
        self._task = asyncio.create_task(self._read(session.folder, last))

    async def _read(self, folder: str, last: int) -> None:
        async for line in follow_events(await find_live(folder), last):
            self.events.append(msgspec.json.decode(line, type=Event))

    async def all(self) -> list[Event]:
        """What it has heard once the run is closed."""
        await asyncio.wait_for(self._task, 60)
        return self.events

    def of(self, *kinds: type) -> list:
        return [each for each in self.events if isinstance(each, kinds)]


@pytest.mark.parametrize("backend", ["inline", "process"])
async def test_desktops_stages_and_outcomes_arrive_in_order(runs: Runs, backend: str) -> None:
    tasks = questions(3, evaluator=INFEASIBLE)
    async with runs.open(script(CLICK, DONE), tasks, backend=backend, workers=2, **DESKTOPS) as session:
        follower = Follower(session)
        episodes = await session.run()
    heard = await follower.all()
    assert isinstance(heard[0], RunOpened)
    assert isinstance(heard[-1], RunClosed)
    (planned,) = follower.of(BatchPlanned)
    assert (planned.phase, planned.episodes, planned.done) == ("eval", 3, 0)
    assert (len(follower.of(JobStarted)), len(follower.of(JobEnded))) == (1, 1)
    booted = {each.desktop for each in follower.of(DesktopBooted)}
    states = [each for each in follower.of(DesktopState) if each.desktop in booted]
    for desktop in booted:
        assert [each.state for each in states if each.desktop == desktop][:3] == ["booting", "checking", "ready"]
    assert {each.desktop for each in follower.of(LeaseGranted)} <= booted
    assert len(follower.of(ModelAnswered)) == 6
    assert {each.session for each in follower.of(ModelAnswered)} == {f"eval/0/task-{n}/0" for n in range(3)}
    for episode in episodes:
        own = [each for each in heard if getattr(each, "key", None) == episode.key]
        assert isinstance(own[0], AttemptStarted)
        assert isinstance(own[-2], AttemptEnded)
        assert isinstance(own[-1], EpisodeSealed)
        entered = [each for each in own if isinstance(each, StageEntered)]
        assert [each.visit for each in entered] == list(range(1, len(entered) + 1))
        turn = [Stage.MODEL, Stage.ACT, Stage.STORE]
        assert [each.stage for each in entered] == [Stage.DESKTOP, Stage.SETUP, *turn, *turn, Stage.SCORE, Stage.STORE]
        assert {each.desktop for each in entered[1:]} == {episode.desktop}


async def test_whoever_stops_following_is_no_error(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    left = asyncio.Event()

    async def talk(last: int) -> AsyncGenerator[bytes]:
        try:
            while True:
                yield b"x" * 4096 + b"\n"
        finally:
            left.set()

    def refuse(*args: object) -> Never:
        raise InputError("nobody asks for it here")

    steering = Steering(status=refuse, change=refuse, stop=refuse, follow=talk)
    async with serve_control(steering, "one") as path:
        async with aclosing(follow_events(Path(path))) as lines:
            await anext(lines)
        await asyncio.wait_for(left.wait(), 60)
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []


async def test_a_retry_is_told_with_its_reason(runs: Runs) -> None:
    settings = {"backend": "process", "workers": 1, "retries": {"setup": 1, "backoff": 0.01}}
    tasks = questions(1, fails="setup")
    async with runs.open(script(ANSWER), tasks, env="tests.rollout.parts:FailingEnv", **settings) as session:
        follower = Follower(session)
        await session.run()
    await follower.all()
    (retried,) = follower.of(AttemptRetried)
    assert (retried.attempt, retried.failure) == (1, "setup")
    assert "the file is not there" in retried.reason
    assert [each.attempt for each in follower.of(AttemptStarted)] == [1, 2]


async def test_a_model_server_that_goes_silent_is_told(runs: Runs) -> None:
    async with runs.open(
        script(ANSWER, latency=3600.0), questions(2), backend="process", workers=1, watchdog={"notice_after": 0.2}
    ) as session:
        follower = Follower(session)
        work = asyncio.create_task(session.run())
        await until(lambda: follower.of(EndpointSilent), "the silence is heard of")
        (silent,) = follower.of(EndpointSilent)
        assert silent.endpoint.startswith("http://127.0.0.1:")
        assert silent.silent_s >= 0.2
        assert silent.worker in {each.worker for each in follower.of(WorkerStarted)}
        session.stop(now=True)
        await work
    await follower.all()
    assert [each.now for each in follower.of(RunStopping)] == [True]


async def test_groups_limits_and_lost_workers_are_told(runs: Runs) -> None:
    async with runs.open(
        script(ANSWER, latency=3600.0), questions(1), backend="process", workers=1, group_size=2
    ) as session:
        follower = Follower(session)
        work = asyncio.create_task(session.run())
        await change_limits(await find_live(session.folder), 7)
        await until(lambda: len(follower.of(StageEntered)) >= 2, "both are under way")
        (worker,) = session.engine.backend._handles
        worker.kill("a test wants it gone")
        await until(lambda: follower.of(WorkerDied), "its death is heard of")
        session.stop(now=True)
        await work
    await follower.all()
    (died,) = follower.of(WorkerDied)
    assert (died.worker, died.attempts) == (worker.pid, 2)
    assert "a test wants it gone" in died.reason
    assert [each.num_rollouts for each in follower.of(LimitsChanged)] == [7]
    assert [each.task for each in follower.of(GroupBegun)] == ["task-0"]
    assert [each.end for each in follower.of(GroupEnded)] == [GroupEnd.STOPPED]


async def test_who_comes_late_has_the_last_ones_first(runs: Runs) -> None:
    async with runs.open(script(ANSWER), questions(5)) as session:
        await session.run()
        before = session.runtime.hub.follow(3)
        lines = (await anext(before)).splitlines()
        assert len(lines) == 3
        assert json.loads(lines[-1])["kind"] == "job.ended"
        await before.aclose()
        everything = await anext(session.runtime.hub.follow(10**9))
        assert json.loads(everything.splitlines()[0])["kind"] == "run.opened"


async def test_a_number_that_is_none_is_refused(runs: Runs) -> None:
    import aiohttp  # noqa: PLC0415

    async with runs.open(script(ANSWER), questions(1)) as session:
        connector = aiohttp.UnixConnector(str(await find_live(session.folder)))
        async with aiohttp.ClientSession(connector=connector) as http, http.get("http://run/events?last=x") as answer:
            assert answer.status == 400
            assert "number of events" in await answer.text()


async def test_whoever_does_not_read_holds_up_nobody(runs: Runs) -> None:
    async with runs.open(script(CALCULATE, ANSWER), questions(30)) as session:
        reader, writer = await asyncio.open_unix_connection(str(await find_live(session.folder)), limit=1024)
        writer.write(b"GET /events?last=0 HTTP/1.1\r\nHost: run\r\n\r\n")
        await writer.drain()
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        episodes = await session.run()
    assert [each.score.value for each in episodes] == [1.0] * 30
    writer.close()


async def test_who_is_slower_than_the_ring_is_told_how_many_it_missed() -> None:
    async with EventHub(str, ring=4000) as hub:
        lines = hub.follow()
        first = asyncio.create_task(anext(lines))
        await asyncio.sleep(0)
        hub.emit(JobEnded(phase="first", round=0))
        assert b"first" in await first
        for n in range(200):
            hub.emit(JobEnded(phase="many", round=n))
            hub._flush()
        hub.end_following()
        rest = [
            msgspec.json.decode(line, type=Event) for part in [p async for p in lines] for line in part.splitlines()
        ]
    skipped, *others = rest
    assert isinstance(skipped, EventsSkipped)
    assert skipped.count + len(others) == 200
    assert 0 < len(others) < 100
    assert [each.round for each in others] == list(range(skipped.count, 200)), "what is left is the newest"


async def test_a_listener_that_fails_hurts_neither_who_reports_nor_the_others(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Event] = []

    def fail(event: JobEnded) -> None:
        raise RuntimeError("a listener's bug")

    async with EventHub(str) as hub:
        hub.on(JobEnded, fail)
        hub.on(JobEnded, heard.append)
        hub.emit(JobEnded(phase="a", round=0))
        hub.emit(JobEnded(phase="b", round=0))
        assert len((await anext(hub.follow(9))).splitlines()) == 2
    assert len(heard) == 2
    assert caplog.text.count("RuntimeError: a listener's bug") == 1, "which is told once"


async def test_a_text_that_is_no_unicode_loses_no_other_event() -> None:
    async with EventHub(str) as hub:
        hub.emit(JobEnded(phase="a", round=0))
        hub.emit(JobEnded(phase="\ud800", round=0))
        kinds = [json.loads(line)["kind"] for line in (await anext(hub.follow(9))).splitlines()]
    assert kinds == ["job.ended", "job.ended"]


async def test_what_other_threads_tell_is_handed_over_too() -> None:
    sent: list[Event] = []
    batch = EventBatch(sent.extend)

    def tell() -> None:
        batch.emit(WorkerLogged(worker=1, logger="l", level=logging.WARNING, reason="from a thread"))

    thread = threading.Thread(target=tell)
    thread.start()
    thread.join()
    await until(lambda: sent, "it is handed over")


async def test_a_run_without_events_is_a_run_all_the_same(runs: Runs) -> None:
    async with runs.open(
        script(ANSWER), questions(2), backend="process", workers=1, events={"enabled": False}
    ) as session:
        episodes = await session.run()
        assert session.status().standing.done == 2
    assert len(episodes) == 2
    assert "events.jsonl" not in runs.read().storage.list()


def test_no_such_run(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        asyncio.run(find_live(str(tmp_path)))
