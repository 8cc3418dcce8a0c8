"""A program that is called as `vllm serve` is, and serves a scripted model: `[SCRIPT] serve FOLDER --uds=PATH ...`."""

import asyncio
import json
import signal
import sys
from pathlib import Path

from deskroll.models.scripted import Script, ScriptedServer, VllmSettings


def write_command(folder: Path, *answers: str) -> list[str]:
    """What it is called by (`vllm_command`), with a script in that folder: the seed of a request chooses the answer."""
    script = folder / "answers.json"
    turn = {"text": answers[0], "by_seed": answers}
    script.write_text(json.dumps({"latency": [0.01, 0.05], "replies": [{"turns": [turn]}]}))
    return [sys.executable, str(Path(__file__)), str(script)]


async def serve(script: Script, folder: str, flags: dict[str, str]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = VllmSettings(name=flags["served-model-name"], weights=Path(folder))
    async with ScriptedServer(script, listen=f"unix:{flags['uds']}", vllm=settings):
        await stop.wait()


if __name__ == "__main__":
    at = sys.argv.index("serve")
    words = [word.removeprefix("--").partition("=") for word in sys.argv[at + 2 :]]
    script = Script.load(Path(sys.argv[1])) if at > 1 else Script.replying("fine")
    asyncio.run(serve(script, sys.argv[at + 1], {name: value for name, _, value in words}))
