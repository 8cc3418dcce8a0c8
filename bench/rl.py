"""The asynchronous training loop beside a batch-synchronous one: how busy desktops are, how soon steps are taken.

    python bench/rl.py [--quick]

Both are the same program (`train/loop.py`) with another `max_steps_off_policy`, on the same 16 simulated desktops (a
pool in a process of its own) and the same two scripted model servers (rl_server.py), one loop after the other. An
episode is three turns whose length in all is lognormal (sigma 1), a reset takes a tenth of the median, a batch is 8
groups of 4 episodes, the trainer takes one median a step, and the servers are refreshed after each. The seeds are the
same, so that a group has the same episodes in every loop. Measured from the end of the first step on.

    desktop_utilisation, desktop_utilisation_sync   the share of desktops' time that is leased; sync: with
                            max_steps_off_policy none, else 2, staleness pace
    bound_share             desktop_utilisation over the bound T/(T+R): T the mean lease, R the reset
    speedup_vs_sync         time of a step of the synchronous loop over that of the asynchronous one
    speedup_vs_sync_wait    the same with staleness wait
    lag_p95, lag_max        of the groups that were trained on (pace)
    model_utilisation       time that answers take over what the servers could answer at a time (pace)
    trajectories_per_min    that were trained on (pace)
    coordinator_cpu_ms_per_episode   CPU of the process with loop, engine and router; workers, desktops and their pool,
                            servers and trainer are others (pace)

`expected` is an event simulation of the same three loops, in which nothing but episodes, resets and the trainer takes
time; what it gives is printed beside the figures.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent))  # the environment is the tests'
from tests.train.timed_env import ENV

from common import Figures, options, percentile
from deskroll.desktops.service import PoolClient
from deskroll.models.vllm.config import ModelPoolConfig
from deskroll.models.vllm.pool import ModelServicePool
from deskroll.rollout.config import Resources
from deskroll.rollout.runtime import Runtime
from deskroll.rollout.spec import EpisodeSpec
from deskroll.train.base import TrainerContext
from deskroll.train.checkpoints import Checkpoints
from deskroll.train.log import StepRecord, TrainLog
from deskroll.train.loop import TrainLoop, TrainPlan
from deskroll.train.process import TrainerProcess
from deskroll.train.scripted import write_model
from deskroll.train.servers import OwnPool
from deskroll.train.staleness import Pace, Staleness
from deskroll.types import Task
from pool import busy, served
from rl_server import LATENCY, RUNNING, TURNS, lengths

DESKTOPS = 16
GROUPS, SAMPLES = 8, 4
IN_FLIGHT = 12
"""Groups, at the most: `max_concurrent_rollouts`."""
LAG = 2
RESET = 0.1
"""Of the median."""
SERVERS = 2
WARM = 1
"""Steps that are not measured."""
LOOPS = {
    "sync": Pace(groups_per_batch=GROUPS),
    "pace": Pace(groups_per_batch=GROUPS, most_behind=LAG),
    "wait": Pace(groups_per_batch=GROUPS, most_behind=LAG, staleness=Staleness.WAIT),
}


@dataclass(frozen=True)
class Load:
    """How much is done."""

    median_s: float
    """Of an episode."""
    steps: dict[str, int]
    """Of each loop."""
    seed: int
    """Which episodes there are."""


FULL = Load(0.5, dict.fromkeys(LOOPS, 50), seed=1)
QUICK = Load(0.2, {"sync": 5, "pace": 8, "wait": 8}, seed=17)
"""With a seed of which the first batches last about as long as batches do in the long run: few of them are taken."""


@dataclass(frozen=True)
class Moment:
    """How it stood when a step was over."""

    at: float
    leased_s: float
    leases: int
    cpu_s: float


@dataclass(frozen=True)
class Measured:
    """One loop, between two moments."""

    step_s: float
    utilisation: float
    lease_s: float
    """The mean."""
    leases: int
    seconds: float
    cpu_ms: float
    """Of the coordinator, for an episode."""
    lags: list[int]
    spent: dict[str, float]
    """Of a step, on what: means."""
    stages: dict[str, float]
    """Of an episode: means."""


def main() -> None:
    quick = options(__doc__).quick
    figures = Figures("rl")
    load = QUICK if quick else FULL
    with served(DESKTOPS, RESET * load.median_s) as service, busy() as share:
        found = uvloop.run(measure(service.at, load))
    print(f"  machine busy: {share[0]:.0%}; an episode's median is {load.median_s:g} s")
    tell(figures, found, load.median_s)
    figures.finish()


def tell(figures: Figures, found: dict[str, Measured], median_s: float) -> None:
    wanted = {name: expected(pace) for name, pace in LOOPS.items()}
    sync, pace = found["sync"], found["pace"]
    for name, kind in (("desktop_utilisation", "pace"), ("desktop_utilisation_sync", "sync")):
        figures.add(name, found[kind].utilisation, f"expected {wanted[kind].utilisation:.3f}")
    bound = pace.lease_s / (pace.lease_s + RESET * median_s)
    mean = sum(lengths(median_s)) / len(lengths(median_s))
    note = f"mean lease {pace.lease_s:.3f} s, of episodes of {mean:.3f}; bound {bound:.3f}"
    figures.add("bound_share", pace.utilisation / bound, note)
    for name, kind in (("speedup_vs_sync", "pace"), ("speedup_vs_sync_wait", "wait")):
        each, ideal = found[kind], wanted["sync"].step / wanted[kind].step
        note = f"expected {ideal:.2f}; a step {each.step_s:.2f} s, {sync.step_s:.2f}; leased {each.utilisation:.3f}"
        figures.add(name, sync.step_s / each.step_s, note)
    figures.add("lag_p95", percentile(pace.lags, 0.95), f"expected {percentile(wanted['pace'].lags, 0.95)}")
    longest = max(found["wait"].lags), max(wanted["pace"].lags)
    note = f"of {len(pace.lags)} groups; with wait {longest[0]}; expected of {len(wanted['pace'].lags)}: {longest[1]}"
    figures.add("lag_max", max(pace.lags), note)
    answering = pace.leases * TURNS * LATENCY * median_s
    figures.add("model_utilisation", answering / pace.seconds / (SERVERS * RUNNING), f"{SERVERS} x {RUNNING} at a time")
    note = f"an episode's median is {median_s:g} s; {pace.leases} episodes were counted"
    figures.add("trajectories_per_min", GROUPS * SAMPLES / pace.step_s * 60, note)
    figures.add("coordinator_cpu_ms_per_episode", pace.cpu_ms, f"{TURNS} turns; sync {sync.cpu_ms:.2f}")


# --- what is measured ---


async def measure(desktops: str, load: Load) -> dict[str, Measured]:
    with tempfile.TemporaryDirectory(prefix="bench-rl-", dir=place()) as name:
        folder = Path(name)
        write_model(folder / "start")
        config = ModelPoolConfig(
            ckpt_path=str(folder / "start"), replicas=SERVERS, gpus="none",
            vllm_command=(sys.executable, str(HERE / "rl_server.py")), env={"BENCH_MEDIAN_S": str(load.median_s)},
        )  # fmt: skip
        async with ModelServicePool(config, tell=print) as servers, PoolClient(desktops) as client:
            await servers.ready()
            found = {}
            for kind, pace in LOOPS.items():
                async with opened(folder / kind, pace, load, desktops, servers) as loop:
                    found[kind] = await watch(loop, client, load.steps[kind])
                spent, stages = (in_words(each) for each in (found[kind].spent, found[kind].stages))
                print(f"  {kind}: a step takes {found[kind].step_s:.2f} s ({spent}); an episode {stages}", flush=True)
    return found


def place() -> Path:
    """Memory, where there is enough: to delete thousands of folders from a disk may take longer than a quick run."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > 2e9 else Path.cwd()


def in_words(spent: dict[str, float]) -> str:
    return ", ".join(f"{what} {each:.3f}" for what, each in spent.items())


@asynccontextmanager
async def opened(
    folder: Path, pace: Pace, load: Load, desktops: str, servers: ModelServicePool
) -> AsyncIterator[TrainLoop]:
    """A training run, as `deskroll train` puts one together."""
    checkpoints, log = Checkpoints(folder, save_every=0), TrainLog(folder)
    resources = Resources(pool=desktops, num_rollouts=IN_FLIGHT * SAMPLES, max_concurrent_rollouts=IN_FLIGHT)
    trainer = TrainerProcess(
        "scripted", {"seconds": load.median_s}, TrainerContext(lora_rank=0), log=folder / "trainer.log"
    )
    async with Runtime.open(resources, store=folder) as runtime, trainer:
        checkpoints.begin(folder.parent / "start")
        log.open()
        await trainer.open(checkpoints.folder(0), None)
        await servers.reload(checkpoints.folder(0))
        model = {"name": "policy", "pool": servers.address, "exact": True, "temperature": 1.0, "seed": load.seed}
        spec = EpisodeSpec.model_validate({"env": ENV, "env_options": {"turns": TURNS}, "model": model})
        tasks = [Task(id=f"t{n}", instruction=f"Wait ({n})") for n in range(32)]
        plan = TrainPlan(tasks, spec, load.steps[folder.name], pace, group_size=SAMPLES, baseline=False)
        yield TrainLoop(plan, runtime, trainer, OwnPool(servers), checkpoints, log, lambda _: None)


async def watch(loop: TrainLoop, client: PoolClient, steps: int) -> Measured:
    """Run a loop, and take its measure."""
    running = asyncio.create_task(loop.run())
    first = await moment(loop, client, WARM, running)
    last = await moment(loop, client, steps, running)
    await running
    seconds, leases = last.at - first.at, last.leases - first.leases
    records: list[StepRecord] = loop.log.steps[WARM:]
    episodes = [each.seconds for each in await loop.runtime.store.outcomes()]
    return Measured(
        step_s=seconds / (steps - WARM),
        utilisation=(last.leased_s - first.leased_s) / (DESKTOPS * seconds),
        lease_s=(last.leased_s - first.leased_s) / leases,
        leases=leases,
        seconds=seconds,
        cpu_ms=(last.cpu_s - first.cpu_s) / leases * 1e3,
        lags=[group.lag for each in records for group in each.groups],
        spent=means([each.seconds for each in records]),
        stages=means(episodes),
    )


def means(spent: list[dict[str, float]]) -> dict[str, float]:
    """Where time went, by name."""
    names = sorted({name for each in spent for name in each})
    return {name: sum(each.get(name, 0.0) for each in spent) / len(spent) for name in names}


async def moment(loop: TrainLoop, client: PoolClient, step: int, running: asyncio.Task[None]) -> Moment:
    """How it stands once so many steps were taken."""
    while loop.step < step:
        await asyncio.wait((running,), timeout=0.02)
        if running.done() and loop.step < step:
            running.result()
            raise SystemExit(f"the loop ended after {loop.step} steps")
    now, status = time.perf_counter(), await client.status()
    return Moment(now, status.leased_s, sum(each.leases for each in status.desktops), time.process_time())


# --- what is expected ---


@dataclass(frozen=True)
class Expected:
    """What the simulation gives, in medians of an episode."""

    step: float
    utilisation: float
    lags: list[int]


class Simulation:
    """Desktops, groups and a trainer that take their time, and nothing else that does."""

    def __init__(self, pace: Pace, seed: int = 0) -> None:
        self.pace = pace
        self.dice = random.Random(seed)
        self.lengths = lengths(1.0)
        self.now = self.busy = 0.0
        self.step = 0
        self.free = DESKTOPS
        self.events: list[tuple[float, int, str, int]] = []
        self.count = itertools.count()
        self.waiting: list[int] = []
        """Groups whose episodes wait for a desktop, one entry for each."""
        self.left: dict[int, int] = {}
        """Groups in flight, and how many of their episodes are not over."""
        self.version: dict[int, int] = {}
        """Of the weights that a group was begun with."""
        self.closed: list[int] = []
        self.training = 0
        self.begun = 0
        self.lags: list[int] = []

    def run(self, steps: int) -> Expected:
        ends = []
        while self.step < steps:
            while self._begin() or self._lease() or self._train():
                pass
            self.now, _, what, group = heapq.heappop(self.events)
            if what == "episode":
                self._after(RESET, "reset")
                self.left[group] -= 1
                if not self.left[group]:
                    del self.left[group]
                    self.closed.append(group)
            elif what == "reset":
                self.free += 1
            else:
                self.step, self.training = self.step + 1, 0
                ends.append(self.now)
        return Expected((ends[-1] - ends[WARM]) / (steps - WARM - 1), self.busy / (DESKTOPS * self.now), self.lags)

    def _after(self, delay: float, what: str, group: int = 0) -> None:
        heapq.heappush(self.events, (self.now + delay, next(self.count), what, group))

    def _begin(self) -> bool:
        outstanding = len(self.left) + len(self.closed) + self.training
        if len(self.left) >= IN_FLIGHT or outstanding >= (self.pace.most_behind + 1) * GROUPS:
            return False
        self.left[self.begun] = SAMPLES
        self.version[self.begun] = self.step
        self.waiting += [self.begun] * SAMPLES
        self.begun += 1
        return True

    def _lease(self) -> bool:
        if not self.free or not self.waiting:
            return False
        group, length = self.waiting.pop(0), self.dice.choice(self.lengths)
        self.free -= 1
        self.busy += length
        self._after(length, "episode", group)
        return True

    def _train(self) -> bool:
        if self.training or len(self.closed) < GROUPS:
            return False
        self.closed.sort()
        batch, later = self.closed[:GROUPS], self.closed[GROUPS:]
        if self.pace.staleness is Staleness.WAIT and self._too_early([*later, *self.left]):
            return False
        self.lags += [self.step - self.version[each] for each in batch]
        self.closed, self.training = later, GROUPS
        self._after(1.0, "step")
        return True

    def _too_early(self, others: list[int]) -> bool:
        """Whether more of the others are due by some step than can be trained on until then."""
        due = Counter(max(self.version[each] + LAG - self.step, 0) for each in others)
        counts = itertools.accumulate(due[after] for after in range(LAG + 1))
        return any(count > steps * GROUPS for steps, count in enumerate(counts))


def expected(pace: Pace, steps: int = 2000) -> Expected:
    return Simulation(pace).run(steps)


if __name__ == "__main__":
    main()
