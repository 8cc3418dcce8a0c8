"""A program that stands in for `vllm serve`: a scripted model with vLLM's endpoints, in a process of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

_SERVER = """
import asyncio, signal, sys
from pathlib import Path
from deskroll.models.scripted import Script, ScriptedServer, VllmSettings

async def serve(folder, flags):
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = VllmSettings(name=flags["served-model-name"], weights=Path(folder))
    script = Script.load(Path(__file__).with_suffix(".json"))
    async with ScriptedServer(script, listen=f"unix:{flags['uds']}", vllm=settings):
        await stop.wait()

words = [word.removeprefix("--").partition("=") for word in sys.argv[3:]]
asyncio.run(serve(sys.argv[2], {name: value for name, _, value in words}))
"""


def write_vllm(folder: Path, *answers: str) -> list[str]:
    """Write it into a folder; the words of `vllm_command`. The seed of a request chooses one of the answers."""
    program = folder / "server.py"
    program.write_text(_SERVER)
    turn = {"text": answers[0], "by_seed": answers}
    program.with_suffix(".json").write_text(json.dumps({"latency": [0.01, 0.05], "replies": [{"turns": [turn]}]}))
    return [sys.executable, str(program)]
