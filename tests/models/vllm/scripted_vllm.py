"""A program that is called as `vllm serve` is, and serves a scripted model: `serve FOLDER --uds=PATH ...`."""

import asyncio
import signal
import sys
from pathlib import Path

from deskroll.models.scripted import Script, ScriptedServer, VllmSettings


async def serve(folder: str, flags: dict[str, str]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = VllmSettings(name=flags["served-model-name"], weights=Path(folder))
    async with ScriptedServer(Script.replying("fine"), listen=f"unix:{flags['uds']}", vllm=settings):
        await stop.wait()


if __name__ == "__main__":
    words = [word.removeprefix("--").partition("=") for word in sys.argv[3:]]
    asyncio.run(serve(sys.argv[2], {name: value for name, _, value in words}))
