"""Real servers of tiny models, for tests: pools of them, what they said, and who judges that."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deskroll.models.base import ModelCall
from deskroll.models.messages import Message
from deskroll.models.vllm.config import ModelPoolConfig
from deskroll.models.vllm.pool import ModelServicePool
from deskroll.types import Completion, Sampling

HERE = Path(__file__).parent
PYTHON = HERE.parents[1] / ".venv-vllm" / "bin" / "python"
PARAMS = {"max_model_len": 2048, "max_num_seqs": 64, "dtype": "float32", "enforce_eager": True}
ENV = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
CLOSE = 0.01
FAR = 0.1
TELLING = 5
"""Weights that differ are further apart than that for some token of every answer of so many tokens, or more."""
START_S = 900.0
"""For a server to come back beside other work."""
IMAGE_TOKEN = 99
"""The placeholder of the tiny tokenizer."""


def run_there(program: str, *words: str) -> str:
    """What a program of this folder prints, run with vLLM's Python."""
    if not PYTHON.exists():
        pytest.skip("there is no .venv-vllm: run make vllm")
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [str(PYTHON), str(HERE / program), *words], capture_output=True, text=True, env=env, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def make_models(kind: str, folder: Path, *versions: int) -> Path:
    """Write models (text, vision) or adapters to DIR/step_VERSION, whole; returns DIR."""
    run_there("tiny.py", kind, str(folder), *map(str, versions))
    for version in versions:
        (folder / f"step_{version}" / "READY").touch()
    return folder


def real_config(folder: Path, **fields: Any) -> ModelPoolConfig:
    """A pool of one server on CPUs."""
    given = {
        "ckpt_path": str(folder), "gpus": "none", "vllm_command": [str(PYTHON.with_name("vllm"))],
        "vllm_params": PARAMS, "env": ENV,
        "start_timeout": START_S, **fields,
    }  # fmt: skip
    return ModelPoolConfig.model_validate(given)


def real_pool(folder: Path, told: list[str], **fields: Any) -> ModelServicePool:
    """The same, not started yet."""
    return ModelServicePool(real_config(folder, **fields), tell=told.append)


@dataclass
class Said:
    """An answer, with what was asked."""

    completion: Completion
    temperature: float
    pictures: tuple[Path, ...] = ()
    messages: list[dict[str, Any]] = field(default_factory=list)
    """As the judge reads them."""

    @property
    def ids(self) -> tuple[int, ...]:
        return self.completion.token_ids or ()

    @property
    def case(self) -> list[Any]:
        return [self.completion.prompt_token_ids, self.ids, self.temperature, [str(each) for each in self.pictures]]

    def distance(self, judged: Sequence[float]) -> float:
        """Of its log-probabilities from the judge's, at the worst token."""
        logprobs = self.completion.logprobs or ()
        return max(abs(said - right) for said, right in zip(logprobs, judged, strict=True))


class Judged:
    """What direct forward passes say: of each model, and of each case."""

    def __init__(self, scratch: Path, models: Sequence[str | Path], said: Sequence[Said]) -> None:
        """A model may be `BASE+ADAPTER`."""
        file = scratch / "judge.json"
        asked = {
            "models": [str(each) for each in models],
            "cases": [each.case for each in said],
            "conversations": [each.messages for each in said if each.messages],
        }
        file.write_text(json.dumps(asked))
        found = json.loads(run_there("judge.py", str(file)).splitlines()[-1])
        self.logprobs: list[list[list[float]]] = found["logprobs"]
        self.best: list[list[list[int]]] = found["best"]
        self.prompts: list[list[int]] = found["prompts"]

    def check_versions(self, said: Sequence[Said], models: Sequence[int]) -> float:
        """Every answer is of the version that it says, and of no other; returns the worst distance from its own."""
        worst = 0.0
        for n, each in enumerate(said):
            distances = {model: each.distance(self.logprobs[place][n]) for place, model in enumerate(models)}
            own = distances.pop(int(each.completion.version))
            assert own < CLOSE, (each.completion.version, own, distances)
            if len(each.ids) >= TELLING:
                assert min(distances.values()) > FAR, (each.completion.version, own, distances)
            worst = max(worst, own)
        return worst


async def ask(
    pool: ModelServicePool, words: str, *, picture: Path | None = None, tokens: int = 12, temperature: float = 1.0
) -> Said:
    """One question; the answer has so many tokens, or fewer."""
    images = [(picture.name, picture.read_bytes())] if picture else []
    call = ModelCall(sampling=sampling(tokens, temperature))
    completion = await pool.generate([Message.user(words, images).sent], call=call)
    return Said(completion, temperature, (picture,) if picture else ())


def sampling(tokens: int, temperature: float) -> Sampling:
    return Sampling(temperature=temperature, max_tokens=tokens, logprobs=True, token_ids=True)


def write_pictures(folder: Path, count: int) -> list[Path]:
    """Pictures of different sizes and contents, which come to different numbers of placeholders."""
    program = (
        "import sys; from PIL import Image, ImageDraw\n"
        "for n in range(int(sys.argv[2])):\n"
        "    image = Image.new('RGB', (60 + 70 * n, 90 + 20 * n), ('navy', 'white', 'green')[n % 3])\n"
        "    ImageDraw.Draw(image).rectangle((5 * n, 9, 30 + 9 * n, 60), fill=('orange', 'red')[n % 2])\n"
        "    image.save(f'{sys.argv[1]}/{n}.png')\n"
    )
    subprocess.run([str(PYTHON), "-c", program, str(folder), str(count)], check=True)
    return [folder / f"{n}.png" for n in range(count)]


def data_url(picture: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode()
