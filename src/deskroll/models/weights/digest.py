"""Digest: whether two checkpoints hold the same numbers, however they are cut into files."""

from __future__ import annotations

import hashlib
import os

from deskroll.models.weights.checkpoint import Checkpoint, shown
from deskroll.models.weights.header import open_regular
from deskroll.models.weights.refusal import CheckpointRefused, Refusal

_CHUNK = 1 << 22


def tensors_digest(checkpoint: Checkpoint) -> str:
    """A digest of all tensors, by name, kind, shape and content. Reads all of them: call it in a thread."""
    whole = hashlib.blake2b(digest_size=16)
    files = {name: open_regular(checkpoint.path / name) for name in checkpoint.files}
    try:
        for name, tensor in sorted(checkpoint.tensors.items()):
            whole.update(f"{len(name)} {name} {tensor.dtype} {tensor.shape}".encode())
            at = tensor.begin
            while at < tensor.end:
                data = os.pread(files[tensor.file], min(_CHUNK, tensor.end - at), at)
                if not data:
                    where = checkpoint.path / tensor.file
                    what = f"tensor {name}: {shown(where)} has become shorter while it was read"
                    raise CheckpointRefused(Refusal.TRUNCATED, what, file=str(where), tensor=name)
                whole.update(data)
                at += len(data)
    finally:
        for file in files.values():
            os.close(file)
    return whole.hexdigest()
