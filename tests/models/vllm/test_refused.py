"""Weights that a pool does not take: each is told once and by name, and the old ones go on under whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from deskroll.models.router.roster import EndpointState
from deskroll.models.weights.refusal import CheckpointRefused
from tests.models.vllm.askers import Askers, fits
from tests.models.vllm.scripted_pool import ScriptedServers, scripted_pool
from tests.models.weights.files import TENSORS, one_file, open_folder, powerless, sharded

SERVED = "4"
LAST_SHARD = "model-00003-of-00003.safetensors"


@pytest.fixture
def source() -> Iterator[Path]:
    with open_folder() as folder:
        one_file(folder / f"step_{SERVED}", fill=0.5, marker="READY")
        yield folder


def marked(folder: Path) -> Path:
    (folder / "READY").touch()
    return folder


def half_written(source: Path) -> Path:
    return marked(sharded(source / "step_5", leave_out=LAST_SHARD))


def truncated(source: Path) -> Path:
    folder = one_file(source / "step_5", marker="READY")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-40])
    return folder


def without_tensor(source: Path) -> Path:
    shapes = {name: shape for name, shape in TENSORS.items() if name != "norm"}
    return one_file(source / "step_5", marker="READY", shapes=shapes)


def other_shape(source: Path) -> Path:
    return one_file(source / "step_5", marker="READY", shapes={**TENSORS, "norm": (9,)})


def renamed(source: Path) -> Path:
    return one_file(source / "step_5", marker="READY").rename(source / "step_5_backup")


def gone_back(source: Path) -> Path:
    return one_file(source / "step_3", fill=0.25, marker="READY")


def marker_alone(source: Path) -> Path:
    folder = source / "step_5"
    folder.mkdir()
    return marked(folder)


def forbidden(source: Path) -> Path:
    folder = one_file(source / "step_5", marker="READY")
    (folder / "model.safetensors").chmod(0)
    return folder


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (half_written, f"step_5/{LAST_SHARD} is not there"),
        (truncated, "tensor layer.weight: {source}/step_5/model.safetensors has"),
        (without_tensor, "tensor norm: is missing in {source}/step_5"),
        (other_shape, "tensor norm: it is [9] in {source}/step_5/model.safetensors, and [8] in what is served"),
        (renamed, "step_5_backup holds weights, and its name does not end in a version"),
        (gone_back, f"version 3 is not above {SERVED}, which is served"),
        (marker_alone, "step_5 holds no weights"),
        (forbidden, "step_5/model.safetensors cannot be read: Permission denied"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
async def test_what_is_wrong_with_weights_is_told_once_while_the_old_ones_answer(
    source: Path, tmp_path_factory: pytest.TempPathFactory, write: Callable[[Path], Path], said: str
) -> None:
    servers, told = ScriptedServers(tmp_path_factory.mktemp("s"), latency=0.01), list[str]()
    base = source / f"step_{SERVED}"
    weights = {"source": str(source), "poll": 3600}
    async with scripted_pool(servers, base, told, replicas=2, weights=weights) as pool:
        await pool.ready()
        assert not (await pool.load_latest_model()).changed
        askers = Askers(pool, 32)
        await askers.more(32)
        wrong = write(source)
        for _ in range(3):
            with powerless() if write is forbidden else nullcontext():
                assert not (await pool.load_latest_model()).changed
            await askers.more(8)
        if write not in (gone_back, renamed):  # to which somebody may well go by hand
            with powerless() if write is forbidden else nullcontext(), pytest.raises(CheckpointRefused) as caught:
                await pool.reload(wrong)
            assert str(caught.value) in told[0]
        await askers.more(32)
        await askers.stop()
        assert [view.state for view in pool.endpoints()] == [EndpointState.UP] * 2
        refused = pool.checkpoint_info().refused
    assert len(told) == 1, told
    assert said.format(source=source) in told[0]
    assert refused in told[0]
    assert {answer.version for answer in askers.answers} == {SERVED}
    assert all(fits(base, answer) for answer in askers.answers)
    assert not any("/pause" in command for each in servers.started for command in each.scripted.commands)
    assert len(servers.started) == 2, "no server was touched"
