"""Asks a model in a folder, without a server: in the environment of trainers, one prompt, one answer."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from deskroll.errors import TrainerError
from deskroll.train.child_handle import ChildHandle
from deskroll.train.environment import find_trainer_python
from deskroll.train.process import error_of
from deskroll.train.wire import Ask, Failed, encode
from deskroll.types import Completion, Sampling


async def ask_local(
    folder: Path, text: str, images: Sequence[Path], sampling: Sampling, *, python: str = ""
) -> Completion:
    """What the model says; token ids and log-probabilities included. `python`: `trainer_python`."""
    question = Ask(
        folder=str(folder.absolute()), text=text, images=tuple(str(each.absolute()) for each in images),
        sampling=sampling,
    )  # fmt: skip
    found = find_trainer_python(python, os.environ)
    with tempfile.TemporaryDirectory(prefix="deskroll-ask-") as scratch:
        child = await ChildHandle.start(found, os.environ, Path(scratch, "log"))
        try:
            answer = await child.ask(encode(question))
        finally:
            await asyncio.shield(child.end())
    if isinstance(answer, Failed):
        raise error_of(answer, f"{folder} cannot be asked")
    if answer.completion is None:
        raise TrainerError(f"{folder} cannot be asked: {found} says nothing; is its deskroll this one?")
    return answer.completion
