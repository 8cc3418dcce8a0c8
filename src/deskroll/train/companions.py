"""Companions: the files of a model that are no weights, which a trainer writes beside its own.

They are read once, when a model is opened: its folder may be gone later.
"""

from __future__ import annotations

from pathlib import Path

from deskroll.models.vllm.folder import files_beside


def read_companions(model: Path) -> dict[str, bytes]:
    """Of a model's folder, by name."""
    return {file.name: file.read_bytes() for file in files_beside(model)}
