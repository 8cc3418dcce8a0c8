"""Companions: the files of a model that are no weights: configuration, tokenizer, processor, template.

A trainer writes them beside its weights. They are read once, when a model is opened: its folder may be gone later.
"""

from __future__ import annotations

from pathlib import Path

from deskroll.models.weights.look import MARKERS

_WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf")


def read_companions(model: Path) -> dict[str, bytes]:
    """Of a model's folder."""
    files = (file for file in sorted(model.iterdir()) if file.is_file() and file.name not in MARKERS)
    return {
        file.name: file.read_bytes()
        for file in files
        if not file.name.endswith(_WEIGHTS) and not file.name.startswith(".")
    }
