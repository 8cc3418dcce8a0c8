"""GPUs: how many there are, and how much of their memory is used, as `nvidia-smi` says; none where it is not there."""

from __future__ import annotations

import asyncio
import shutil
import subprocess

from deskroll.types import Record

_QUERY = ("--query-gpu=index,memory.used,memory.total", "--format=csv,noheader,nounits")
_LONGEST_S = 10.0


class Gpu(Record, frozen=True):
    """One GPU of this machine."""

    index: str
    used_mb: int
    total_mb: int


async def find_gpus() -> tuple[Gpu, ...]:
    """Those of this machine, at this moment."""
    program = shutil.which("nvidia-smi")
    return () if program is None else await asyncio.to_thread(_ask, program)


def read_gpus(text: str) -> tuple[Gpu, ...]:
    """What `nvidia-smi` printed; a line that says something else is passed over."""
    lines = [[word.strip() for word in line.split(",")] for line in text.splitlines()]
    return tuple(
        Gpu(index=words[0], used_mb=int(words[1]), total_mb=int(words[2]))
        for words in lines
        if len(words) == 3 and words[1].isdigit() and words[2].isdigit()
    )


def _ask(program: str) -> tuple[Gpu, ...]:
    try:
        said = subprocess.run([program, *_QUERY], capture_output=True, text=True, timeout=_LONGEST_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return read_gpus(said.stdout)
