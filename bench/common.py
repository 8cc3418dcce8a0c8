"""What every benchmark shares: options, a place for figures, and the last line that programs read."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def options(description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="less work by the same method, done within 50 seconds")
    return parser.parse_args()


def machine() -> dict[str, object]:
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        "",
    )
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gb": round(pages / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


class Figures:
    """Figures as they come: printed at once, and all together at the end."""

    def __init__(self, bench: str) -> None:
        self._bench = bench
        self._machine = machine()
        self._figures: dict[str, float] = {}

    def add(self, name: str, value: float, note: str = "") -> None:
        self._figures[name] = round(value, 4)
        print(f"{name:<34} {value:>10.3f}   {note}", flush=True)

    def finish(self) -> None:
        print(json.dumps({"bench": self._bench, "figures": self._figures, "machine": self._machine}))


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


median = statistics.median


@contextmanager
def cpu_load(processes: int) -> Iterator[None]:
    """Busy loops on the host, beside whatever is measured."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
