"""Adapters: low-rank adapters (LoRA) in one server, each version under a name of its own.

A request names the adapter that it wants, so it is pinned to a version without any pause. Never in place: after such a
reload vLLM reads the disk at every step.

Guarantees: an adapter that was loaded answers, otherwise than the one before it where their tensors differ; one that
does not is unloaded again.
"""

from __future__ import annotations

from collections.abc import Collection

from deskroll.errors import DeskrollError, ModelError
from deskroll.models.weights.checkpoint import Checkpoint
from deskroll.models.weights.proof import Control, Proof, ask_proof, said
from deskroll.models.weights.refresh import RefreshFailed, RefreshStep

KEPT = 2
"""Of the newest adapters so many stay loaded, also where nobody uses them."""


def adapter_name(served_name: str, version: int) -> str:
    """What a version is called in requests."""
    return f"{served_name}@{version}"


async def load_adapter(server: Control, checkpoint: Checkpoint, served_name: str, *, unlike: Proof | None) -> Proof:
    """Load a version, and see that it answers; `unlike`: what the one before it said, where its tensors are others."""
    name = adapter_name(served_name, checkpoint.version)
    body = {"lora_name": name, "lora_path": str(checkpoint.path)}
    # Nothing that serves is changed by a load that fails.
    status, answer = await server.post("/v1/load_lora_adapter", json=dict(body))
    if status != 200:
        raise RefreshFailed(f"{name}: /v1/load_lora_adapter answered {status}: {said(answer)}", RefreshStep.BEFORE)
    try:
        proof = await ask_proof(server, name)
        if unlike is not None and proof.distance(unlike) == 0:
            raise ModelError("it answers the fixed prompt exactly as the one before it, though its tensors are others")
    except (DeskrollError, OSError) as error:
        await unload_adapter(server, name)
        raise RefreshFailed(f"{name}: {error}", RefreshStep.BEFORE) from error
    return proof


async def unload_adapter(server: Control, name: str) -> None:
    """Take an adapter out of a server; that it is not there is no failure."""
    status, answer = await server.post("/v1/unload_lora_adapter", json={"lora_name": name})
    if status not in (200, 404):
        raise ModelError(f"{name}: /v1/unload_lora_adapter answered {status}: {said(answer)}")


def adapters_to_unload(loaded: Collection[int], used: Collection[int]) -> list[int]:
    """Versions that nobody uses any more, all but the newest; pure."""
    newest = sorted(loaded)[-KEPT:]
    return sorted(version for version in loaded if version not in newest and version not in used)
