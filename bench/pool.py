"""The pool beside the documented design: how busy the desktops are, how long holders wait, what a lease costs.

    python bench/pool.py [--quick]

Both designs share simulated desktops that boot and reset in half a second (documented_pool.py is the other one), with
the same episodes of 1 to 3 s for each holder. Busy is measured against the bound T/(T+R): T the mean episode, R the
reset; from the moment when every desktop has been leased once. A wait begins when a holder's last episode ends, so it
counts as waiting too where giving back blocks; each holder's first request does not count, as they all come at once.
All of that is taken from the holders' own clocks, by the same code for both.

The three sizes run side by side: holders sleep, and a line says how busy the machine was meanwhile (a few percent, or
the figures are worth less). With --quick both designs run at the same time too, on a clock that is four times as fast:
boots, resets and episodes last a quarter as long, and the waits are multiplied by four. Where ten holders share a
desktop, the documented design's line alone takes longer than a quick run may.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).parent))
from common import Figures, median, options, percentile
from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.lease import Lease
from deskroll.desktops.pool import Pool, PoolConfig, PoolStatus
from deskroll.desktops.pool.slot import State
from deskroll.desktops.providers.local.provider import LocalProvider
from deskroll.desktops.providers.sim.provider import SimProvider
from deskroll.desktops.providers.sim.settings import SimSettings
from deskroll.desktops.providers.sim.times import Times
from deskroll.desktops.service import PoolClient, PoolService
from deskroll.host.listen import Listen
from documented_pool import FORK, Episode, Run, die_with_parent, ended, lengths, manager

T = TypeVar("T")
HERE = Path(__file__).parent
DESKTOPS = 8
SIZES = {"1to1": 8, "3to1": 24, "10to1": 80}
BOOT_S = RESET_S = 0.5
AT_A_TIME = 8
Leasing = Callable[[], AbstractAsyncContextManager[Lease]]


def main() -> None:
    quick = options(__doc__).quick
    figures = Figures("pool")
    memory(figures)
    handover(figures, 2_000 if quick else 10_000)
    handover_service(figures, 2_000 if quick else 5_000)
    throughput(figures, 2.0 if quick else 10.0)
    handover_local(figures, 20 if quick else 100)
    boots(figures)
    if quick:
        sharing(figures, ours_s=80.0, documented_s=85.0, speed=4.0, together=True)
    else:
        sharing(figures, ours_s=75.0, documented_s=105.0, speed=1.0, together=False)
    figures.finish()


def sim(boot: float, reset: float) -> SimProvider:
    return SimProvider(SimSettings(boot=Times.fixed(boot), reset=Times.fixed(reset)))


async def until(pool: Pool, true: Callable[[PoolStatus], bool], otherwise: str) -> None:
    deadline = time.monotonic() + 60
    while not true(await pool.status()):
        if time.monotonic() > deadline:
            raise SystemExit(f"{otherwise} within 60 s")
        await asyncio.sleep(0.002)


async def all_ready(pool: Pool) -> None:
    count = pool.config.num_vms
    await until(pool, lambda now: now.states[State.READY] == count, f"{count} desktops did not come up")


# --- N holders, M desktops ---


@dataclass(frozen=True)
class Sharing:
    """What came of one size of one design, in seconds of a clock that runs at normal speed."""

    bound_share: float
    wait_s: float
    asked_s: float
    """The same from asking on: without the time that giving the last one back took."""
    leases: int


def sharing(figures: Figures, *, ours_s: float, documented_s: float, speed: float, together: bool) -> None:
    if not together:
        ours, ours_busy = _ours(ours_s, speed)
    with ExitStack() as stack:
        runs = [stack.enter_context(Run(n, DESKTOPS, _settings(speed), speed)) for n in SIZES.values()]
        with busy() as documented_busy:
            end = time.monotonic() + documented_s / speed
            with ThreadPoolExecutor() as threads:
                list(threads.map(Run.begin, runs))
            if together:
                ours, ours_busy = _ours(ours_s, speed)
            time.sleep(max(0.0, end - time.monotonic()))
    documented = [_result(run.episodes(), end, speed) for run in runs]
    print(f"  machine busy: {ours_busy:.0%} with ours, {documented_busy[0]:.0%} with the documented design; x{speed:g}")
    _tell(figures, dict(zip(SIZES, zip(ours, documented, strict=True), strict=True)))


def _tell(figures: Figures, results: dict[str, tuple[Sharing, Sharing]]) -> None:
    ours, documented = results["3to1"]
    ratio = ours.bound_share / documented.bound_share
    what = f"{DESKTOPS} desktops, {SIZES['3to1']} holders; of the bound T/(T+R)"
    figures.add("bound_share", ours.bound_share, f"{what}, {ours.leases} leases; {ratio:.2f} x the documented design")
    figures.add("bound_share_documented", documented.bound_share, f"the same there, {documented.leases} leases")
    for name, (ours, documented) in results.items():
        note = f"documented {documented.wait_s:.2f}: {documented.wait_s / ours.wait_s:.2f} x ours; {ours.leases} leases"
        share = f"bound share {ours.bound_share:.3f} and {documented.bound_share:.3f}"
        figures.add(f"wait_p50_s_{name}", ours.wait_s, f"{DESKTOPS} desktops, {SIZES[name]} holders; {note}; {share}")
        note = f"p50 from asking on, without giving back: {documented.asked_s:.2f}; {documented.leases} leases"
        figures.add(f"wait_p50_s_{name}_documented", documented.wait_s, note)


def _settings(speed: float) -> SimSettings:
    return SimSettings(boot=Times.fixed(BOOT_S / speed), reset=Times.fixed(RESET_S / speed))


def _ours(seconds: float, speed: float) -> tuple[list[Sharing], float]:
    async def every_size() -> list[Sharing]:
        return await asyncio.gather(*(_our_run(n, end, speed) for n in SIZES.values()))

    with busy() as share:
        end = time.monotonic() + seconds / speed
        results = asyncio.run(every_size())
    return results, share[0]


async def _our_run(holders: int, end: float, speed: float) -> Sharing:
    episodes: list[list[Episode]] = [[] for _ in range(holders)]
    async with Pool(SimProvider(_settings(speed)), PoolConfig(num_vms=DESKTOPS)) as pool:
        tasks = [asyncio.create_task(_hold(pool, holder, speed, episodes[holder])) for holder in range(holders)]
        done, _ = await asyncio.wait(tasks, timeout=end - time.monotonic(), return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in done:
            task.result()  # they go on for ever: one that has ended has failed
    return _result(episodes, end, speed)


async def _hold(pool: Pool, holder: int, speed: float, episodes: list[Episode]) -> None:
    wanted = time.monotonic()
    for length in lengths(holder):
        asked = time.monotonic()
        async with pool.lease() as lease:
            had = time.monotonic()
            episodes.append(Episode(lease.address.id, wanted, asked, had, float("inf")))
            await asyncio.sleep(length / speed)
            wanted = time.monotonic()
            episodes[-1] = replace(episodes[-1], left=wanted)


def _result(by_holder: list[list[Episode]], end: float, speed: float) -> Sharing:
    """From the moment when every desktop has been leased once to `end`.

    The mean episode is that of the same window, with the resets that it makes necessary counted as far as they are in
    it. With the mean of whole episodes the share could exceed 1: at that moment all desktops are in an episode's midst.
    """
    every = [episode for episodes in by_holder for episode in episodes]
    first: dict[str, float] = {}
    for episode in sorted(every, key=lambda each: each.had):
        first.setdefault(episode.desktop, episode.had)
    if len(first) < DESKTOPS:
        raise SystemExit(f"only {len(first)} of {DESKTOPS} desktops were ever leased")
    since = max(first.values())
    reset_s = RESET_S / speed

    def inside(begin: float, finish: float) -> float:
        return max(0.0, min(finish, end) - max(begin, since))

    leased = sum(inside(each.had, each.left) for each in every)
    resets = sum(inside(each.left, each.left + reset_s) for each in every) / reset_s
    mean = leased / resets
    later = [each for episodes in by_holder for each in episodes[1:] if each.had < end]
    return Sharing(
        bound_share=leased / (DESKTOPS * (end - since)) / (mean / (mean + reset_s)),
        wait_s=median([each.had - each.wanted for each in later]) * speed,
        asked_s=median([each.had - each.asked for each in later]) * speed,
        leases=sum(since <= each.had < end for each in every),
    )


@contextmanager
def busy() -> Iterator[list[float]]:
    """After the block the list has the share of all cores' time that was used meanwhile, by whomever."""

    def times() -> tuple[int, int]:
        fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(fields) - fields[3] - fields[4], sum(fields)

    shares: list[float] = []
    before = times()
    yield shares
    after = times()
    shares.append((after[0] - before[0]) / (after[1] - before[1]))


def boots(figures: Figures) -> None:
    """From nothing until all desktops can be used; the manager's process is there already, and does not count."""

    async def ours() -> float:
        began = time.perf_counter()
        async with Pool(sim(BOOT_S, RESET_S), PoolConfig(num_vms=DESKTOPS)) as pool:
            await all_ready(pool)
            return time.perf_counter() - began

    seconds = asyncio.run(ours())
    with manager(DESKTOPS, _settings(1.0)) as proxy:
        began = time.perf_counter()
        proxy.initialize()
        documented = time.perf_counter() - began
    note = f"{DESKTOPS} desktops of {BOOT_S:g} s each; the documented design takes {documented / seconds:.1f} x as long"
    figures.add("boot_all_s", seconds, note)
    figures.add("boot_all_s_documented", documented, "one after another")


# --- what a lease costs ---


def handover(figures: Figures, count: int) -> None:
    async def measure() -> list[float]:
        async with Pool(sim(0.01, 0.01), PoolConfig(num_vms=64, max_booting=64)) as pool:
            await all_ready(pool)
            # Without a pause, thousands a second would outrun the resets, and it would be those that are measured.
            times = await _handovers(pool.lease, count, pause=0.004)
            await _check_ready(pool)
        return times

    times = asyncio.run(measure())
    what = f"asking until having the Lease, one being ready; {len(times):,} times, {AT_A_TIME} holders"
    figures.add("handover_p99_ms", percentile(times, 0.99) * 1000, f"{what}; p50 {median(times) * 1000:.3f}")


async def _handovers(leasing: Leasing, count: int, pause: float) -> list[float]:
    times: list[float] = []

    async def holder() -> None:
        for _ in range(-(-count // AT_A_TIME)):
            began = time.perf_counter()
            async with leasing():
                times.append(time.perf_counter() - began)
            await asyncio.sleep(pause)

    await asyncio.gather(*(holder() for _ in range(AT_A_TIME)))
    return times


async def _check_ready(pool: Pool | PoolClient) -> None:
    """The pool itself knows whether anybody had to wait."""
    waits = (await pool.status()).waits
    if waits.longest > 0:
        raise SystemExit(f"no desktop was ready for some requests: they waited for up to {waits.longest * 1000:.1f} ms")


def handover_service(figures: Figures, count: int) -> None:
    async def client(at: str) -> list[float]:
        async with PoolClient(at) as pool:
            await _handovers(pool.lease, 200, pause=0.0)  # connections are made
            times = await _handovers(pool.lease, count, pause=0.0)
            await _check_ready(pool)
        return times

    with served(64, 0.01) as service:
        times = elsewhere(lambda: client(service.at))
    what = (
        f"the same over a unix socket, between two processes; {len(times):,} times, {AT_A_TIME} holders without pause"
    )
    figures.add("handover_service_p99_ms", percentile(times, 0.99) * 1000, f"{what}; p50 {median(times) * 1000:.3f}")


def handover_local(figures: Figures, count: int) -> None:
    """Real desktops: each has been used by somebody else before, and is a new one."""

    async def measure() -> list[tuple[float, float]]:
        times = []
        async with Pool(LocalProvider(), PoolConfig(num_vms=4, spec=DesktopSpec(width=1280, height=800))) as pool:
            for _ in range(count):
                await all_ready(pool)
                began = time.perf_counter()
                async with pool.lease() as lease:
                    had = time.perf_counter()
                    await lease.desktop.screenshot()
                    times.append((had - began, time.perf_counter() - began))
        return times

    times = asyncio.run(measure())
    looks = median([seen for _, seen in times]) * 1000
    what = f"4 embedded desktops, one ready each time, {count} times; until the first picture of it {looks:.1f}"
    figures.add("handover_local_p50_ms", median([had for had, _ in times]) * 1000, what)


def throughput(figures: Figures, seconds: float) -> None:
    cores = sorted(os.sched_getaffinity(0))
    holders = 48

    async def client(service: Service) -> Pairs:
        async with PoolClient(service.at) as pool:
            await _pairs(pool, service, holders, 0.5)  # connections are made
            return await _pairs(pool, service, holders, seconds)

    with served(64, 0.0, cores[0]) as service:
        pairs = elsewhere(lambda: client(service), cores[-1])
    what = f"lease and release, {holders} in flight; service on one core ({pairs.service_cpu:.0%} used)"
    figures.add("service_leases_per_s", pairs.rate, f"{what}, client on another ({pairs.client_cpu:.0%})")


@dataclass(frozen=True)
class Pairs:
    """Leases that were had and given back, a second, and the share of a core that each side took for them."""

    rate: float
    service_cpu: float
    client_cpu: float


async def _pairs(pool: PoolClient, service: Service, holders: int, seconds: float) -> Pairs:
    count = 0
    began, service_cpu, client_cpu = time.perf_counter(), _cpu_s(service.pid), time.process_time()

    async def holder() -> None:
        nonlocal count
        while time.perf_counter() - began < seconds:
            async with pool.lease():
                pass
            count += 1

    await asyncio.gather(*(holder() for _ in range(holders)))
    elapsed = time.perf_counter() - began
    service_cpu, client_cpu = _cpu_s(service.pid) - service_cpu, time.process_time() - client_cpu
    return Pairs(count / elapsed, service_cpu / elapsed, client_cpu / elapsed)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Service:
    """A `PoolService` in a process of its own."""

    at: str
    pid: int


@contextmanager
def served(num_vms: int, reset: float, core: int | None = None) -> Iterator[Service]:
    with tempfile.TemporaryDirectory() as folder:
        at = f"unix:{folder}/pool.sock"
        ours, theirs = FORK.Pipe()
        process = FORK.Process(target=_serve, args=(at, num_vms, reset, core, theirs), daemon=True)
        with ours, theirs, ended(process):
            if not ours.poll(60):
                raise SystemExit("the service did not come up within 60 s")
            ours.recv()
            yield Service(at, process.pid or 0)
            ours.send("stop")
            process.join(30)


def _serve(at: str, num_vms: int, reset: float, core: int | None, parent: Connection) -> None:
    async def serve() -> None:
        stop = asyncio.Event()

        async with Pool(sim(reset, reset), PoolConfig(num_vms=num_vms, max_booting=num_vms)) as pool:
            await all_ready(pool)
            async with PoolService(pool, Listen.parse(at)):
                asyncio.get_running_loop().add_reader(parent.fileno(), stop.set)
                parent.send("ready")
                await stop.wait()

    _settle_in(core)
    asyncio.run(serve())


def elsewhere(work: Callable[[], Coroutine[object, object, T]], core: int | None = None) -> T:
    """Run something in a process of its own and return what it returns."""
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=_run_there, args=(work, core, theirs), daemon=True)
    with ours, theirs, ended(process):
        theirs.close()  # so that its end is heard here
        answer: T = ours.recv()
    return answer


def _run_there(work: Callable[[], Coroutine[object, object, T]], core: int | None, parent: Connection) -> None:
    _settle_in(core)
    parent.send(asyncio.run(work()))


def _settle_in(core: int | None) -> None:
    die_with_parent()
    if core is not None:
        os.sched_setaffinity(0, {core})


# --- many ---


def memory(figures: Figures) -> None:
    """In a new interpreter, which has nothing but this in it."""
    command = [sys.executable, "-c", "import pool; pool.thousand()"]
    found = json.loads(subprocess.run(command, cwd=HERE, stdout=subprocess.PIPE, timeout=120, check=True).stdout)
    note = f"1,000 desktops leased and 3,000 holders in line; {found['before_mb']:.0f} before the pool was opened"
    figures.add("rss_mb_1000", found["rss_mb"], note)
    figures.add("serve_4000_s", found["serve_s"], "until all have been served, exactly in the order in which they came")


def thousand() -> None:
    """What that interpreter does."""
    die_with_parent()
    print(json.dumps(asyncio.run(_thousand(desktops=1_000, holders=4_000))))


async def _thousand(desktops: int, holders: int) -> dict[str, float]:
    served: list[int] = []
    go = asyncio.Event()
    before = _rss_mb()

    async def holder(pool: Pool, number: int) -> None:
        async with pool.lease():
            served.append(number)
            await go.wait()

    async with Pool(sim(0.0, 0.01), PoolConfig(num_vms=desktops)) as pool:
        await all_ready(pool)
        tasks = [asyncio.create_task(holder(pool, number)) for number in range(holders)]
        await until(pool, lambda now: now.waiting == holders - desktops, "holders did not get into line")
        if served != list(range(desktops)):
            raise SystemExit(f"{len(served)} holders have a desktop, and they should be the first {desktops}")
        rss = _rss_mb()
        began = time.perf_counter()
        go.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*tasks)
        seconds = time.perf_counter() - began
    if served != list(range(holders)):
        raise SystemExit(f"{len(served)} of {holders} holders were served, and not in the order in which they came")
    return {"before_mb": before, "rss_mb": rss, "serve_s": seconds}


def _rss_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    # Whoever ends this process by a signal wants the `with` blocks to end the others.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
