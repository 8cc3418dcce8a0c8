"""Family: all processes of one server, by its mark (`host/family.py`).

vLLM's EngineCore and workers outlive an API process that was killed, and hold its memory.
"""

from __future__ import annotations

from deskroll.errors import ModelError
from deskroll.host.family import end_marked, find_marked
from deskroll.models.vllm.command import MARK


def family(server_id: str) -> set[int]:
    """The processes of a server that are alive; never this one."""
    return find_marked(f"{MARK}={server_id}")


async def end_family(server_id: str) -> set[int]:
    """Kill all of it, and wait until it is gone and its memory free; returns what processes there were."""
    try:
        return await end_marked(f"{MARK}={server_id}")
    except TimeoutError as left:
        raise ModelError(f"model server {server_id}: processes {left} were killed and are still there") from None
