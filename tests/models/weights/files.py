"""Folders with weights, as a trainer writes them, right or wrong; the format is written by hand."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

TENSORS = {"embed": (4, 8), "layer.weight": (8, 8), "norm": (8,)}


def safetensors(shapes: Mapping[str, tuple[int, ...]] = TENSORS, fill: float = 0.5, dtype: str = "F32") -> bytes:
    """A whole file, all numbers of which are `fill`."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, shape in shapes.items():
        count = 1
        for size in shape:
            count *= size
        code = {"F32": "f", "F16": "e"}[dtype]
        part = struct.pack(f"<{count}{code}", *[fill] * count)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    return raw(header, data)


def raw(header: object, data: bytes) -> bytes:
    """A file with any header."""
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def one_file(folder: Path, fill: float = 0.5, *, marker: str = "", **fields: object) -> Path:
    """A folder with all in one file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(safetensors(fill=fill, **fields))  # type: ignore[arg-type]
    if marker:
        (folder / marker).touch()
    return folder


def sharded(folder: Path, fill: float = 0.5, *, leave_out: str = "") -> Path:
    """A folder with a file for each tensor, and the index of them."""
    folder.mkdir(parents=True, exist_ok=True)
    index = {name: f"model-{n:05}-of-00003.safetensors" for n, name in enumerate(TENSORS, 1)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    for name, file in index.items():
        if file != leave_out:
            (folder / file).write_bytes(safetensors({name: TENSORS[name]}, fill))
    return folder


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that all can reach."""
    with tempfile.TemporaryDirectory(prefix="deskroll-weights-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def powerless() -> Iterator[None]:
    """Where the tests are root's, who may read everything: somebody else for the length of the block."""
    mine = os.geteuid()
    if mine == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(mine)
