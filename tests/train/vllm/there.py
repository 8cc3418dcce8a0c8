"""Programs that are run with the Python of .venv-vllm, which has torch."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-vllm" / "bin" / "python"


def run_there(program: str, *words: str) -> str:
    """What a program of this folder prints."""
    if not PYTHON.exists():
        pytest.skip("there is no .venv-vllm: run make vllm")
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [str(PYTHON), str(Path(__file__).with_name(program)), *words]
    ended = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
