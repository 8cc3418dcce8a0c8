"""The program inside the sandbox: runs upstream's getters and metrics. Stands alone; nothing of deskroll is there.

    worker.py RELAY    serve: one job a line on standard input, one answer a line on standard output
    worker.py --check  import everything, and say so

RELAY is a folder with a socket `<port>.sock` for each port of the desktop that may be reached, and `files/`, which each
job finds in its cache folder. Each job runs in a process of its own, forked after the imports; what it leaves running
is killed before the next one. An answer holds the token of its job, which no earlier job can know.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import json
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

STUBBED = ("easyocr",)
"""Modules that are too heavy to be installed. A metric that uses one is not scored."""
PORTS = (5000, 9222, 8080)
"""Of the guest's server, of Chromium's debugging, of VLC."""
_ALLOWED = ("localhost", "127.0.0.1", "::1", "publicsuffix.org", "raw.githubusercontent.com")
"""Names that may be looked up in vain: a package's list of domains is refreshed from the last two, or is not."""
_RUNS_CODE = "check_python_file"
"""Metrics that run what a model wrote; what that looks up is its own affair, and no reason not to score it."""
_LONGEST = 20_000
_CHUNK = 65536
_MEMORY = 4 * 1024**3
_PR_SET_DUMPABLE = 4

missed: list[str] = []
"""What a job wanted and did not get, in words; kept because metrics catch every exception and answer 0."""


class _Stub(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        missed.append(f"needs {self.__name__}, which is not installed")
        raise ImportError(missed[-1])


def load() -> tuple[Any, Any, Any]:
    """Import the package, with what is left out of the environment stubbed."""
    for name in STUBBED:
        try:
            importlib.import_module(name)
        except ImportError:
            sys.modules[name] = _Stub(name)
    getters = importlib.import_module("desktop_env.evaluators.getters")
    metrics = importlib.import_module("desktop_env.evaluators.metrics")
    controllers = importlib.import_module("desktop_env.controllers.python")
    return getters, metrics, controllers


def check_structure_sim_with_threshold(src_path: str | None, tgt_path: str | None, **options: Any) -> float:
    """Whether two images, brought to one size, are alike: SSIM of at least `ssim_threshold` (0.85)."""
    from PIL import Image  # noqa: PLC0415

    gimp = importlib.import_module("desktop_env.evaluators.metrics.gimp")
    if src_path is None or tgt_path is None:
        return 0.0
    target: Any = Image.open(tgt_path)
    try:
        source: Any = Image.open(src_path)
        if source.size != target.size:
            source = source.resize(target.size, Image.Resampling.LANCZOS)
    except OSError:
        return 0.0
    return float(gimp.structure_check_by_ssim(source, target, options.get("ssim_threshold", 0.85)))


SUPPLEMENT = {"check_structure_sim_with_threshold": check_structure_sim_with_threshold}


class Env:
    """What upstream's getters use of its DesktopEnv."""

    def __init__(self, controllers: Any, job: dict[str, Any], cache: str) -> None:
        self.vm_ip, self.server_port, self.chromium_port, self.vlc_port = "127.0.0.1", *PORTS
        self.controller = controllers.PythonController(self.vm_ip, self.server_port)
        self.controller.retry_interval = 0.2
        self.absent: list[str] = []
        """Files that were asked for and are not in the desktop."""
        self._get_file = self.controller.get_file
        self.controller.get_file = self._file
        self.cache_dir = cache
        self.task_id = job["task_id"]
        self.instruction = job["instruction"]
        self.config = job["config"]
        self.evaluator = job["evaluator"]
        self.enable_proxy = self.current_use_proxy = False

    def _file(self, path: str) -> Any:
        data = self._get_file(path)
        if data is None:
            self.absent.append(path)
        return data

    @property
    def vm_platform(self) -> Any:
        """Linux, Windows or Darwin."""
        return self.controller.get_vm_platform()

    @property
    def vm_screen_size(self) -> Any:
        """Width and height."""
        return self.controller.get_vm_screen_size()


def judge(job: dict[str, Any], package: tuple[Any, Any, Any], cache: str) -> float:
    """The value of one part. Without the file that is judged it is 0, also where upstream's code stumbles over that."""
    getters, metrics, controllers = package
    env = Env(controllers, job, cache)
    metric = SUPPLEMENT.get(job["func"]) or getattr(metrics, job["func"])
    config = job["result"]
    try:
        given = [getattr(getters, "get_" + config["type"])(env, config) if config else None]
    except Exception as error:
        if env.absent or isinstance(error, FileNotFoundError):
            return 0.0
        raise
    absent = bool(env.absent)
    if job["expected"]:
        given.append(getattr(getters, "get_" + job["expected"]["type"])(env, job["expected"]))
    try:
        value = metric(*given, **job["options"])
    except Exception:
        if absent:
            return 0.0
        raise
    if value is None:
        raise ValueError(job["func"] + " gave no value")
    return float(value)


def answer(job: dict[str, Any], package: tuple[Any, Any, Any], relay: Path) -> dict[str, Any]:
    """One job's answer: its value, or why there is none."""
    if not job["func"].startswith(_RUNS_CODE):
        _watch_names()
    cache = tempfile.mkdtemp(prefix="cache-")
    os.chdir(cache)
    if (relay / "files").is_dir():
        shutil.copytree(relay / "files", cache, dirs_exist_ok=True)
    try:
        value = judge(job, package, cache)
    except BaseException as error:  # noqa: BLE001  (whatever it is, the other side is told)
        return {"error": f"{type(error).__name__}: {error}"[:2000], "traceback": traceback.format_exc()[-_LONGEST:]}
    finally:
        os.chdir("/")
        shutil.rmtree(cache, ignore_errors=True)
    return {"error": missed[0], "traceback": "\n".join(missed)[:_LONGEST]} if missed else {"value": value}


def _watch_names() -> None:
    """Note every name that is looked up: there is no network here, and metrics would keep that to themselves."""
    plain = socket.getaddrinfo

    def watched(host: Any, *args: Any, **more: Any) -> Any:
        name = host.decode(errors="replace") if isinstance(host, bytes) else str(host)
        if host is not None and name not in _ALLOWED:
            missed.append(f"wants to reach {name[:200]}, and evaluators reach only their desktop")
        return plain(host, *args, **more)

    socket.getaddrinfo = watched


def _carry(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def _accept(listener: socket.socket, path: str) -> None:
    while True:
        inner, _ = listener.accept()
        outer = socket.socket(socket.AF_UNIX)
        try:
            outer.connect(path)
        except OSError:
            inner.close()
            continue
        for pair in ((inner, outer), (outer, inner)):
            threading.Thread(target=_carry, args=pair, daemon=True).start()


def listeners(relay: Path) -> list[tuple[socket.socket, str]]:
    """The loopback ports of the sandbox, each with the socket that it is carried to."""
    found = []
    for port in PORTS:
        listener = socket.socket()
        listener.bind(("127.0.0.1", port))
        listener.listen()
        found.append((listener, str(relay / f"{port}.sock")))
    return found


def carry(ports: list[tuple[socket.socket, str]]) -> None:
    """Carry the ports to the desktop's, without end."""
    threads = [threading.Thread(target=_accept, args=each) for each in ports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def forked(work: Callable[[], None]) -> int:
    """Do something in a process of its own, which never comes back here."""
    child = os.fork()
    if child:
        return child
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        work()
    except BaseException:  # noqa: BLE001  (printed for whoever looks into it)
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def end_others() -> None:
    """Kill all processes but this one and the first: what a model wrote may have run, and nothing of it stays."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def serve(relay: Path) -> None:
    """Answer jobs until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what metrics print is no answer
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)  # nobody looks into this process
    ports = listeners(relay)
    package = load()

    def say(said: dict[str, Any]) -> None:
        answers.write(json.dumps(said) + "\n")
        answers.flush()

    say({})
    for line in sys.stdin:
        job = json.loads(line)
        token = job.pop("token")
        forked(functools.partial(carry, ports))
        child = forked(lambda job=job, token=token: say(answer(job, package, relay) | {"token": token}))  # type: ignore[misc]
        _, status = os.waitpid(child, 0)
        end_others()
        if status:
            say({"token": token, "error": f"the evaluator died (status {status})"})


if __name__ == "__main__":
    if sys.argv[1] == "--check":
        load()
    else:
        serve(Path(sys.argv[1]))
