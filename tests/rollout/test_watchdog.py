"""Nothing stalls in silence: a stage far beyond its usual time is dumped and reported, and in the end stopped."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from pathlib import Path

import aiohttp
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from deskroll.errors import DeskrollError, SetupError
from deskroll.events import AttemptEnded
from deskroll.rollout.asking import ask, change_limits, find_live, stop_run
from deskroll.rollout.backends import WorkerStatus
from deskroll.rollout.config import WatchdogSettings
from deskroll.rollout.control import Steering, serve_control
from deskroll.rollout.live_attempt import LiveAttempt
from deskroll.rollout.orders import Activity, Order
from deskroll.rollout.spec import EpisodeSpec
from deskroll.rollout.watchdog import Watchdog
from deskroll.types import Episode, EpisodeKey, Stage, StopReason
from tests.rollout.conftest import ANSWER, CALCULATE, Runs, questions, script, until

KEY = EpisodeKey(phase="eval", round=0, task="t", sample=0)


class Recorder:
    """A backend that does nothing but say what it was told."""

    def __init__(self, *activities: Activity) -> None:
        self.activities = activities
        self.dumped: list[str] = []
        self.stopped: list[DeskrollError | None] = []
        self.visits: list[int | None] = []

    def workers(self) -> list[WorkerStatus]:
        raise NotImplementedError

    def dump(self, key: EpisodeKey, attempt: int, why: str) -> None:
        self.dumped.append(why)

    def stop(self, key: EpisodeKey, attempt: int, error: DeskrollError | None, visit: int | None = None) -> None:
        self.stopped.append(error)
        self.visits.append(visit)

    def look(self, watchdog: Watchdog, seconds: float) -> None:
        """Have the worker say that all of it has taken so long, and the watchdog look."""
        self.activities = tuple(msgspec.structs.replace(each, seconds=seconds) for each in self.activities)
        watchdog.look()

    async def run(self, order: object) -> Episode:
        raise NotImplementedError


def activity(stage: Stage, visit: int = 7, desktop: str = "d-1") -> Activity:
    # Since when it is at it by the wall's clock decides nothing.
    return Activity(key=KEY, attempt=1, stage=stage, since=-1e9, visit=visit, desktop=desktop)


def watching(*activities: Activity) -> tuple[Watchdog, Recorder]:
    backend = Recorder(*activities)
    watchdog = Watchdog(backend, WatchdogSettings(), lambda: backend.activities)
    watchdog.expect("eval", EpisodeSpec())
    return watchdog, backend


def test_a_stalled_phase_is_dumped_once(caplog: pytest.LogCaptureFixture) -> None:
    watchdog, backend = watching(activity(Stage.MODEL))
    caplog.set_level(logging.WARNING, "deskroll")
    backend.look(watchdog, 50.0)
    assert backend.dumped == []
    for seconds in (61.0, 63.0, 100.0):
        backend.look(watchdog, seconds)
    assert backend.dumped == ["model has taken 61 s"]
    assert "eval/0/t/0#1 on desktop d-1 is stalled" in caplog.text
    backend.activities = (activity(Stage.MODEL, visit=9),)
    backend.look(watchdog, 70.0)
    assert len(backend.dumped) == 2, "the next turn is another matter"


def test_what_is_usual_is_not_stalled() -> None:
    watchdog, backend = watching(activity(Stage.SETUP))
    for _ in range(10):
        watchdog.usual.learn(AttemptEnded(key=KEY, attempt=1, stop=StopReason.DONE, score=1.0, seconds={"setup": 20.0}))
    backend.look(watchdog, 150.0)
    assert backend.dumped == []
    backend.look(watchdog, 210.0)
    assert backend.dumped == ["setup has taken 210 s; usual: 20.0 s"]


@pytest.mark.parametrize(
    ("stage", "after", "blamed"),
    [
        (Stage.ACT, 301, "desktop"),
        (Stage.SETTLE, 301, "desktop"),
        (Stage.SETUP, 631, "setup"),
        (Stage.SCORE, 631, "evaluator"),
        (Stage.MODEL, 1681, "model"),
    ],
)
def test_beyond_its_cap_a_phase_is_stopped_as_a_failure_of_whoever_did_not_answer(
    stage: Stage, after: float, blamed: str
) -> None:
    watchdog, backend = watching(activity(stage))
    backend.look(watchdog, after - 3)
    assert backend.stopped == []
    backend.look(watchdog, after)
    (error,) = backend.stopped
    assert backend.visits == [7], "what has gone on meanwhile is not meant"
    assert error is not None
    assert error.failure == blamed
    assert "stopped by the watchdog" in str(error)


def test_no_desktop_is_blamed_where_there_is_none() -> None:
    watchdog, backend = watching(activity(Stage.ACT, desktop=""))
    backend.look(watchdog, 301.0)
    (error,) = backend.stopped
    assert error is not None
    assert error.failure == "env"


def test_waiting_for_a_desktop_is_no_stall() -> None:
    watchdog, backend = watching(activity(Stage.DESKTOP))
    backend.look(watchdog, 1e6)
    assert (backend.dumped, backend.stopped) == ([], [])


def test_what_was_said_before_a_sleep_is_not_extrapolated() -> None:
    """The coordinator may have slept: however late it looks, a stage has taken what its worker said last."""
    watchdog, backend = watching(activity(Stage.ACT))
    backend.look(watchdog, 3.0)
    for _ in range(3):
        watchdog.look()
    assert (backend.dumped, backend.stopped) == ([], [])


async def test_a_stop_that_is_meant_for_one_phase_does_not_hit_the_next() -> None:
    live = LiveAttempt(Order(key=KEY, attempt=1, task=questions(1)[0]))
    live.enter(Stage.ACT)
    before = live.visit
    live.enter(Stage.MODEL)
    live.stop(SetupError("too long"), before)
    assert not live.cancelled
    live.stop(SetupError("too long"), live.visit)
    assert live.cancelled


@pytest.mark.parametrize("backend", ["inline", "process"])
async def test_a_step_that_never_ends_is_dumped_and_its_episode_made_again(runs: Runs, backend: str) -> None:
    (episode,) = await runs.run(
        script(CALCULATE, ANSWER), questions(1, fails="slow step"), env="tests.rollout.parts:FailingEnv",
        backend=backend, watchdog={"stalled_after": 0.5, "act_timeout": 12.0}, retries={"env": 0},
    )  # fmt: skip
    assert episode.failure is not None
    assert (episode.failure.failure_class, episode.failure.kind) == ("env", "EnvError")
    assert "stopped by the watchdog" in episode.failure.message
    attempt = runs.read().attempt(episode.key, episode.attempt)
    (dump,) = [name for name in attempt.files() if name.startswith("stalled-act")]
    assert "parts.py" in attempt.read(dump).decode(), "the stack says where it stood"


async def test_a_live_run_answers_from_elsewhere(runs: Runs) -> None:
    async with runs.open(script(ANSWER, latency=3600.0), questions(6), num_rollouts=2) as session:
        work = asyncio.create_task(session.run())
        await until(lambda: len(session.engine.running) == 2, "two run")
        socket = await find_live(session.folder)
        status = await ask(socket)
        assert (status.in_flight, status.standing.planned, status.num_rollouts) == (2, 6, 2)
        assert {each.stage for each in status.activities} <= set(Stage)
        assert (await change_limits(socket, 4)).num_rollouts == 4
        await until(lambda: len(session.engine.running) == 4, "two more run")
        assert oct(socket.stat().st_mode & 0o777) == "0o600"
        metrics = await _get(socket, "/metrics")
        families = {family.name: family for family in text_string_to_metric_families(metrics)}
        assert families["deskroll_episodes_planned"].samples[0].value == 6
        assert families["deskroll_rollouts_limit"].samples[0].value == 4
        assert (await stop_run(socket, now=True)).stopping
        await work
    assert not socket.exists()


@pytest.mark.parametrize("token", [b"sesame", b"s\xe9same\xff"], ids=["text", "no UTF-8"])
async def test_a_token_that_is_no_text_is_right_or_wrong_like_any_other(
    token: bytes, runs: Runs, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    monkeypatch.setenv("DESKROLL_TOKEN", os.fsdecode(token))

    async def status_of(given: bytes) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", unused_tcp_port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\n\r\n" % given)
        head = await reader.readline()
        writer.close()
        return int(head.split()[1])

    async with runs.open(script(ANSWER), questions(1), metrics=f"127.0.0.1:{unused_tcp_port}"):
        assert await status_of(token) == 200
        assert [await status_of(each) for each in (b"\xff\xfe", b"s\xc3\x28", b"sesam\xe9", b"")] == [401] * 4


async def test_metrics_on_tcp_want_the_token(runs: Runs, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int) -> None:
    monkeypatch.setenv("DESKROLL_TOKEN", "sesame")
    at = f"127.0.0.1:{unused_tcp_port}"
    async with runs.open(script(ANSWER), questions(1), metrics=at) as session, aiohttp.ClientSession() as http:
        await session.run()
        async with http.get(f"http://{at}/metrics") as response:
            assert response.status == 401
        async with http.get(f"http://{at}/metrics", headers={"Authorization": "Bearer sesame"}) as response:
            assert "deskroll_episodes_done 1.0" in await response.text()
        async with http.get(f"http://{at}/status", headers={"Authorization": "Bearer sesame"}) as response:
            assert response.status == 404, "only metrics leave this machine"


async def test_a_bad_request_is_answered_and_changes_nothing(runs: Runs) -> None:
    async with runs.open(script(ANSWER), questions(1)) as session:
        socket = await find_live(session.folder)
        for body in (b"{", b'{"num_rollouts": 0}', b'{"nonsense": 1}'):
            connector = aiohttp.UnixConnector(str(socket))
            async with (
                aiohttp.ClientSession(connector=connector) as http,
                http.post("http://run/limits", data=body) as response,
            ):
                assert response.status == 400
                assert "error" in msgspec.json.decode(await response.read())
        await session.run()


async def test_opening_the_socket_changes_nothing_for_whoever_makes_files_meanwhile(tmp_path: Path) -> None:
    steering = Steering(status=lambda: None, change=lambda *_: None, stop=lambda _: None, follow=None)  # type: ignore[arg-type, return-value]
    modes = set()

    async def others() -> None:
        for n in itertools.count():
            folder = tmp_path / str(n)
            folder.mkdir()
            modes.add(folder.stat().st_mode)
            await asyncio.sleep(0)

    (tmp_path / "usual").mkdir()
    work = asyncio.create_task(others())
    for n in range(20):
        async with serve_control(steering, f"run-{n}") as path:
            assert oct(Path(path).stat().st_mode & 0o777) == "0o600"
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    assert modes == {(tmp_path / "usual").stat().st_mode}


async def _get(socket: Path, path: str) -> str:
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as http,
        http.get(f"http://run{path}") as response,
    ):
        return await response.text()
