"""Starts real servers for a pool: `vllm serve` as its settings say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deskroll.models.vllm.command import Place, ServerCommand, find_vllm, server_command
from deskroll.models.vllm.config import ModelPoolConfig
from deskroll.models.vllm.folder import complete_folder
from deskroll.models.vllm.notes import ServerNotes
from deskroll.models.vllm.replica import Starter
from deskroll.models.vllm.server import VLLMServer


def vllm_starter(config: ModelPoolConfig, env: Mapping[str, str], gpus: int) -> Starter:
    """Makes servers; raises at once where there is no vLLM. `gpus`: how many this machine has."""
    find_vllm(config.vllm_command, env)
    notes = ServerNotes()

    def make(number: int, folder: Path) -> VLLMServer:
        def command(place: Place) -> ServerCommand:
            model = place.scratch.with_name("model")
            return server_command(config, place, env, complete_folder(folder, Path(config.ckpt_path), model))

        return VLLMServer(
            notes, command, model=config.served_name, start_timeout=config.start_timeout, number=number,
            gpu=config.gpu(number, gpus),
        )  # fmt: skip

    return make
