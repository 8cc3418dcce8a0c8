"""What the inside of the sandbox of upstream's evaluators looks like, and the command that makes it.

As `host/bubblewrap.py` makes it. Inside: the base Python and upstream's environment; two bounded folders in memory; the
folder of the relay, through which the desktop is reached. No home, no keys. It dies with the process that started it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from deskroll.host import bubblewrap
from deskroll.host.bubblewrap import Command, Inside

_MB = 1024 * 1024
_TMP = "/tmp"  # noqa: S108
_ROOMS = {_TMP: 512 * _MB, "/dev/shm": 64 * _MB}  # noqa: S108
RELAY = "/relay"
_ENV, _PYTHON, _PROGRAM = "/opt/osworld", "/opt/python", "/opt/upstream"
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"


def command(environment: Path, relay: Path) -> Command:
    """The command that starts a worker; it talks over standard input and output."""
    base = Path(sys.base_prefix).resolve()
    folders = {_ENV: str(environment), RELAY: str(relay), _PROGRAM: str(Path(__file__).parent)}
    if not base.is_relative_to("/usr"):
        folders[_PYTHON] = str(base)
    inside = Inside(
        host_name="evaluator",
        folders=folders,
        rooms=_ROOMS,
        work=_TMP,
        environment=_environment(),
        etc=("ld.so.cache", "fonts", "mime.types"),
        needs=("memfd_create",),  # for the answer
    )
    # The base Python itself: the environment's is a link to where that is outside.
    home = base if base.is_relative_to("/usr") else Path(_PYTHON)
    program = [str(home / "bin" / _VERSION), "-W", "ignore", "-X", "utf8", f"{_PROGRAM}/worker.py", RELAY]
    return bubblewrap.command(inside, program, options=["--die-with-parent"], needed_by="OSWorld's evaluators")


def _environment() -> dict[str, str]:
    found = {
        "HOME": _TMP,
        "LANG": "C.UTF-8",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": f"{_ENV}/lib/{_VERSION}/site-packages",
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": _TMP,
        "NO_PROXY": "*",
        "LD_LIBRARY_PATH": f"{_PYTHON}/lib",
    }
    return found | {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL", "NUMBA")}
