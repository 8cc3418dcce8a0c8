"""The bundled suite from end to end: what a task costs besides its program, and how many a minute there are.

    python bench/suite.py [--quick]

The oracle plays every task of `suite:desk`: first on one desktop, one after another, for the overhead; then on four at
once, for the throughput. Overhead is what set-up, evaluation and the reset of the desktop take, without the steps that
start a program and wait for its window (`launch`, `open`, `activate_window`, `chrome_open_tabs`). What the program
still paints afterwards, and reading the first screen and tree, count as overhead. OSWorld's runner sleeps 80 s a task:
60 before the agent begins, 20 before the evaluation. --quick: only the tasks on small programs.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from common import Figures, median, options, percentile
from deskroll.report.results import Results
from deskroll.rollout.loading import load_run
from deskroll.rollout.session import Session
from deskroll.store.journal import DesktopChanged
from deskroll.suites import small_tasks
from deskroll.types import Episode, Task

OWN_START = ("launch", "open", "activate_window", "chrome_open_tabs")
RESET = ("stopping", "booting", "checking")
"""What a used desktop goes through until the next task can have one."""
OSWORLD_SLEEPS_S = 80.0


async def main() -> None:
    quick = options(__doc__).quick
    figures = Figures("suite")
    with tempfile.TemporaryDirectory() as folder:
        alone, _ = await played(Path(folder), desktops=1, quick=quick)
        overhead(figures, alone)
        together, seconds = await played(Path(folder), desktops=4, quick=quick)
    done = together.outcomes
    figures.add("episodes_per_min", 60 * len(done) / seconds, f"{len(done)} tasks on 4 desktops in {seconds:.0f} s")
    both = [*alone.outcomes, *done]
    figures.add("success_share", sum(each.score.value == 1.0 for each in both) / len(both), f"of {len(both)}")
    figures.add("unscored", sum(not each.score.scored for each in both))
    figures.finish()


async def played(folder: Path, *, desktops: int, quick: bool) -> tuple[Results, float]:
    """Run the suite; how long it took, from the first desktop to the last episode."""
    given = {"tasks": "suite:desk", "agent": "oracle", "num_vms": desktops, "num_rollouts": desktops}
    output = {"output_dir": str(folder), "run_id": f"on-{desktops}"}
    config, tasks = load_run(None, [f"{name}={json.dumps(value)}" for name, value in {**given, **output}.items()])
    chosen: list[Task] = small_tasks(tasks) if quick else tasks
    async with Session.open(config, chosen) as session:
        began = time.perf_counter()
        await session.run()
        seconds = time.perf_counter() - began
    return Results.read(folder / f"on-{desktops}"), seconds


def overhead(figures: Figures, results: Results) -> None:
    reset = sum(median([each.seconds for each in _left(results, state)]) for state in RESET)
    starts, rests, scores = zip(*(_parts(results, each) for each in results.outcomes), strict=True)
    totals = [rest + score + reset for rest, score in zip(rests, scores, strict=True)]
    parts = f"set-up {median(rests):.2f}, score {median(scores):.2f}, reset {reset:.2f}"
    note = f"{len(totals)} tasks, one after another; {parts}"
    figures.add("overhead_p50_s", median(totals), note)
    figures.add("overhead_p90_s", percentile(totals, 0.9))
    figures.add(
        "program_start_p50_s", median(starts), f"the programs' own, not in it; p90 {percentile(starts, 0.9):.1f}"
    )
    figures.add("overhead_vs_osworld", OSWORLD_SLEEPS_S / median(totals), "what OSWorld's runner sleeps, over ours")


def _parts(results: Results, episode: Episode) -> tuple[float, float, float]:
    """Programs' own start, the rest of the set-up, the evaluation."""
    attempt = results.run.attempt(episode.key, episode.attempt)
    took = json.loads(attempt.read("setup.json")) if "setup.json" in attempt.files() else []
    own = sum(each["seconds"] for each in took if each["type"] in OWN_START)
    return own, episode.seconds["setup"] - own, episode.seconds.get("score", 0.0)


def _left(results: Results, state: str) -> list[DesktopChanged]:
    """The changes by which desktops left a state."""
    before: dict[str, str] = {}
    found = []
    for change in sorted(results.changes, key=lambda each: each.at):
        if before.get(change.desktop) == state:
            found.append(change)
        before[change.desktop] = change.state
    return found


if __name__ == "__main__":
    asyncio.run(main())
