"""Real servers of tiny models, for tests."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from deskroll.models.vllm.command import Place, ServerCommand, server_command
from deskroll.models.vllm.config import ModelPoolConfig
from deskroll.models.vllm.notes import ServerNotes
from deskroll.models.vllm.server import VLLMServer
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
PARAMS = {"max_model_len": 1024, "max_num_seqs": 64, "dtype": "float32", "enforce_eager": True}
Case = tuple[list[int], list[int], float]
"""Ids of prompt and completion, and the temperature."""


def run_tiny(*words: str) -> str:
    """What tests/vllm/tiny.py prints."""
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [str(PYTHON), str(Path(__file__).with_name("tiny.py")), *words]
    ended = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def judge(scratch: Path, models: Sequence[Path], cases: Sequence[Case]) -> list[list[list[float]]]:
    """By a direct forward pass: the log-probabilities of each completion, for each model and case."""
    file = scratch / "judge.json"
    file.write_text(json.dumps({"models": [str(path) for path in models], "cases": cases}))
    found: list[list[list[float]]] = json.loads(run_tiny("judge", str(file)).splitlines()[-1])
    return found


def real_server(folder: Path, **fields: object) -> VLLMServer:
    """A server that is not started yet."""
    config = ModelPoolConfig(
        ckpt_path=str(folder),
        gpus="none",
        vllm_command=(str(PYTHON.with_name("vllm")),),
        vllm_params=PARAMS,
        env={"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"},
        **fields,  # type: ignore[arg-type]
    )

    def make(place: Place) -> ServerCommand:
        return server_command(config, place, os.environ)

    return VLLMServer(ServerNotes(), make, model=config.served_name, start_timeout=600)


async def ask(server: VLLMServer, words: str, *, tokens: int = 8, temperature: float = 1.0, model: str = "") -> Answer:
    """Ask for a completion of so many tokens; returns it with the server's log-probabilities."""
    body = {
        "model": model or server.model, "messages": [{"role": "user", "content": words}], "max_tokens": tokens,
        "temperature": temperature, "logprobs": True, "return_token_ids": True, "ignore_eos": True,
    }  # fmt: skip
    status, answer = await server.control.post("/v1/chat/completions", json=dict(body))
    assert status == 200, answer
    said = json.loads(answer)
    choice = said["choices"][0]
    logprobs = [each["logprob"] for each in choice["logprobs"]["content"]]
    return Answer((said["prompt_token_ids"], choice["token_ids"], temperature), logprobs)


class Answer:
    """What a server said: its tokens as a case for the judge, and its own log-probabilities."""

    def __init__(self, case: Case, logprobs: list[float]) -> None:
        self.case = case
        self.logprobs = logprobs

    def distance(self, judged: list[float]) -> float:
        assert len(judged) == len(self.logprobs)
        return max(abs(a - b) for a, b in zip(judged, self.logprobs, strict=True))


async def ask_many(server: VLLMServer, count: int, start: str, *, tokens: int = 8) -> list[Answer]:
    """Many at once."""
    return list(await asyncio.gather(*(ask(server, f"{start} {n}", tokens=tokens) for n in range(count))))


async def until_running(server: VLLMServer, count: int) -> None:
    """Wait until so many requests are being generated, some tokens of them at least."""

    async def are_running() -> bool:
        _, text = await server.control.get("/metrics")
        running = re.search(rb"vllm:num_requests_running\{[^}]*\} ([0-9.]+)", text)
        return running is not None and float(running[1]) >= count

    await eventually(are_running, f"{count} requests run")
