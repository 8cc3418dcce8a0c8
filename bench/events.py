"""What events cost, and how soon they arrive: the engine's own benchmark with events on, beside the same with them off.

    python bench/events.py [--quick]

10,000 episodes of 5 turns, 64 in flight, against the server of bench/engine.py, with worker processes, journal, attempt
folders and events.jsonl on a disk; the same with `events.enabled=false`: workers tell nothing, and nothing is kept.
Each is run twice, in the order off, on, on, off, so that what drifts cancels out. CPU is user and system time of all
processes of a run, the server left out. With `--quick` 600 episodes, three times each.

arrival_*: one more run, whose events are followed over its control socket: how long after each of them happened it is
in the hands of whoever follows.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path

import msgspec

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from common import Figures, median, options, percentile
from deskroll.events import Event, StageEntered
from deskroll.rollout.asking import find_live, follow_events
from deskroll.rollout.openfiles import raise_open_files
from documented_rollout import Job
from engine import Case, Measured, Scratch, Server, job_of, measure, ours
from engine_server import TURNS

FULL = Case("c64", 64, 10_000, 0)
QUICK = Case("c64", 64, 600, 0)
FOLLOWED = Case("c64", 64, 200, 0)


def main() -> None:
    quick = options(__doc__).quick
    case, order = (QUICK, ("off", "on") * 3) if quick else (FULL, ("off", "on", "on", "off"))
    figures = Figures("events")
    found: dict[str, list[Measured]] = {"off": [], "on": []}
    with Server() as server, Scratch() as scratch:
        for name in order:
            job = job_of(server.url, case, case.episodes, scratch.folder())
            measured = measure(server, job, ["-c", f"import events; events.run_{name}()"])
            found[name].append(measured)
            print(
                f"  events {name:<3} {case.episodes:>6} episodes: {measured.cpu_ms * TURNS:6.3f} ms CPU an episode, "
                f"{measured.episodes_per_s:6.1f} episodes/s; others {measured.others:.0%}",
                flush=True,
            )
        delays = asyncio.run(follow(job_of(server.url, FOLLOWED, FOLLOWED.episodes, scratch.folder())))
    on, off = (median([each.cpu_ms for each in found[name]]) * TURNS for name in ("on", "off"))
    figures.add("cpu_ms_per_episode_on", on, f"{case.episodes} episodes of {TURNS} turns, {case.in_flight} in flight")
    figures.add("cpu_ms_per_episode_off", off)
    figures.add("events_cpu_overhead", on / off - 1, "of the CPU without events")
    note = f"{len(delays)} events of {FOLLOWED.episodes} episodes, from the worker to the follower"
    figures.add("arrival_p50_ms", percentile(delays, 0.5) * 1e3, note)
    figures.add("arrival_p99_ms", percentile(delays, 0.99) * 1e3)
    figures.add("arrival_max_ms", max(delays) * 1e3)
    figures.finish()


def run_on() -> None:
    """What a contender's process does."""
    _run(enabled=True)


def run_off() -> None:
    """The same without events."""
    _run(enabled=False)


def _run(*, enabled: bool) -> None:
    raise_open_files()
    asyncio.run(ours(Job.from_json(sys.argv[1]), settings={"events": {"enabled": enabled}}))


async def follow(job: Job) -> list[float]:
    """How long each event of a run took to its follower; the stages of episodes are told by workers."""
    delays: list[float] = []
    following: list[asyncio.Task[None]] = []
    decoder = msgspec.json.Decoder(Event)

    async def read() -> None:
        async for line in follow_events(await find_live(f"{job.folder}/run")):
            now, event = time.time(), decoder.decode(line)
            if isinstance(event, StageEntered):
                delays.append(now - event.at)

    await ours(job, begin=lambda: following.append(asyncio.create_task(read())), end=lambda _: None)
    await asyncio.gather(*following)
    return delays


if __name__ == "__main__":
    # Whoever ends this process by a signal wants the `with` blocks to end the others.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
