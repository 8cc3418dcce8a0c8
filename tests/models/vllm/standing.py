"""Servers of the stand-in program, for tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from deskroll.models.vllm.command import Place, ServerCommand, server_command
from deskroll.models.vllm.config import ModelPoolConfig
from deskroll.models.vllm.notes import ServerNotes
from deskroll.models.vllm.server import VLLMServer

STAND_IN = Path(__file__).with_name("stand_in.py")


def stand_in(folder: Path, fault: str = "", start_timeout: float = 60, notes: ServerNotes | None = None) -> VLLMServer:
    """A server that is not started yet."""
    config = ModelPoolConfig(
        ckpt_path=str(folder), vllm_command=(sys.executable, str(STAND_IN)), env={"STAND_IN": fault}
    )

    def make(place: Place) -> ServerCommand:
        return server_command(config, place, os.environ)

    return VLLMServer(notes or ServerNotes(), make, model=config.served_name, start_timeout=start_timeout)
