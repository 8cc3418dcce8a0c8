"""Ten thousand episodes in flight at once on a thousand simulated desktops: how long, in how much memory.

Figures: episodes, in_flight (the most at once), desktops, seconds, episodes_per_s, peak_pss_mb (coordinator with the
pool and the simulated desktops, workers, and the scripted model server that the coordinator serves here), unscored.
Beside it the same work at num_rollouts = num_vms, to see what nine thousand that wait cost: waiting_cost (ratio of the
times). `--quick`: a thousand on a hundred.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import psutil

from common import Figures, options
from deskroll.models.scripted import Script, ScriptedServer
from deskroll.rollout.config import RunConfig
from deskroll.rollout.openfiles import raise_open_files
from deskroll.rollout.session import Session
from deskroll.tasks import parse_task

CLICK = {"tools": [{"name": "computer", "arguments": {"action_type": "CLICK", "parameters": {"x": 5, "y": 5}}}]}
FAIL = {"tools": [{"name": "computer", "arguments": {"action_type": "FAIL"}}]}
SCRIPT = Script.parse({"latency": 0.05, "replies": [{"turns": [CLICK, CLICK, FAIL]}]})


def main() -> None:
    quick = options(__doc__).quick
    figures = Figures("scale")
    raise_open_files()
    episodes, desktops = (1_000, 100) if quick else (10_000, 1_000)
    with tempfile.TemporaryDirectory(prefix="bench-scale-", dir=Path.cwd()) as folder:
        found = asyncio.run(run(Path(folder) / "all", episodes, desktops, episodes))
        few = asyncio.run(run(Path(folder) / "few", episodes, desktops, desktops))
    for name, value in {"episodes": episodes, "desktops": desktops, **found}.items():
        figures.add(name, value)
    figures.add("seconds_no_waiting", few["seconds"], f"{desktops} in flight")
    figures.add("waiting_cost", found["seconds"] / few["seconds"], "all in flight : as many as desktops")
    figures.finish()


async def run(folder: Path, episodes: int, desktops: int, in_flight: int) -> dict[str, float]:
    tasks = [
        parse_task({"id": f"t{n}", "question": f"Try it ({n})", "evaluator": {"func": "infeasible"}}, "here")
        for n in range(episodes)
    ]
    env = {"screen_width": 640, "screen_height": 360, "observation_type": "screenshot"}
    async with ScriptedServer(SCRIPT) as server:
        config = RunConfig.model_validate({
            "env": "osworld", "env_options": env, "provider": "sim", "num_vms": desktops, "num_rollouts": in_flight,
            "model": {"name": "scripted", "base_url": server.url}, "output_dir": str(folder), "run_id": "run",
        })  # fmt: skip
        async with Session.open(config, tasks) as session:
            started = time.monotonic()
            work = asyncio.create_task(session.run())
            peak, most = 0.0, 0
            while not work.done():
                await asyncio.wait([work], timeout=0.5)
                peak, most = max(peak, pss_mb()), max(most, len(session.engine.running))
                done = session.state.standing().done
                print(
                    f"\r{done:>6} of {episodes} done, {len(session.engine.running):>6} in flight, {peak:.0f} MB", end=""
                )
            outcomes = await work
            seconds = time.monotonic() - started
    print()
    return {
        "seconds": seconds,
        "in_flight": most,
        "episodes_per_s": episodes / seconds,
        "peak_pss_mb": peak,
        "unscored": sum(each.score.value is None for each in outcomes) + episodes - len(outcomes),
    }


def pss_mb() -> float:
    me = psutil.Process()
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return total


if __name__ == "__main__":
    main()
