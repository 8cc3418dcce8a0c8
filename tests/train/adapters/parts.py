"""A tokenizer small enough to be made on the spot, simulated desktops behind a pool of the test's own, and tasks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from deskroll.desktops.pool import Pool, PoolConfig
from deskroll.desktops.pool.slot import State
from deskroll.desktops.providers import make_provider
from deskroll.desktops.service import PoolService
from deskroll.host.listen import Listen
from deskroll.rollout.config import RunConfig
from deskroll.rollout.loading import load_run
from deskroll.types import Task
from tests.waiting import eventually

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FAST = {"boot": "0.01", "reset": "0.01", "step": "0"}


def make_tokenizer(folder: Path) -> Path:
    """A tokenizer of single bytes, with the marks of turns that Qwen has."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(letters)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=TEMPLATE
    )
    wrapped.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]})
    wrapped.save_pretrained(str(folder))
    return folder


def write_tasks(folder: Path, number: int) -> Path:
    """Tasks that are done right by saying that they cannot be done."""
    path = folder / "tasks.jsonl"
    lines = [
        {"id": f"t{n}", "instruction": f"task {n}", "evaluator": {"func": "infeasible"}, "domain": "odd"}
        for n in range(number)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def write_config(folder: Path, **settings: Any) -> tuple[Path, RunConfig, list[Task]]:
    """A file of settings, and what is read from it."""
    path = folder / "desk.yaml"
    given = {
        "env": "osworld", "agent": "prompt", "env_options": {"observation_type": "a11y_tree"},
        "tasks": str(folder / "tasks.jsonl"), "output_dir": str(folder / "results"), "num_rollouts": 32,
        "limits": {"max_turns": 6}, **settings,
    }  # fmt: skip
    path.write_text(yaml.safe_dump(given))
    return path, *load_run(path, [])


@asynccontextmanager
async def sims(folder: Path, desktops: int = 8, **options: str) -> AsyncIterator[tuple[str, Pool]]:
    """A pool of simulated desktops, and where it answers."""
    at = f"unix:{folder / 'pool'}"
    pool = Pool(make_provider("sim", {**FAST, **options}), PoolConfig(num_vms=desktops))
    async with pool, PoolService(pool, Listen.parse(at)):
        yield at, pool


async def leased(pool: Pool) -> int:
    """How many desktops somebody has."""
    return (await pool.status()).states[State.LEASED]


async def until_none_is_leased(pool: Pool) -> None:
    """Wait for that."""

    async def none() -> bool:
        return not await leased(pool)

    await eventually(none, "all desktops are back")
