"""A scripted model server that is started as `vllm serve` is: `serve FOLDER --uds=PATH ...`; for bench/rl.py.

An episode has three turns; BENCH_MEDIAN_S is the median of what they take in all. Which of the episodes a request
belongs to, its seed says.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).parent.parent))  # the environment is the tests'
from tests.train.timed_env import lognormal, reply

from deskroll.models.scripted import Script, ScriptedServer, Trouble, VllmSettings

SIGMA = 1.0
KINDS = 1000
"""Episodes that there are: so many quantiles of the distribution."""
TURNS = 3
LATENCY = 0.05
"""How long an answer takes, in medians of an episode."""
RUNNING = 2
"""Requests that a server answers at a time."""
RELOAD = 0.05
"""How long it loads weights, in medians of an episode."""


def lengths(median_s: float) -> list[float]:
    """How long episodes last, each as likely as any other."""
    return [max(each, TURNS * LATENCY * median_s) for each in lognormal(median_s, SIGMA, KINDS)]


def replies(median_s: float) -> list[str]:
    """What is said in every turn of each of them; no two score the same, so that every group has a signal."""
    waits = [each / TURNS - LATENCY * median_s for each in lengths(median_s)]
    return [reply(each, n / (KINDS - 1)) for n, each in enumerate(waits)]


async def serve(folder: str, flags: dict[str, str], median_s: float) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    turn = {"text": "a fixed prompt has no seed", "by_seed": replies(median_s)}
    script = Script.parse({"latency": LATENCY * median_s, "replies": [{"turns": [turn]}]})
    settings = VllmSettings(
        name=flags["served-model-name"], weights=Path(folder), max_running=RUNNING,
        trouble=Trouble(reload_s=RELOAD * median_s),
    )  # fmt: skip
    async with ScriptedServer(script, listen=f"unix:{flags['uds']}", vllm=settings):
        await stop.wait()


if __name__ == "__main__":
    words = [word.removeprefix("--").partition("=") for word in sys.argv[3:]]
    uvloop.run(serve(sys.argv[2], {name: value for name, _, value in words}, float(os.environ["BENCH_MEDIAN_S"])))
