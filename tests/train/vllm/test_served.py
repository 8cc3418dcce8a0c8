"""grpo-local and a real vLLM: what each step saves is served, and both compute the same log-probabilities for it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from deskroll.train.base import TrainBatch, TrainerContext, TrainSequence
from deskroll.train.process import TrainerProcess
from tests.train.trainers import save
from tests.vllm.real import CLOSE, PARAMS, PYTHON, Said, ask, make_models, real_pool, write_pictures

STEPS = 4
pytestmark = pytest.mark.timeout(1800)


def sequence(said: Said, number: int) -> TrainSequence:
    """Of an answer; every other one was good."""
    completion = said.completion
    prompt, reply = list(completion.prompt_token_ids or ()), list(said.ids)
    return TrainSequence(
        name=f"train/0/t/{number}#1, step 0", token_ids=prompt + reply,
        logprobs=[0.0] * len(prompt) + list(completion.logprobs or ()),
        weights=[0.0] * len(prompt) + [1 / len(reply)] * len(reply), advantage=(1.0, -1.0)[number % 2],
        temperature=said.temperature, versions=(int(completion.version or 0),), images=tuple(map(str, said.pictures)),
    )  # fmt: skip


@pytest.mark.parametrize(("kind", "rank"), [("text", 0), ("text", 8), ("vision", 8)])
async def test_server_and_trainer_agree_on_every_version(tmp_path: Path, kind: str, rank: int) -> None:
    start = make_models(kind, tmp_path / "start", 0) / "step_0"
    pictures = write_pictures(tmp_path, 2) if kind == "vision" else []
    context = TrainerContext(learning_rate=1e-2, lora_rank=rank, start=str(start))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    trainer = TrainerProcess("grpo-local", {"threads": 1}, context, log=tmp_path / "trainer.log", python=str(PYTHON))
    params = {**PARAMS, **({"max_lora_rank": 8} if rank else {})}
    told: list[str] = []
    async with trainer, real_pool(start, told, enable_lora=rank > 0, vllm_params=params) as pool:
        await asyncio.gather(trainer.open(start, None), pool.ready())
        gaps = []
        for step in range(1, STEPS + 1):
            asked = [
                ask(pool, f"say {n}", picture=pictures[n % 2] if pictures else None, temperature=(1.0, 0.7)[n % 2])
                for n in range(8)
            ]
            said = await asyncio.gather(*asked)
            assert {int(each.completion.version or 0) for each in said} == {step - 1}
            sequences = tuple(sequence(each, n) for n, each in enumerate(said) if each.ids)
            report = await trainer.step(TrainBatch(step=step, sequences=sequences))
            assert report.logprob_gap is not None
            gaps.append(report.logprob_gap)
            folder = await save(trainer, tmp_path / "weights" / f"step_{step}")
            (folder / "READY").touch()
            await pool.reload(folder)
    print(f"{kind}, rank {rank}: gaps {gaps}")
    assert max(gaps) < CLOSE
