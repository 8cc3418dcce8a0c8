"""The router of model servers beside the direct client: what a ticket costs, what routing costs, how soon a loss heals.

    python bench/models.py [--quick]

Servers are engine_server.py: processes of their own that answer after 50 ms.

    ticket_cpu_ms          CPU for one ticket, both sides: asked for, granted and given back over a socket, 64 at a time
    routed_cpu_vs_direct   CPU of a run of 1,000 episodes of 5 turns, 64 in flight, over two servers by the router, over
                           the same with one server asked directly; the servers' own CPU left out; median of the rounds
    sticky_share           of the turns after an attempt's first in that run, those answered where the one before was
    kill_to_next_answer_s  one of two servers is killed with -9 while 32 ask both: until the last of those requests that
                           it had is answered by the other; the longest of the rounds
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import uvloop

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from common import Figures, median
from deskroll.host.listen import Listen
from deskroll.models.messages import Message
from deskroll.models.openai import OpenAIModel
from deskroll.models.router.client import RouterClient
from deskroll.models.router.roster import Outcome
from deskroll.models.router.router import Router
from deskroll.models.router.router import Server as Address
from deskroll.models.router.service import serve_router
from deskroll.models.settings import ModelSettings
from deskroll.store import Run
from documented_rollout import MODEL, Job
from engine import Case, Scratch, Server, job_of, measure, ours

IN_FLIGHT = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less work by the same method, done within 50 seconds")
    quick = parser.parse_args().quick
    figures = Figures("models")
    figures.add("ticket_cpu_ms", uvloop.run(ticket_ms(5_000 if quick else 40_000)), "both sides, 64 at a time")
    compare(figures, rounds=1 if quick else 5, episodes=200 if quick else 1000)
    kills = [uvloop.run(kill_s()) for _ in range(1 if quick else 5)]
    figures.add("kill_to_next_answer_s", max(kills), f"of {len(kills)} kills; median {median(kills):.2f}")
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
                share = (other.stats()[0] - before) / (episodes * 5)
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


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
