"""Environment: the Python that a trainer runs in, and what of this process's environment it is given."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from deskroll.errors import ConfigError, MissingDependency
from deskroll.models.vllm.command import find_vllm
from deskroll.rollout.redaction import is_secret

MARK = "DESKROLL_TRAINER"
"""The variable that every process of a trainer has; its value is the trainer's id."""


def find_trainer_python(python: str, env: Mapping[str, str]) -> Path:
    """The Python that is named; without a name, that of vLLM, which `make vllm` gives all that trainers need."""
    if python:
        found = shutil.which(python, path=env.get("PATH", ""))
        if found is None:
            raise ConfigError(f"trainer_python names {python}, which is no program that can be run; check the path")
        return Path(found).absolute()
    try:
        (vllm,) = find_vllm((), env)
    except MissingDependency:
        vllm = ""
    beside = Path(vllm).resolve().with_name("python")
    if not vllm or not beside.exists():
        raise MissingDependency(
            "there is no Python with torch, transformers and peft: run `make vllm` in a checkout of deskroll, or name "
            "one that has them, and deskroll, with trainer_python"
        )
    return beside


def trainer_environment(env: Mapping[str, str], trainer_id: str) -> dict[str, str]:
    """An environment without keys, tokens and passwords, with the mark of a trainer."""
    kept = {name: value for name, value in env.items() if not is_secret(name)}
    return {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", **kept, MARK: trainer_id}
