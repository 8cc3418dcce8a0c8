"""grpo-local: its loss and gradients beside a plain reference, what it refuses, what it saves, and how it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deskroll.errors import TrainerError, Untrainable
from deskroll.models.weights.checkpoint import CheckpointKind, check_same_tensors, read_checkpoint
from deskroll.models.weights.digest import tensors_digest
from deskroll.train.base import TrainBatch, TrainerContext, TrainSequence
from deskroll.train.process import TrainerProcess
from tests.contract.test_contract import suite
from tests.train.trainers import save, save_state
from tests.train.vllm.there import PYTHON, run_there
from tests.waiting import PATIENCE_S

CLOSE = 1e-4
CASES = (
    "one token", "several sequences", "several turns and masks", "weights of tokens", "temperature",
    "truncated weights", "penalty on KL", "entropy", "substeps", "clipped both ways", "clipped gradient",
    "micro-batches", "one at a time", "pictures", "pictures, with all", "adapter", "adapter, with all",
    "adapter of one with eyes", "embeddings shared, coarse",
)  # fmt: skip
pytestmark = pytest.mark.timeout(900)  # torch alone takes half a minute to import beside other work
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    run_there("small.py", str(folder))
    return folder


@pytest.fixture(scope="module")
def apart(models: Path) -> dict[str, dict[str, Any]]:
    """How far each case is from the reference."""
    found: dict[str, dict[str, Any]] = json.loads(run_there("cases.py", str(models)).splitlines()[-1])
    return found


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradients_are_those_of_the_reference(apart: dict[str, dict[str, Any]], name: str) -> None:
    assert set(apart) == set(CASES)
    figures = {key: value for key, value in apart[name].items() if key not in ("kinds", "weights")}
    assert {"loss", "gradients", "kl", "entropy", "norm", "clipped"} == set(figures)
    assert max(figures.values()) < CLOSE, figures
    assert apart[name]["weights"] < 0.01, "of a learning rate"


def test_the_cases_hold_every_kind_of_token(apart: dict[str, dict[str, Any]]) -> None:
    kinds = {kind for case in apart.values() for kind in case["kinds"]}
    places = ("above", "below", "inside")
    assert kinds == {"cut weight", *(f"{where} {how}" for where in places for how in ("good", "bad"))}


def make(
    tmp_path: Path, *, rank: int = 0, start: Path | None = None, kl: float = 0.0, **options: Any
) -> TrainerProcess:
    context = TrainerContext(learning_rate=1e-2, lora_rank=rank, start=str(start or ""), kl_penalty_coef=kl)
    return TrainerProcess(
        "grpo-local", {"threads": 1, **options}, context, log=tmp_path / "trainer.log", python=str(PYTHON)
    )  # fmt: skip


def say(name: str = "s", **fields: Any) -> TrainSequence:
    given = {
        "token_ids": [7, 8, 9, 10], "logprobs": [0, 0, -3.0, -3.0], "weights": [0, 0, 0.5, 0.5], "advantage": 1.0,
    }  # fmt: skip
    return TrainSequence(name=name, **{**given, **fields})


def batch(step: int, *sequences: TrainSequence) -> TrainBatch:
    return TrainBatch(step=step, sequences=sequences)


@pytest.mark.parametrize(
    ("model", "sequence", "said"),
    [
        ("text", {"token_ids": [7, 8, 32, 10]}, "token 2 has id 32, and the model knows 32"),
        ("text", {"images": ("0.png",)}, "1 pictures, and its tokens hold 0 runs .*; this model sees no pictures"),
        ("vision", {"images": ("0.png",)}, "1 pictures, and its tokens hold 0 runs"),
        ("vision", {"token_ids": [7, 1, 9, 10]}, "0 pictures, and its tokens hold 1 runs"),
        ("vision", {"token_ids": [1, 8, 1, 10], "images": ("0.png",)}, "1 pictures, and its tokens hold 2 runs"),
        ("vision", {"token_ids": [1, 1, 9, 10], "images": ("0.png",)}, "0.png comes to 4 .* hold 2 of them"),
        ("vision", {"token_ids": [1, 8, 9, 10], "images": ("none.png",)}, "none.png cannot be read"),
        ("text", {"versions": (0,)}, "version 0 differ by .*; the worst is token [23] of bad, id (9|10): the server"),
        ("text", {"token_ids": [7] * 600, "logprobs": [-3.0] * 600, "weights": [0] + [1] * 599}, "512 is the most"),
    ],
)  # fmt: skip
async def test_what_cannot_be_of_this_model_is_refused(
    models: Path, tmp_path: Path, model: str, sequence: dict[str, Any], said: str
) -> None:
    images = tuple(str(models / name) for name in sequence.get("images", ()))
    async with make(tmp_path) as trainer:
        await trainer.open(models / model, None)
        with pytest.raises(Untrainable, match=said):
            await trainer.step(batch(1, say(), say("bad", **{**sequence, "images": images})))


async def test_a_picture_that_cannot_be_read_now_may_be_another_time(models: Path, tmp_path: Path) -> None:
    none, folder = models / "vision/config.json", models / "vision"
    async with make(tmp_path) as trainer:
        for file, kind in ((none, Untrainable), (folder, TrainerError)):
            await trainer.open(models / "vision", None)
            bad = say("bad", token_ids=[1, 8, 9, 10], images=(str(file),))
            with pytest.raises(TrainerError, match=f"{file} cannot be read") as told:
                await trainer.step(batch(1, say(), bad))
            assert type(told.value) is kind


async def test_what_cannot_be_opened_is_refused(models: Path, tmp_path: Path) -> None:
    async with make(tmp_path, rank=4) as trainer:
        await trainer.open(models / "text", None)
        await trainer.step(batch(1, say()))
        adapter = await save(trainer, tmp_path / "adapter")
        with pytest.raises(TrainerError, match="holds an adapter, and a whole model is needed"):
            await trainer.open(adapter, None)
        with pytest.raises(TrainerError, match="holds no weights"):
            await trainer.open(tmp_path, None)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "model.safetensors").write_bytes((models / "text" / "model.safetensors").read_bytes())
    async with make(tmp_path) as other:
        with pytest.raises(TrainerError, match="cannot be loaded"):
            await other.open(broken, None)


@pytest.mark.parametrize("model", ["text", "tied", "vision"])
async def test_what_it_saves_is_the_same_model_with_other_numbers(models: Path, tmp_path: Path, model: str) -> None:
    start = models / model
    async with make(tmp_path, kl=0.5, entropy_coef=0.5) as trainer:
        await trainer.open(start, None)
        report = await trainer.step(batch(1, say(advantage=0.0), say(advantage=0.0)))
        assert (report.loss, report.gradient_norm, report.tokens) == (0.0, 0.0, 8)
        same = read_checkpoint(await save(trainer, tmp_path / "same"))
        assert tensors_digest(same) == tensors_digest(read_checkpoint(start))
        await trainer.step(batch(2, say(), say(advantage=-1.0, token_ids=[7, 8, 11, 12])))
        changed = read_checkpoint(await save(trainer, tmp_path / "changed"))
    check_same_tensors(changed, read_checkpoint(start))
    assert tensors_digest(changed) != tensors_digest(same)
    names = {file.name for file in start.iterdir()}
    assert {file.name for file in changed.path.iterdir()} == names


async def test_its_log_probabilities_are_those_of_a_direct_pass(models: Path, tmp_path: Path) -> None:
    """Of an answer of `models ask --local`, with and without a picture, with an adapter and without."""
    picture = str(models / "1.png")
    async with make(tmp_path, rank=4) as trainer:
        await trainer.open(models / "text", None)
        await trainer.step(batch(1, say()))
        adapter = await save(trainer, tmp_path / "adapter")
    for folder, rank, images in ((models / "text", 0, ()), (adapter, 4, ()), (models / "vision", 0, (picture,))):
        said = ask(folder, *(part for each in images for part in ("--image", each)))
        prompt, reply = said["prompt_token_ids"], said["token_ids"]
        sequence = say(
            token_ids=prompt + reply, logprobs=[0.0] * len(prompt) + said["logprobs"], temperature=0.7,
            weights=[0.0] * len(prompt) + [1.0] * len(reply), versions=(4,), images=images,
        )  # fmt: skip
        async with make(tmp_path, rank=rank, start=models / "text" if rank else None) as trainer:
            await trainer.open(folder, None)
            report = await trainer.step(batch(5, sequence))
            assert report.logprob_gap is not None
            assert report.logprob_gap < 1e-5


def ask(folder: Path, *more: str) -> dict[str, Any]:
    settings = [part for each in ("temperature=0.7", "max_tokens=12", "seed=5") for part in ("--set", each)]
    command = ["models", "ask", "say abc", "--local", str(folder), "--trainer-python", str(PYTHON), "--json"]
    ended = subprocess.run(
        [sys.executable, "-m", "deskroll", *command, *settings, *more], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


async def test_one_that_is_killed_goes_on_from_what_it_saved(models: Path, tmp_path: Path) -> None:
    async with make(tmp_path, rank=4, start=models / "text") as trainer:
        await trainer.open(models / "text", None)
        await trainer.step(batch(1, say()))
        saved, state = await save(trainer, tmp_path / "step_1"), await save_state(trainer, tmp_path / "state_1")
        assert read_checkpoint(saved).kind is CheckpointKind.ADAPTER
        assert trainer.pid is not None
        os.kill(trainer.pid, signal.SIGKILL)
        with pytest.raises(TrainerError, match="signal 9"):
            await trainer.step(batch(2, say()))
        await trainer.open(saved, state)
        await trainer.step(batch(2, say()))


@pytest.mark.parametrize(("model", "checks"), [("text", "trainer or plugin"), ("tied", "goes_on")])
def test_it_keeps_the_contract(models: Path, model: str, checks: str) -> None:
    more = (
        "--plugin-options", json.dumps({"threads": 1}), "--plugin-checkpoint", str(models / model),
        "-o", f"timeout={10 * PATIENCE_S}", "-k", checks,
    )  # fmt: skip
    code, said = suite("trainer", "grpo-local", more=more, env={"PATH": f"{PYTHON.parent}:{os.environ['PATH']}"})
    assert code == 0, said
