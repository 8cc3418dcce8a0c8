"""The folder that a server is started on: weights, and beside them configuration, tokenizer and processor.

A trainer may write weights alone. What is missing beside them is taken from the model that the pool was told to serve:
a folder is made of links to both, for vLLM looks for each of these files beside the weights.
"""

from __future__ import annotations

from pathlib import Path

from deskroll.errors import ModelError
from deskroll.models.weights.look import MARKERS

_WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf")


def complete_folder(weights: Path, model: Path, place: Path) -> Path:
    """`weights` itself where nothing is missing there that `model` has; else `place`, which is made.

    Raises `ModelError` where one of them is gone.
    """
    try:
        missing = [file for file in files_beside(model) if not (weights / file.name).exists()]
        if not missing:
            return weights
        place.mkdir(mode=0o700)
        for file in (*weights.iterdir(), *missing):
            (place / file.name).symlink_to(file.absolute())
    except OSError as error:
        raise ModelError(f"no server can be started on {weights}: {error.strerror}: {error.filename}") from error
    return place


def files_beside(model: Path) -> list[Path]:
    """The files of a model that are no weights: configuration, tokenizer, processor, template."""
    files = (file for file in model.iterdir() if file.is_file() and file.name not in MARKERS)
    return sorted(file for file in files if not file.name.endswith(_WEIGHTS) and not file.name.startswith("."))
