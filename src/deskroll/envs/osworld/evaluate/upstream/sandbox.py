"""What the inside of an evaluator's sandbox looks like, and the command that makes it.

Inside: namespaces of its own, loopback as the only network; /usr, the base Python and upstream's environment read-only;
two bounded folders in memory; the folder of the relay, through which the desktop is reached. No home, no keys, nothing
of the worker's environment. Where the worker is root, its evaluators are nobody. It dies with the process that
started it.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from deskroll.envs.interpreter import launch
from deskroll.errors import MissingDependency

_HOST_UID = 65534
_MB = 1024 * 1024
_ROOM, _SHARED_ROOM = str(512 * _MB), str(64 * _MB)
_TMP = "/tmp"  # noqa: S108
RELAY = "/relay"
_ENV, _PYTHON = "/opt/osworld", "/opt/python"


def command(environment: Path, relay: Path) -> list[str]:
    """The command that starts a worker; it talks over standard input and output."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise MissingDependency(
            "OSWorld's evaluators need bubblewrap: apt-get install -y --no-install-recommends bubblewrap"
        )
    base = Path(sys.base_prefix).resolve()
    seen = {
        str(environment): _ENV,
        str(relay): RELAY,
        str(Path(__file__).parent): "/opt/upstream",
    }
    if not base.is_relative_to("/usr"):
        seen[str(base)] = _PYTHON
    as_root = os.getuid() == 0
    sources = [f"{launch.STAGE}/{n}" for n in range(len(seen))] if as_root else list(seen)
    words = [bwrap, *_arguments(dict(zip(sources, seen.values(), strict=True))), "--", *_program(environment, base)]
    if as_root:
        words = [sys.executable, "-I", "-S", launch.__file__, str(_HOST_UID), "", "\n".join(seen), *words]
    return words


def _program(environment: Path, base: Path) -> list[str]:
    """The base Python itself: the environment's is a link to where that is outside."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    home = base if base.is_relative_to("/usr") else Path(_PYTHON)
    return [str(home / "bin" / version), "-W", "ignore", "-X", "utf8", "/opt/upstream/worker.py", RELAY]


def _arguments(binds: dict[str, str]) -> list[str]:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    args = ["--unshare-all", "--new-session", "--die-with-parent", "--uid", "1000", "--gid", "1000"]
    args += ["--hostname", "evaluator", "--dev", "/dev", "--size", _SHARED_ROOM, "--tmpfs", "/dev/shm"]  # noqa: S108
    args += ["--remount-ro", "/dev", "--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            args += ["--symlink", f"usr/{name}", f"/{name}"]
        elif Path("/", name).exists():
            args += ["--ro-bind", f"/{name}", f"/{name}"]
    for source, target in binds.items():
        args += ["--ro-bind", source, target]
    for name in ("ld.so.cache", "fonts", "mime.types"):
        args += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    args += ["--size", _ROOM, "--tmpfs", _TMP, "--chdir", _TMP, "--clearenv"]
    environment = {
        "HOME": _TMP,
        "LANG": "C.UTF-8",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": f"{_ENV}/lib/{version}/site-packages",
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": _TMP,
        "NO_PROXY": "*",
        "LD_LIBRARY_PATH": f"{_PYTHON}/lib",
    }
    environment |= {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL", "NUMBA")}
    for name, value in environment.items():
        args += ["--setenv", name, value]
    return [*args, "--remount-ro", "/"]
