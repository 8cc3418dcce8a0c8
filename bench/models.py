"""The router of model servers beside the direct client: what a ticket costs, what routing costs, how soon a loss heals;
what a refresh of weights costs those who ask, and what a run of many rounds keeps.

    python bench/models.py [--quick]

Servers are engine_server.py: processes of their own that answer after 50 ms; those that are refreshed are scripted
ones, in this process, that do the same.

    ticket_cpu_ms          CPU for one ticket, both sides: asked for, granted and given back over a socket, 64 at a time
    routed_cpu_vs_direct   CPU of a run of 1,000 episodes of 5 turns, 64 in flight, over two servers by the router, over
                           the same with one server asked directly; the servers' own CPU left out; median of the rounds
    sticky_share           of the turns after an attempt's first in that run, those answered where the one before was
    kill_to_next_answer_s  one of two servers is killed with -9 while 32 ask both: until the last of those requests that
                           it had is answered by the other; the longest of the rounds
    refresh_wait_p95_ms    32 ask a pool of two servers all the time while weights are refreshed, one server after the
                           other, each loading for 200 ms: how much longer than its 50 ms a request took that was open
                           during a refresh; refresh_wait_all_p95_ms: both at once
    growth_mb_per_10k      20,000 episodes without a model in 100 rounds of one job, new tasks in each: by how much the
                           coordinator's own memory grows for each 10,000 of them, the first fifth left out
    plan_last_vs_first     how long it takes to plan a round: the last ten over the first ten, medians
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import uvloop

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent))  # what stands in for vLLM is the tests'
from tests.models.vllm.scripted_pool import ScriptedServers, scripted_pool
from tests.models.weights.files import one_file

from common import Figures, median, percentile
from deskroll.events import BatchPlanned, Event, ModelFailed
from deskroll.host.listen import Listen
from deskroll.models.messages import Message
from deskroll.models.openai import OpenAIModel
from deskroll.models.router.client import RouterClient
from deskroll.models.router.roster import Outcome
from deskroll.models.router.router import Router
from deskroll.models.router.router import Server as Address
from deskroll.models.router.service import serve_router
from deskroll.models.scripted import Trouble
from deskroll.models.settings import ModelSettings
from deskroll.rollout.config import Resources
from deskroll.rollout.events.hub import RING
from deskroll.rollout.job import Batch
from deskroll.rollout.job import Job as Work
from deskroll.rollout.runtime import Runtime
from deskroll.rollout.spec import EpisodeSpec
from deskroll.store import Run
from deskroll.types import Task
from documented_rollout import MODEL, Job
from engine import Case, Scratch, Server, job_of, measure, ours
from engine_server import ANSWER, LATENCY_S

IN_FLIGHT = 64
ASKERS = 32
RELOAD_S = 0.2
LONG = 20_000
SAMPLES = 4
"""Of each task in a round."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less work by the same method, done within 50 seconds")
    quick = parser.parse_args().quick
    figures = Figures("models")
    figures.add("ticket_cpu_ms", uvloop.run(ticket_ms(5_000 if quick else 40_000)), "both sides, 64 at a time")
    compare(figures, rounds=1 if quick else 5, episodes=200 if quick else 1000)
    kills = [uvloop.run(kill_s()) for _ in range(1 if quick else 5)]
    figures.add("kill_to_next_answer_s", max(kills), f"of {len(kills)} kills; median {median(kills):.2f}")
    for name, rolling in (("refresh_wait_p95_ms", 1), ("refresh_wait_all_p95_ms", 0)):
        waits = uvloop.run(refresh_waits(rolling, refreshes=4 if quick else 20))
        note = f"{len(waits)} requests; median {median(waits) * 1e3:.0f}, longest {max(waits) * 1e3:.0f}"
        figures.add(name, percentile(waits, 0.95) * 1e3, note)
    grow(figures, rounds=100, episodes=20 if quick else 200)
    figures.finish()


async def ticket_ms(count: int) -> float:
    """CPU of this process, in which both sides are."""
    with tempfile.TemporaryDirectory() as folder:
        listen = Listen(path=f"{folder}/r.sock")
        async with Router(look_s=3600.0) as router:
            for port in (8, 9):  # nobody listens there, and nobody asks
                router.add(Address(url=f"http://127.0.0.1:{port}/v1", model=MODEL, max_in_flight=IN_FLIGHT))
            await asyncio.sleep(0.2)  # the first look finds nobody
            for view in router.view():
                router.ready(view.name)
            async with serve_router(router, listen), RouterClient(listen) as client:
                await tickets(client, count // 10)
                begun = time.process_time()
                await tickets(client, count)
                return (time.process_time() - begun) / count * 1e3


async def tickets(client: RouterClient, count: int) -> None:
    async def use(session: str) -> None:
        for _ in range(count // IN_FLIGHT):
            async with client.ticket(session) as held:
                await asyncio.sleep(0)
                held.outcome = Outcome.ANSWERED

    await asyncio.gather(*(use(f"attempt-{n}") for n in range(IN_FLIGHT)))


def compare(figures: Figures, rounds: int, episodes: int) -> None:
    case = Case("models", IN_FLIGHT, episodes, 0)
    spent: dict[str, list[float]] = {"direct": [], "routed": []}
    with Server() as one, Server() as other, Scratch() as scratch:
        os.environ["BENCH_SECOND"] = other.url
        for _ in range(rounds):
            for name, cpu in spent.items():
                job = job_of(one.url, case, episodes, scratch.folder())
                before = other.stats()[0]
                measured = measure(one, job, ["-c", f"import models; models.run_{name}()"], beside=[other])
                cpu.append(measured.cpu_ms)
                share = (other.stats()[0] - before) / ((episodes + job.warm_up) * 5)
                print(f"  {name:<8} {measured.cpu_ms:.3f} ms CPU a turn; second server {share:.0%}", flush=True)
        figures.add("sticky_share", sticky_share(Path(job.folder) / "run"), "turns answered where the one before was")
    direct, routed = (median(spent[name]) for name in ("direct", "routed"))
    figures.add("direct_cpu_ms_per_turn", direct, f"{episodes} episodes of 5 turns, {IN_FLIGHT} in flight")
    figures.add("routed_cpu_ms_per_turn", routed, "the same, over two servers")
    figures.add("routed_cpu_vs_direct", routed / direct, "CPU a turn, routed / direct")


def run_direct() -> None:
    """What a contender's process does."""
    uvloop.run(ours(Job.from_json(sys.argv[1])))


def run_routed() -> None:
    """What a contender's process does."""
    job = Job.from_json(sys.argv[1])
    endpoints = [{"url": f"{url}/v1"} for url in (job.url, os.environ["BENCH_SECOND"])]
    uvloop.run(ours(job, settings={"model": {"name": MODEL, "endpoints": endpoints}}))


def sticky_share(folder: Path) -> float:
    """Of the turns after the first of each attempt, those that the server of the turn before answered."""
    run, stayed, all_told = Run.open(str(folder)), 0, 0
    for outcome in run.outcomes():
        steps = run.attempt(outcome.key, outcome.attempt).steps()
        places = [step.completion.endpoint for step in steps if step.completion is not None]
        stayed += sum(one == two for one, two in itertools.pairwise(places))
        all_told += max(0, len(places) - 1)
    return stayed / max(1, all_told)


@asynccontextmanager
async def routed(urls: list[str]) -> AsyncIterator[OpenAIModel]:
    settings = ModelSettings.model_validate({"name": MODEL, "endpoints": [{"url": f"{url}/v1"} for url in urls]})
    async with OpenAIModel.serve(settings, "model") as served, OpenAIModel(served) as model:
        yield model


async def kill_s() -> float:
    """From the kill of a server until every request that was open there has its answer."""
    question = [Message.user("What is 6*7?").sent]
    with Server() as one:
        doomed = Server()
        doomed.__enter__()
        async with AsyncExitStack() as stack:
            model = await stack.enter_async_context(routed([one.url, doomed.url]))
            await asyncio.gather(*(model.complete(question) for _ in range(8)))
            asked = [asyncio.create_task(model.complete(question)) for _ in range(32)]
            await asyncio.sleep(0.02)  # all of them are open by now: an answer takes 50 ms
            os.kill(doomed.pid, signal.SIGKILL)
            begun = time.perf_counter()
            answered = await asyncio.gather(*asked)
            seconds = time.perf_counter() - begun
        doomed.__exit__()
    if len({each.endpoint for each in answered}) != 1:
        print(f"  {sum(each.endpoint != f'{one.url}/v1' for each in answered)} were answered before the kill")
    return seconds


async def refresh_waits(rolling: int, refreshes: int) -> list[float]:
    """What requests that were open during a refresh took beyond the server's own time."""
    found: list[tuple[float, float]] = []
    question = [Message.user("What is 6*7?").sent]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base = one_file(folder / "w" / "step_0", fill=0.5, marker="READY")
        servers = ScriptedServers(folder, latency=LATENCY_S)
        servers.trouble = Trouble(reload_s=RELOAD_S)
        weights = {"source": str(base.parent), "poll": 3600}
        async with scripted_pool(servers, base, [], replicas=2, weights=weights, rolling=rolling) as pool:
            await pool.ready()
            over = asyncio.Event()

            async def ask() -> None:
                while not over.is_set():
                    begun = time.perf_counter()
                    await pool.generate(question)
                    found.append((begun, time.perf_counter()))

            askers = [asyncio.create_task(ask()) for _ in range(ASKERS)]
            windows = []
            for number in range(1, refreshes + 1):
                await asyncio.sleep(1.0)  # as it is between refreshes: the line of the last one is served
                one_file(folder / "w" / f"step_{number}", fill=0.5 + number / 100, marker="READY")
                begun = time.perf_counter()
                await pool.load_latest_model()
                windows.append((begun, time.perf_counter()))
            over.set()
            await asyncio.gather(*askers)
    return [
        max(0.0, end - begun - LATENCY_S)
        for begun, end in found
        if any(begun < last and end > first for first, last in windows)
    ]


def grow(figures: Figures, rounds: int, episodes: int) -> None:
    """What a coordinator keeps, in a process of its own."""
    with Scratch() as scratch:
        command = [sys.executable, "-c", "import models; models.run_rounds()", str(rounds), str(episodes)]
        said = subprocess.run(
            [*command, str(scratch.folder())],
            stdout=subprocess.PIPE,
            check=True,
            env=os.environ | {"PYTHONPATH": str(HERE)},
        ).stdout
    kept, plans, seconds = json.loads(said)
    first, last = kept[len(kept) // 5], kept[-1]
    grown = (last[1] - first[1]) / (last[0] - first[0]) * 10_000
    note = f"{rounds * episodes:,} episodes in {rounds} rounds, {seconds:.0f} s; {first[1]:.1f} MB, then {last[1]:.1f}"
    figures.add("growth_mb_per_10k", grown, note)
    before, after = median(plans[:10]) * 1e3, median(plans[-10:]) * 1e3
    figures.add("plan_last_vs_first", after / before, f"{episodes} episodes a round: {before:.1f} ms, then {after:.1f}")


def run_rounds() -> None:
    """What the process of `grow` does."""
    rounds, episodes, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    print(json.dumps(uvloop.run(keep(rounds, episodes, folder))))


class Planned:
    """Hears when each round is planned."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.given = 0.0

    def emit(self, event: Event) -> None:
        """See `EventSink`."""
        if isinstance(event, BatchPlanned):
            self.seconds.append(time.perf_counter() - self.given)


async def keep(rounds: int, episodes: int, folder: str) -> tuple[list[tuple[int, float]], list[float], float]:
    """Episodes so far and memory after every fifth round; how long each took to be planned; how long all took."""
    planned, ended, kept = Planned(), asyncio.Event(), list[tuple[int, float]]()

    async def give() -> AsyncIterator[Batch]:
        for number in range(rounds):
            names = (f"round-{number:03}-task-{each:04}" for each in range(episodes // SAMPLES))
            tasks = tuple(Task(id=name, instruction=f"What is 6*7? {name:>100}", answer=ANSWER) for name in names)
            ended.clear()
            planned.given = time.perf_counter()
            yield Batch(tasks=tasks, round=number, whole=True)
            await ended.wait()

    job = Work("train", give(), EpisodeSpec(env="math", agent="noop"), group_size=SAMPLES)
    resources = Resources(num_rollouts=IN_FLIGHT)
    begun, done = time.perf_counter(), 0
    async with Runtime.open(resources, store=f"{folder}/run", sink=planned) as runtime:
        await fill_ring(runtime)
        async for group in runtime.run(job):
            done += len(group.episodes)
            if done % episodes == 0:
                if done // episodes % 5 == 0:
                    kept.append((done, own_mb()))
                ended.set()
    return kept, planned.seconds, time.perf_counter() - begun


async def fill_ring(runtime: Runtime) -> None:
    """What a runtime keeps of events is bounded, and here full from the beginning."""
    for _ in range(RING // LONG + 1):
        runtime.hub.emit(ModelFailed(endpoint="bench", model=MODEL, reason="x" * LONG, tries=1))
        await anext(runtime.hub.follow(last=1))  # whoever follows has what there is made into lines


def own_mb() -> float:
    """Memory of this process that nobody else has, without what was freed."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
