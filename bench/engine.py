"""The rollout engine beside a bare loop and beside the documented design: what a turn costs, and how many come through.

    python bench/engine.py [--quick | --profile] [--only c64]

1,000 episodes of 5 turns: four with one call of the calculator, then the answer. The model is a server on this machine,
in a process of its own, that answers after 50 ms (engine_server.py). With 64 and with 256 episodes in flight, and with
64 where each turn has a screen of 150 KB, the last of which is sent. Three contenders, one after another:

    ours        a Session with worker processes, one a core, its journal and every attempt durable on a disk
    bare        one process, aiohttp on uvloop: the same requests and tool calls; it stores nothing
    documented  a process for each episode in flight, the `openai` client, a manager's queue (documented_rollout.py);
                fewer episodes, for what counts is what each of them costs

Each is started by itself, runs some episodes that do not count, and then says that it is ready. CPU is user and system
time of all of its processes from then until its last episode is done; memory is the highest sum of their proportional
set sizes, looked at from here every 0.2 s meanwhile. Full runs take the median of three rounds. A line for each says
what the server used, how long requests were (the same for all), and how busy the machine was with anything else: a few
percent, or the figures are worth less.

index_100k_s: `Run.open` on a run of 100,000 episodes, one sample of each task, in a new process, imports not counted.
`--profile` shows instead where the time goes: ours in one process, under cProfile.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import aiohttp
import msgspec
import psutil
import uvloop

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from common import Figures, median
from deskroll.agents.chat import SYSTEM_PROMPT
from deskroll.envs.math import MathEnv
from deskroll.rollout.config import RunConfig
from deskroll.rollout.job import Job as Work
from deskroll.rollout.openfiles import raise_open_files
from deskroll.rollout.session import Session
from deskroll.store import RunInfo, info, journal, paths
from deskroll.store.chain import Chain
from deskroll.store.journal import Closed, CloseReason, JournalRecord, Opened, Planned, Sealed, Started
from deskroll.types import Episode, EpisodeKey, Score, StopReason, Task, Usage
from documented_rollout import (
    MODEL,
    Job,
    await_go,
    calculator,
    opening,
    question,
    results,
    tell_end,
    with_last_image,
)
from engine_server import ANSWER, TURNS

WARM_UP = 64
INDEXED = 100_000
LOOK_S = 0.2
PROFILED = 300
Backend = Literal["process", "inline"]


@dataclass(frozen=True)
class Case:
    """One size of the comparison."""

    name: str
    in_flight: int
    episodes: int
    documented: int
    """Episodes of the documented design."""
    screens: bool = False


FULL = (Case("c64", 64, 1000, 256), Case("c256", 256, 1000, 512), Case("c64_screens", 64, 1000, 128, screens=True))
QUICK = (Case("c64", 64, 200, 64), Case("c256", 256, 512, 128), Case("c64_screens", 64, 100, 32, screens=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less work by the same method, done within 50 seconds")
    parser.add_argument("--profile", action="store_true", help="print the 35 functions that ours spends most time in")
    parser.add_argument("--only", choices=[case.name for case in FULL], help="this size alone, and no index")
    given = parser.parse_args()
    if given.profile:
        profile()
        return
    figures = Figures("engine")
    with Server() as server, Scratch() as scratch:
        for case in QUICK if given.quick else FULL:
            if given.only in (None, case.name):
                compare(figures, server, scratch, case, rounds=1 if given.quick else 3)
        if given.only is None:
            index(figures, scratch.folder())
    figures.finish()


# --- three contenders ---


@dataclass(frozen=True)
class Measured:
    """What came of one contender."""

    cpu_ms: float
    """For each turn."""
    episodes_per_s: float
    pss_mb: float
    server_ms: float
    """CPU of the server for each request."""
    body_kb: float
    others: float
    """The share of the machine's CPU that neither of them used: the kernel's own, and whatever else ran."""


def compare(figures: Figures, server: Server, scratch: Scratch, case: Case, rounds: int) -> None:
    starts = {"ours": _here("run_ours"), "bare": _here("run_bare"), "documented": [str(HERE / "documented_rollout.py")]}
    found: dict[str, list[Measured]] = {name: [] for name in starts}
    for _ in range(rounds):
        for name, start in starts.items():
            episodes = case.documented if name == "documented" else case.episodes
            job = job_of(server.url, case, episodes, scratch.folder())
            measured = measure(server, job, start)
            found[name].append(measured)
            print(
                f"  {case.name} {name:<10} {episodes:>5} episodes: {measured.cpu_ms:6.3f} ms CPU a turn, "
                f"{measured.episodes_per_s:6.1f} episodes/s, {measured.pss_mb:6.0f} MB; "
                f"server {measured.server_ms:.3f} ms a request of {measured.body_kb:.2f} kB; "
                f"others {measured.others:.0%}",
                flush=True,
            )
    _tell(figures, case, {name: _median(each) for name, each in found.items()})


def _tell(figures: Figures, case: Case, found: dict[str, Measured]) -> None:
    ours, bare, documented = found["ours"], found["bare"], found["documented"]
    bound = case.in_flight / (TURNS * 0.05)
    sizes = {"": case.episodes, "bare_": case.episodes, "documented_": case.documented}
    for prefix, each in zip(sizes, (ours, bare, documented), strict=True):
        note = f"{sizes[prefix]} episodes of {TURNS} turns, {case.in_flight} in flight"
        figures.add(f"{prefix}cpu_ms_per_turn_{case.name}", each.cpu_ms, note)
        figures.add(f"{prefix}episodes_per_s_{case.name}", each.episodes_per_s, f"the model allows {bound:.0f}")
    figures.add(f"cpu_vs_bare_{case.name}", ours.cpu_ms / bare.cpu_ms, "CPU a turn, ours / bare loop")
    figures.add(f"episodes_vs_bare_{case.name}", ours.episodes_per_s / bare.episodes_per_s, "episodes/s, ours / bare")
    ratio = documented.cpu_ms / ours.cpu_ms
    figures.add(f"documented_cpu_vs_ours_{case.name}", ratio, "CPU a turn, documented / ours")
    note = f"all processes; documented, at its end: {documented.pss_mb:.0f}; bare: {bare.pss_mb:.0f}"
    figures.add(f"peak_pss_mb_{case.name}", ours.pss_mb, note)


def _median(found: list[Measured]) -> Measured:
    return Measured(*(median([getattr(each, field) for each in found]) for field in Measured.__dataclass_fields__))


def _here(function: str) -> list[str]:
    return ["-c", f"import engine; engine.{function}()"]


def measure(server: Server, job: Job, start: list[str], beside: Sequence[Server] = ()) -> Measured:
    """Start a contender, let it run its episodes, and look at it from outside; `beside`: servers that it asks, too."""
    servers = (server, *beside)
    many = start[0] != "-c"  # a process for each episode: to look at all of them again and again would disturb them
    with _contender([*start, job.to_json()]) as process:
        _line(process)
        before, tree, behind, whole = _stats(servers), cpu_s(process.pid), _behind_s(servers), machine_s()
        peak = Peak(process.pid)
        with peak.watched(0.0 if many else LOOK_S):
            _go_on(process)
            seconds = json.loads(_line(process))["seconds"]
            tree, behind, whole = cpu_s(process.pid) - tree, _behind_s(servers) - behind, machine_s() - whole
        peak.look()
        after = _stats(servers)
        _go_on(process)
    calls, body_bytes = after[0] - before[0], after[1] - before[1]
    turns = job.episodes * TURNS
    if calls != turns:
        raise SystemExit(f"the server was asked {calls} times for {turns} turns: this compares nothing")
    return Measured(
        cpu_ms=tree / turns * 1e3,
        episodes_per_s=job.episodes / seconds,
        pss_mb=peak.mb,
        server_ms=behind / calls * 1e3,
        body_kb=body_bytes / calls / 1e3,
        others=max(0.0, whole - tree - behind) / (seconds * (os.cpu_count() or 1)),
    )


def _stats(servers: Sequence[Server]) -> tuple[int, int]:
    """Requests so far, and the bytes of their bodies."""
    each = [server.stats() for server in servers]
    return sum(calls for calls, _ in each), sum(size for _, size in each)


def _behind_s(servers: Sequence[Server]) -> float:
    return sum(cpu_s(server.pid) for server in servers)


def job_of(url: str, case: Case, episodes: int, folder: Path) -> Job:
    env = MathEnv(Task(id="any", instruction=""), MathEnv.Settings())
    tools = [{"type": "function", "function": msgspec.to_builtins(tool)} for tool in env.tools]
    return Job(url, case.in_flight, episodes, WARM_UP, case.screens, str(folder), SYSTEM_PROMPT, tools)


@contextmanager
def _contender(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    process = subprocess.Popen(
        [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        env=environment | {"PYTHONPATH": str(HERE)},
    )  # fmt: skip
    try:
        yield process
        if process.wait(60):
            raise SystemExit(f"a contender ended with code {process.returncode}")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    if not (line := process.stdout.readline()):
        raise SystemExit("a contender died; what it printed stands above")
    return line


def _go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


class Server:
    """engine_server.py at work."""

    def __enter__(self) -> Server:
        command = [sys.executable, str(HERE / "engine_server.py")]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url, self.pid = _line(self._process).strip(), self._process.pid
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.communicate(timeout=30)

    def stats(self) -> tuple[int, int]:
        """Requests so far, and the bytes of their bodies."""
        with urllib.request.urlopen(f"{self.url}/stats") as response:
            found = json.load(response)
        return found["calls"], found["body_bytes"]


# --- looking at a tree of processes ---


def tree_of(pid: int) -> list[int]:
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]


def cpu_s(pid: int) -> float:
    """User and system time of a process and all below it, those that have ended and been waited for included."""
    return sum(map(_cpu_s, tree_of(pid)))


def _cpu_s(pid: int) -> float:
    try:
        own = time.clock_gettime(
            (~pid << 3) | 2
        )  # its CPU clock (see clock_getcpuclockid): exact, where stat has ticks
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it ended in between: whoever waits for it has its time
        return 0.0
    return own + (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def machine_s() -> float:
    """CPU time that all of the machine has used."""
    user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


class Peak:
    """The most memory that a tree of processes had at a time, by its proportional set sizes."""

    def __init__(self, pid: int) -> None:
        self.mb = 0.0
        self._pid = pid

    def look(self) -> None:
        self.mb = max(self.mb, sum(map(_pss_mb, tree_of(self._pid))))

    @contextmanager
    def watched(self, every_s: float) -> Iterator[None]:
        """Look again and again during the block; 0: not at all."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(every_s):
                self.look()

        thread = threading.Thread(target=watch)
        if every_s:
            thread.start()
        try:
            yield
        finally:
            over.set()
            if every_s:
                thread.join()


def _pss_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


class Scratch:
    """Folders below the working directory, on a disk; all of them are deleted in the end, and not before.

    ext4 gives no inode away that was deleted within the last minutes, and looks at every such one again for each new
    file: what was deleted before would be paid for by whoever writes now, up to ten times what a file costs. So each
    folder is put into a part of the disk of its own, where that can be had (chattr +T).
    """

    def __enter__(self) -> Scratch:
        kind = subprocess.run(["stat", "-f", "-c", "%T", "."], stdout=subprocess.PIPE, text=True, check=True).stdout
        if kind.strip() in ("tmpfs", "ramfs"):
            raise SystemExit(f"the working directory is in memory ({kind.strip()}): run this from a folder on a disk")
        self._root = Path(tempfile.mkdtemp(prefix="bench-engine-", dir=Path.cwd()))
        subprocess.run(["chattr", "+T", str(self._root)], stderr=subprocess.DEVNULL, check=False)
        return self

    def __exit__(self, *exc: object) -> None:
        shutil.rmtree(self._root)

    def folder(self) -> Path:
        """A new one, with nothing left to be written to the disk by anybody."""
        folder = Path(tempfile.mkdtemp(dir=self._root))
        os.sync()
        return folder


# --- ours ---


def run_ours() -> None:
    """What a contender's process does."""
    raise_open_files()
    uvloop.run(ours(Job.from_json(sys.argv[1])))


async def ours(
    job: Job,
    backend: Backend = "process",
    begin: Callable[[], None] = await_go,
    end: Callable[[float], None] = tell_end,
    settings: Mapping[str, object] | None = None,
) -> None:
    config = RunConfig.model_validate({
        "env": "engine_screens:ScreensEnv" if job.screens else "math",
        "agent_options": {"max_images": 1},
        "model": {"name": MODEL, "base_url": f"{job.url}/v1"},
        "num_rollouts": job.in_flight,
        "backend": backend,
        "output_dir": job.folder,
        "run_id": "run",
        **(settings or {}),
    })  # fmt: skip
    tasks = [Task(id=f"t{number}", instruction=question(number), answer=ANSWER) for number in range(job.episodes)]
    async with Session.open(config, tasks) as session:
        await session.runtime.run_prepared(Work("warm-up", tasks[: job.warm_up], config)).outcomes()
        begin()
        began = time.perf_counter()
        episodes = await session.run()
        seconds = time.perf_counter() - began
        end(seconds)
    right = sum(episode.score.value == 1.0 for episode in episodes)
    if right != job.episodes:
        raise SystemExit(f"{right} of {job.episodes} episodes were scored 1")


# --- the bare loop ---


def run_bare() -> None:
    """What a contender's process does."""
    raise_open_files()
    uvloop.run(bare(Job.from_json(sys.argv[1])))


async def bare(job: Job) -> None:
    connector, headers = aiohttp.TCPConnector(limit=0), {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def several(episodes: Iterator[int]) -> None:
            for episode in episodes:
                if await bare_episode(job, session, episode) != ANSWER:
                    raise SystemExit(f"the answer of episode {episode} is wrong")

        async def rollout(episodes: Iterator[int]) -> None:
            await asyncio.gather(*(several(episodes) for _ in range(job.in_flight)))

        await rollout(iter(range(job.warm_up)))
        await_go()
        began = time.perf_counter()
        await rollout(iter(range(job.episodes)))
        tell_end(time.perf_counter() - began)


async def bare_episode(job: Job, session: aiohttp.ClientSession, episode: int) -> str:
    messages = opening(job, episode)
    turn = 0
    while True:
        sent = with_last_image(messages) if job.screens else messages
        body = msgspec.json.encode({"model": MODEL, "messages": sent, "tools": job.tools})
        async with session.post(f"{job.url}/v1/chat/completions", data=body) as response:
            response.raise_for_status()
            said = msgspec.json.decode(await response.read())["choices"][0]["message"]
        messages.append(said)
        if "tool_calls" not in said:
            answer: str = said["content"]
            return answer
        for call in said["tool_calls"]:
            messages += results(job, episode, turn, call["id"], calculator(call["function"]["arguments"]))
        turn += 1


# --- reading a large run ---


def index(figures: Figures, folder: Path) -> None:
    size = write_large_run(folder)
    with (folder / paths.JOURNAL).open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # the first one reads the disk
    times = [_opened_s(folder) for _ in range(4)]
    note = f"{INDEXED:,} episodes, a journal of {size / 1e6:.0f} MB; best of 3; before, from the disk: {times[0]:.3f}"
    figures.add("index_100k_s", min(times[1:]), note)


def write_large_run(folder: Path) -> int:
    """A run whose episodes are all done; the size of its journal."""
    keys = [EpisodeKey(phase="eval", round=0, task=f"task-{number:06}", sample=0) for number in range(INDEXED)]
    (folder / paths.RUN_JSON).write_bytes(info.encode(RunInfo(run_id="large")))
    chain = Chain(b"")
    with (folder / paths.JOURNAL).open("wb") as file:

        def write(record: JournalRecord) -> None:
            file.write(chain.link(journal.encode(record)))

        write(Opened(epoch=1, at=1e9))
        for key in keys:
            digest = "0123456789abcdef0123456789abcdef"
            write(Planned(phase="eval", round=0, task=key.task, samples=1, digest=digest, of=INDEXED))
        for number, key in enumerate(keys):
            write(Started(key=key, attempt=1, epoch=1, at=1e9 + number))
            write(Sealed(episode=_outcome(key, number), epoch=1))
        write(Closed(epoch=1, at=2e9, why=CloseReason.FINISHED))
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


def _outcome(key: EpisodeKey, number: int) -> Episode:
    return Episode(
        key=key,
        attempt=1,
        stop=StopReason.ANSWER,
        score=Score(value=float(number % 2), reason="exact_match: the answer is the reference"),
        steps=5,
        actions=5,
        answer=ANSWER,
        model=MODEL,
        versions=("fp_bench",),
        usage=Usage(prompt_tokens=2100, completion_tokens=120, calls=5),
        started_at=1e9 + number,
        ended_at=1e9 + number + 0.26,
        seconds={"permit": 0.01234, "setup": 0.00012, "model": 0.25678, "act": 0.00123, "store": 0.00456},
    )


_OPEN = """
import sys, time
from deskroll.store import Run

began = time.perf_counter()
run = Run.open(sys.argv[1])
print(time.perf_counter() - began, run.index.done)
"""


def _opened_s(folder: Path) -> float:
    """How long a new process takes, its imports not counted."""
    command = [sys.executable, "-c", _OPEN, str(folder)]
    seconds, done = subprocess.run(command, stdout=subprocess.PIPE, timeout=120, check=True).stdout.split()
    if int(done) != INDEXED:
        raise SystemExit(f"{int(done)} episodes are done, and {INDEXED} should be")
    return float(seconds)


# --- where the time goes ---


def profile() -> None:
    profiler = cProfile.Profile()
    case = Case("c64", 64, PROFILED, 0)

    def end(seconds: float) -> None:
        profiler.disable()
        print(f"{PROFILED} episodes in {seconds:.2f} s, under the profiler; divide by {PROFILED * TURNS} for a turn")

    with Server() as server, Scratch() as scratch:
        job = job_of(server.url, case, PROFILED, scratch.folder())
        uvloop.run(ours(job, "inline", begin=profiler.enable, end=end))
    pstats.Stats(profiler).sort_stats("tottime").print_stats(35)


if __name__ == "__main__":
    # Whoever ends this process by a signal wants the `with` blocks to end the others.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
