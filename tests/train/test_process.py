"""A trainer in a process of its own: what crosses, what a death costs, and that nothing is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deskroll.errors import ConfigError, InputError, MissingDependency, TrainerError, Untrainable
from deskroll.host.owner import process_start
from deskroll.models.weights.checkpoint import CheckpointKind, check_same_tensors, read_checkpoint
from deskroll.models.weights.digest import tensors_digest
from deskroll.train.base import TrainBatch, TrainerContext, TrainSequence
from deskroll.train.environment import find_trainer_python
from deskroll.train.process import TrainerProcess
from tests.models.weights.files import sharded
from tests.train.trainers import make_batch, make_model, make_trainer, processes_of, save, save_state
from tests.waiting import eventually, wait_until

ODD = "tests.train.odd:Odd"


def digest(folder: Path) -> str:
    return tensors_digest(read_checkpoint(folder))


async def test_each_version_is_the_same_model_with_other_numbers(tmp_path: Path) -> None:
    model = make_model(tmp_path / "step_0")
    async with make_trainer(tmp_path) as trainer:
        await trainer.open(model, None)
        seen = [digest(await save(trainer, tmp_path / "same"))]
        assert seen == [digest(model)]
        for step in (1, 2):
            report = await trainer.step(make_batch(step))
            assert (report.tokens, report.sampled_tokens) == (8, 4)
            folder = await save(trainer, tmp_path / f"step_{step}")
            check_same_tensors(read_checkpoint(folder), read_checkpoint(model))
            assert (folder / "config.json").read_text() == "{}"
            seen.append(digest(folder))
    assert len(set(seen)) == 3


async def test_shards_stay_shards_and_adapters_are_written_by_rank(tmp_path: Path) -> None:
    model = sharded(tmp_path / "step_0")
    async with make_trainer(tmp_path) as trainer:
        await trainer.open(model, None)
        await trainer.step(make_batch(1))
        folder = await save(trainer, tmp_path / "step_1")
    check_same_tensors(read_checkpoint(folder), read_checkpoint(model))
    assert len(read_checkpoint(folder).files) == 3
    async with make_trainer(tmp_path, rank=4) as trainer:
        await trainer.open(model, None)
        await trainer.step(make_batch(1))
        adapter = await save(trainer, tmp_path / "adapter_1")
        assert read_checkpoint(adapter).kind is CheckpointKind.ADAPTER
        await trainer.open(adapter, await save_state(trainer, tmp_path / "state"))
        assert digest(await save(trainer, tmp_path / "again")) == digest(adapter)


async def test_a_batch_without_signal_changes_nothing(tmp_path: Path) -> None:
    model = make_model(tmp_path / "step_0")
    async with make_trainer(tmp_path) as trainer:
        await trainer.open(model, None)
        for batch in (make_batch(1, [0.0, 0.0]), TrainBatch(step=2, sequences=())):
            await trainer.step(batch)
        assert digest(await save(trainer, tmp_path / "step_2")) == digest(model)


async def test_a_killed_one_costs_the_step_and_goes_on_from_what_was_saved(tmp_path: Path) -> None:
    model = make_model(tmp_path / "step_0")
    memory = str(tmp_path / "memory")
    async with make_trainer(tmp_path, die_at=[2], fail_at=[3], memory=memory) as trainer:
        await trainer.open(model, None)
        await trainer.step(make_batch(1))
        saved, state = await save(trainer, tmp_path / "step_1"), await save_state(trainer, tmp_path / "state_1")
        with pytest.raises(TrainerError, match=r"scripted cannot take step 2: its process \d+ was ended by signal 9"):
            await trainer.step(make_batch(2))
        with pytest.raises(TrainerError, match="what it was asked last has failed; open it again"):
            await trainer.save(tmp_path / "nowhere")
        await trainer.open(saved, state)
        assert digest(await save(trainer, tmp_path / "again")) == digest(saved)
        await trainer.step(make_batch(2))
        with pytest.raises(TrainerError, match="step 3 fails, as it was told to"):
            await trainer.step(make_batch(3))
        await trainer.open(saved, state)
        await trainer.step(make_batch(3))
    assert processes_of(tmp_path) == set()


async def test_one_that_is_killed_from_outside_while_it_works(tmp_path: Path) -> None:
    async with make_trainer(tmp_path, seconds=600) as trainer:
        await trainer.open(make_model(tmp_path / "step_0"), None)
        working = asyncio.ensure_future(trainer.step(make_batch(1)))
        await asyncio.sleep(0)
        assert trainer.pid is not None
        os.kill(trainer.pid, signal.SIGKILL)
        with pytest.raises(TrainerError, match="was ended by signal 9"):
            await working


async def test_what_it_printed_last_is_in_the_error(tmp_path: Path) -> None:
    async with make_trainer(tmp_path, ODD, does="exit") as trainer:
        with pytest.raises(TrainerError, match=r"ended with code 1; the end of \S+trainer.log:\nit does not want to"):
            await trainer.open(tmp_path, None)


async def test_what_its_code_raises_is_told_with_where(tmp_path: Path) -> None:
    async with make_trainer(tmp_path, ODD, does="bug") as trainer:
        await trainer.open(tmp_path, None)
        with pytest.raises(TrainerError, match="cannot take step 1: ZeroDivisionError") as caught:
            await trainer.step(make_batch(1))
    assert "odd.py" in caught.value.trace
    assert "odd.py" in (tmp_path / "trainer.log").read_text()
    async with make_trainer(tmp_path, ODD, does="lacks") as lacking:
        with pytest.raises(MissingDependency, match="pip install boat"):
            await lacking.open(tmp_path, None)
    async with make_trainer(tmp_path, ODD, does="talk") as talking:
        await talking.open(tmp_path, None)
        with pytest.raises(TrainerError, match="ValueError: xxx") as said:
            await talking.step(make_batch(1))
    assert len(str(said.value)) < 100_000


async def test_that_trying_again_is_of_no_use_is_told_from_there(tmp_path: Path) -> None:
    async with make_trainer(tmp_path, ODD, does="refuse") as trainer:
        await trainer.open(tmp_path, None)
        with pytest.raises(Untrainable, match="cannot take step 1: the worst is token 3 of train/0/t/0#1"):
            await trainer.step(make_batch(1))


async def test_it_is_given_no_keys(tmp_path: Path) -> None:
    secrets = {"OPENAI_API_KEY": "s3cret1", "DESKROLL_TOKEN": "s3cret2", "AWS_SECRET_ACCESS_KEY": "s3cret3"}
    trainer = TrainerProcess(
        ODD,
        {"does": "environment"},
        TrainerContext(),
        log=tmp_path / "log",
        env={**os.environ, **secrets, "OMP_X": "7"},
    )
    async with trainer:
        await trainer.open(tmp_path, None)
        with pytest.raises(TrainerError, match="OMP_X=7") as told:
            await trainer.step(make_batch(1))
    assert "s3cret" not in str(told.value)


@pytest.mark.parametrize("how", ["close", "kill"])
async def test_nothing_that_it_started_is_left(tmp_path: Path, how: str) -> None:
    async with make_trainer(tmp_path, ODD, does="family") as trainer:
        await trainer.open(tmp_path, None)

        async def are_there() -> bool:  # what is being started has no environment for a moment
            return len(processes_of(tmp_path)) == 3

        await eventually(are_there, "it has started two others")
        if how == "kill" and trainer.pid is not None:
            os.kill(trainer.pid, signal.SIGKILL)
            with pytest.raises(TrainerError):
                await trainer.step(make_batch(1))
    assert processes_of(tmp_path) == set()


async def test_a_step_that_is_cancelled_ends_it(tmp_path: Path) -> None:
    async with make_trainer(tmp_path, ODD, does="hang") as trainer:
        await trainer.open(tmp_path, None)
        working = asyncio.ensure_future(trainer.step(make_batch(1)))

        async def hangs() -> bool:
            return "it hangs" in (tmp_path / "trainer.log").read_text()

        await eventually(hangs, "it hangs")
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert processes_of(tmp_path) == set()
        with pytest.raises(TrainerError, match="open it again"):
            await trainer.step(make_batch(1))


def test_a_run_that_is_killed_takes_it_along(tmp_path: Path) -> None:
    program = f"""
import asyncio, pathlib
from tests.train.trainers import make_trainer
async def main():
    async with make_trainer(pathlib.Path({str(tmp_path)!r}), {ODD!r}, does="family") as trainer:
        await trainer.open(pathlib.Path({str(tmp_path)!r}), None)
        print(trainer.pid, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=root) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        run.kill()
    wait_until(lambda: not process_start(pid), "the trainer is gone")
    wait_until(lambda: not processes_of(tmp_path), "what it started is gone")


def sequence(**fields: object) -> TrainSequence:
    given = {"name": "s", "token_ids": [1, 2], "logprobs": [0.0, -1.0], "weights": [0.0, 1.0], "advantage": 1.0}
    return TrainSequence(**{**given, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"logprobs": [0.0]}, "2 tokens, 1 log-probabilities and 2 weights"),
        ({"weights": [0.0, 1.0, 0.0]}, "2 tokens, 2 log-probabilities and 3 weights"),
        ({"logprobs": [0.0, float("nan")]}, "must be finite"),
        ({"advantage": float("inf")}, "must be finite"),
        ({"weights": [1.0, 1.0]}, "first token has a weight"),
        ({"weights": [0.0, -1.0]}, "negative"),
        ({"token_ids": [1, -2]}, "id -2 is negative"),
        ({"temperature": 0.0}, "temperature 0"),
    ],
)
async def test_a_batch_that_is_none_is_refused_with_the_sequence(
    tmp_path: Path, fields: dict[str, object], said: str
) -> None:
    async with make_trainer(tmp_path) as trainer:
        await trainer.open(make_model(tmp_path / "m"), None)
        with pytest.raises(Untrainable, match=f"step 1, bad: .*{said}"):
            await trainer.step(TrainBatch(step=1, sequences=(sequence(), sequence(name="bad", **fields))))


async def test_what_cannot_be_opened_or_started_is_said(tmp_path: Path) -> None:
    async with make_trainer(tmp_path) as trainer:
        with pytest.raises(TrainerError, match="holds no weights"):
            await trainer.open(tmp_path, None)
        with pytest.raises(TrainerError, match="is not there"):
            await trainer.open(tmp_path / "none", None)
    with pytest.raises(InputError, match="there is no trainer 'grpo'; known: grpo-local, scripted"):
        make_trainer(tmp_path, "grpo")
    with pytest.raises(ConfigError, match="options of trainer scripted: secnds: there is no such field"):
        make_trainer(tmp_path, secnds=1)
    with pytest.raises(ConfigError, match="trainer_python names /nowhere/python"):
        TrainerProcess("scripted", {}, TrainerContext(), log=tmp_path / "log", python="/nowhere/python")
    without = tmp_path / "without"
    without.write_text("#!/bin/sh\necho No module named deskroll >&2\nexit 1\n")
    without.chmod(0o755)
    async with TrainerProcess("scripted", {}, TrainerContext(), log=tmp_path / "log", python=str(without)) as other:
        with pytest.raises(TrainerError, match="No module named deskroll"):
            await other.open(tmp_path, None)


def test_the_python_of_vllm_is_found_beside_it(tmp_path: Path) -> None:
    for name in ("vllm", "python"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    links = tmp_path / "links"
    links.mkdir()
    (links / "vllm").symlink_to(tmp_path / "vllm")
    assert find_trainer_python("", {"PATH": str(links)}) == tmp_path / "python"
    (tmp_path / "python").unlink()
    with pytest.raises(MissingDependency, match="make vllm"):
        find_trainer_python("", {"PATH": str(links)})
