"""Where else the numbers of a training run go; whatever becomes of them there, the run goes on."""

from __future__ import annotations

import importlib.util
import struct
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from deskroll.errors import MissingDependency
from deskroll.events import EvaluationEnded
from deskroll.rollout.events import EventHub
from deskroll.store import RunInfo
from deskroll.train.config import CLIConfig
from deskroll.train.trackers import Tracked, tracked_run, trackers_of
from deskroll.train.trackers.tracking import Tracking, numbers_of_evaluation
from tests.rollout.events.test_training import step

RUN = Tracked(name="run", id="1", folder="", step=0, settings={})
EVALUATED = EvaluationEnded(phase="eval", round=5, episodes=4, scored=4, successes=1, mean_score=0.5, seconds=2.0)


class Heard:
    """A tracker that keeps what it is told, and fails when told so."""

    def __init__(self, fails_in: str = "") -> None:
        self.fails_in = fails_in
        self.told: list[tuple[int, Mapping[str, float]]] = []
        self.opened: Tracked | None = None
        self.closed = False

    def open(self, run: Tracked) -> None:
        self._fail("open")
        self.opened = run

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._fail("log")
        self.told.append((step, values))

    def close(self) -> None:
        self.closed = True
        self._fail("close")

    def _fail(self, where: str) -> None:
        if self.fails_in == where:
            raise RuntimeError(f"no room\x1bin {where}")


async def track(*trackers: Heard, close_s: float = 60) -> None:
    async with (
        EventHub(str) as hub,
        Tracking({f"tracker {n}": each for n, each in enumerate(trackers)}, hub, RUN, close_s=close_s),
    ):
        hub.emit(step(5, 0.4, no_signal=3, measures={"loss": 0.25}))
        hub.emit(EVALUATED)
        hub.emit(step(6, 0.6))


async def test_steps_and_evaluations_are_told_in_their_order() -> None:
    one, other = Heard(), Heard()
    await track(one, other)
    assert (one.opened, one.closed) == (RUN, True)
    assert one.told == other.told
    assert [at for at, _ in one.told] == [5, 5, 6]
    first, evaluation, _ = (values for _, values in one.told)
    assert first["train/reward"] == 0.4
    assert first["train/loss"] == 0.25
    assert (first["lag/max"], first["groups/no_signal"], first["seconds/train"]) == (2, 3, 2.0)
    assert evaluation == {"eval/scored": 4, "eval/seconds": 2.0, "eval/mean_score": 0.5, "eval/success": 0.25}


def test_an_evaluation_without_scores_has_no_mean() -> None:
    nothing = EvaluationEnded(phase="baseline", round=0, episodes=4, scored=0, successes=0)
    assert numbers_of_evaluation(nothing) == {"baseline/scored": 0, "baseline/seconds": 0}


@pytest.mark.parametrize("where", ["open", "log", "close"])
async def test_one_that_fails_is_told_once_and_the_others_go_on(where: str, caplog: pytest.LogCaptureFixture) -> None:
    good = Heard()
    await track(Heard(where), good)
    assert len(good.told) == 3
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        f"numbers of this run are missing in tracker 0: RuntimeError: no room in {where}; the run goes on"
    ]  # fmt: skip


async def test_one_that_hangs_holds_up_nobody(caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()

    class Hanging(Heard):
        def open(self, run: Tracked) -> None:
            release.wait(60)

    await track(Hanging(), close_s=0.05)
    release.set()
    assert "it did not take the last numbers in time" in caplog.text


def settings(**fields: object) -> CLIConfig:
    return CLIConfig.model_validate({"model_name": "m", **fields})


def test_nothing_is_tracked_unless_it_is_asked_for() -> None:
    assert trackers_of(settings()) == {}


def test_secrets_are_not_tracked() -> None:
    config = settings(run={"model": {"api_key": "sk-secret-1"}}, env_options={"password": "sk-secret-2"})
    run = tracked_run(RunInfo(run_id="r", created_at=1.0), "folder", config, 3)
    assert "sk-secret" not in str(run)
    assert run.settings["model_name"] == "m"
    assert run.id == tracked_run(RunInfo(run_id="r", created_at=1.0), "elsewhere", config, 9).id
    assert run.id != tracked_run(RunInfo(run_id="r", created_at=2.0), "folder", config, 3).id


def test_a_name_without_a_project_is_refused() -> None:
    with pytest.raises(ValueError, match="set wandb_project, too"):
        settings(wandb_name="first")


@pytest.mark.skipif(importlib.util.find_spec("wandb") is not None, reason="wandb is installed")
def test_a_library_that_is_not_there_is_named() -> None:
    with pytest.raises(MissingDependency, match=r"pip install 'deskroll\[wandb\]'"):
        trackers_of(settings(wandb_project="p"))


def scalars(folder: Path) -> list[tuple[int, str, float]]:
    """What event files hold: records of a length, its checksum, data, and the checksum of these."""
    proto = pytest.importorskip("tensorboardX.proto.event_pb2")
    found = []
    for file in sorted(folder.iterdir()):
        data, place = file.read_bytes(), 0
        while place < len(data):
            (size,) = struct.unpack_from("<Q", data, place)
            event = proto.Event.FromString(data[place + 12 : place + 12 + size])
            found += [(event.step, each.tag, each.simple_value) for each in event.summary.value if "/" in each.tag]
            place += size + 16
    return found


async def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    trackers = trackers_of(settings(tensorboard=str(tmp_path / "tb")))
    async with EventHub(str) as hub, Tracking(trackers, hub, RUN):
        hub.emit(step(5, 0.5))
        hub.emit(EVALUATED)
    found = {(at, name): value for at, name, value in scalars(tmp_path / "tb")}
    assert found[5, "train/reward"] == 0.5
    assert found[5, "eval/mean_score"] == 0.5


async def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = Tracked(name="run", id="1", folder=str(tmp_path), step=0, settings={"steps": 3})
    async with EventHub(str) as hub, Tracking(trackers_of(settings(wandb_project="p")), hub, run):
        hub.emit(step(5, 0.5))
    assert list(tmp_path.glob("wandb/offline-run-*-1/run-1.wandb"))
