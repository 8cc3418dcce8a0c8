"""What events cost, and how soon they arrive: the engine's own benchmark with events on, beside the same with them off.

    python bench/events.py [--quick]

Ten rounds of 1,000 episodes of 5 turns, 64 in flight, against the server of bench/engine.py, with worker processes,
journal, attempt folders and events.jsonl on a disk; beside each the same with `events.enabled=false`: workers tell
nothing, and nothing is kept. CPU is user and system time of all processes of a run, the server left out. The overhead
is the median over the rounds, in which on and off take turns to be first: what else the machine does, it does to both.
With `--quick` four rounds of 300.

event_us: what one event costs in all, where nothing else goes on: made, encoded and decoded on its way from a worker,
heard by what status is worked out of, made into a line. event_share: that, times the events of an episode, over the CPU
of an episode without events: the overhead, free of the noise of a busy machine, and without the cost of the messages.

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
import uvloop

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from common import Figures, median, options, percentile
from deskroll.events import AttemptStarted, Event, StageEntered
from deskroll.rollout.asking import find_live, follow_events
from deskroll.rollout.backends.wire import Happened
from deskroll.rollout.events import EventHub, RunState
from deskroll.rollout.openfiles import raise_open_files
from deskroll.types import EpisodeKey, Stage
from documented_rollout import Job
from engine import Case, Scratch, Server, job_of, measure, ours
from engine_server import TURNS

FULL, ROUNDS = Case("c64", 64, 1000, 0), 10
QUICK, QUICK_ROUNDS = Case("c64", 64, 300, 0), 4
FOLLOWED = Case("c64", 64, 200, 0)
HANDLED, BATCH = 20_000, 20


def main() -> None:
    quick = options(__doc__).quick
    case, rounds = (QUICK, QUICK_ROUNDS) if quick else (FULL, ROUNDS)
    figures = Figures("events")
    found: dict[str, list[float]] = {"off": [], "on": []}
    with Server() as server, Scratch() as scratch:
        for number in range(rounds):
            for name in ("off", "on") if number % 2 else ("on", "off"):
                job = job_of(server.url, case, case.episodes, scratch.folder())
                measured = measure(server, job, ["-c", f"import events; events.run_{name}()"])
                found[name].append(measured.cpu_ms * TURNS)
                print(
                    f"  events {name:<3} {case.episodes:>5} episodes: {found[name][-1]:6.3f} ms CPU an episode, "
                    f"{measured.episodes_per_s:6.1f} episodes/s; others {measured.others:.0%}",
                    flush=True,
                )
        delays = asyncio.run(follow(job_of(server.url, FOLLOWED, FOLLOWED.episodes, scratch.folder())))
    ratios = [on / off - 1 for on, off in zip(found["on"], found["off"], strict=True)]
    note = f"{rounds} rounds of {case.episodes} episodes of {TURNS} turns, {case.in_flight} in flight"
    figures.add("cpu_ms_per_episode_on", median(found["on"]), note)
    figures.add("cpu_ms_per_episode_off", median(found["off"]))
    spread = f"of the CPU without events; the rounds: {min(ratios):.3f} to {max(ratios):.3f}"
    figures.add("events_cpu_overhead", median(ratios), spread)
    each_us, number = event_us(), len(delays) / FOLLOWED.episodes
    figures.add("event_us", each_us, "best of 5")
    figures.add("event_share", each_us * number / 1e3 / median(found["off"]), f"{number:.1f} events an episode")
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
    uvloop.run(ours(Job.from_json(sys.argv[1]), settings={"events": {"enabled": enabled}}))


async def follow(job: Job) -> list[float]:
    """How long each event of a run took to its follower."""
    delays: list[float] = []
    following: list[asyncio.Task[None]] = []
    decoder = msgspec.json.Decoder(Event)

    async def read() -> None:
        async for line in follow_events(await find_live(f"{job.folder}/run")):
            delays.append(time.time() - decoder.decode(line).at)

    await ours(job, begin=lambda: following.append(asyncio.create_task(read())), end=lambda _: None)
    await asyncio.gather(*following)
    return delays


def event_us() -> float:
    """CPU of one event from a worker's hands to those of whoever reads lines, in microseconds."""
    return min(asyncio.run(_handle()) for _ in range(5)) / HANDLED * 1e6


async def _handle() -> float:
    key = EpisodeKey(phase="eval", round=0, task="task-000123", sample=0)
    async with EventHub(str) as hub:
        RunState(hub)
        hub.emit(AttemptStarted(key=key, attempt=1))
        encoder, decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Happened)
        began = time.process_time()
        for visit in range(0, HANDLED, BATCH):
            made: list[Event] = [
                StageEntered(key=key, attempt=1, stage=Stage.ACT, visit=visit, worker=1, ran_s=1.5, turn=2)
                for _ in range(BATCH)
            ]
            for event in decoder.decode(encoder.encode(Happened(events=made))).events:
                hub.emit(event)
        await anext(hub.follow(HANDLED + 1))
        return time.process_time() - began


if __name__ == "__main__":
    # Whoever ends this process by a signal wants the `with` blocks to end the others.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
