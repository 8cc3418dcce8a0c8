"""The program inside the sandbox: runs upstream's getters and metrics. Stands alone; nothing of deskroll is there.

    worker.py RELAY    serve: one job a line on standard input, one answer a line on standard output
    worker.py --check  import everything, and say so

RELAY is a folder with a socket `<port>.sock` for each port of the desktop that may be reached, and `files/`, which each
job finds in its cache folder. Each job runs in a process of its own, forked after the imports, and holds neither the
standard input nor the standard output of this one: it leaves its answer in memory, and this process passes that on
after every process of the job is dead, its files are gone and its connections are reset. What cannot be undone from
here (a model's code ran; something could not be removed) is told with the answer: such a worker is `spent`.

An answer counts only with a seal by its job's key, which is written nowhere: who writes to all open files, or ends the
job early, leaves no answer. A metric that runs a model's code does so in its own process, though, as upstream has it:
code that is after this very program can change its objects, or find the key in its frames, and give itself a value.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import hashlib
import hmac
import importlib
import json
import math
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

HOSTNAME = "evaluator"
"""Of the sandbox."""
STUBBED = ("easyocr",)
"""Modules that are too heavy to be installed. A metric that uses one is not scored."""
PORTS = (5000, 9222, 8080)
"""Of the guest's server, of Chromium's debugging, of VLC."""
_ALLOWED = ("localhost", "127.0.0.1", "::1", "publicsuffix.org", "raw.githubusercontent.com")
"""Names that may be looked up in vain: a package's list of domains is refreshed from the last two, or is not."""
_RUNS_CODE = "check_python_file"
"""Metrics that run what a model wrote; what that looks up is its own affair, and no reason not to score it."""
_READERS = frozenset({
    "PIL", "PyPDF2", "configparser", "csv", "docx", "ebooklib", "fitz", "json", "lzma", "mutagen", "odf", "openpyxl",
    "pdfminer", "pdfplumber", "pptx", "pymupdf", "pypdf", "tarfile", "toml", "wave", "xml", "yaml", "zipfile", "zlib",
})  # fmt: skip
"""Libraries that read files: what they raise is the file's fault."""
_UNREADABLE = ("XMLSyntaxError", "ParserError", "DatabaseError", "BadGzipFile")
"""The same, of libraries that raise other things, too."""
_TMP = "/tmp"  # noqa: S108
_ROOMS = (_TMP, "/dev/shm")  # noqa: S108
"""The folders that a job can write to."""
_SHORT, _LONG = 2000, 20_000
_PAPER = 200_000
"""The longest answer of a job, in bytes, with its seal."""
_KEY, _SEAL = 32, hashlib.sha256().digest_size
_TOO_LARGE = 413
"""How the relay answers a file that is too large to be judged."""
_CHUNK = 65536
_MEMORY = 4 * 1024**3
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36

missed: list[str] = []
"""What a job wanted and did not get, in words; kept because metrics catch every exception and answer 0."""
seen: dict[str, str] = {}
"""What a job's getters gave, `found` and `expected`, for people to read."""


class Broken(Exception):
    """The file that is judged is not what its name says: 0."""


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
        self.fetched: list[str] = []
        """Those that are."""
        self.too_large: list[str] = []
        """Those that are too large to be judged, in words."""
        self._post = controllers.requests.post
        self.controller.get_file = self._file
        self.cache_dir = cache
        self.task_id = job["task_id"]
        self.instruction = job["instruction"]
        self.config = job["config"]
        self.evaluator = job["evaluator"]
        self.enable_proxy = self.current_use_proxy = False

    def _file(self, path: str) -> Any:
        """As the controller's own, which asks three times and does not tell why there is none."""
        answer = self._post(self.controller.http_server + "/file", data={"file_path": path})
        if answer.status_code == _TOO_LARGE:
            self.too_large.append(answer.text)
        there = answer.status_code == 200
        (self.fetched if there else self.absent).append(path)
        return answer.content if there else None

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
    try:
        given = [_get(job["result"], getters, env, Broken)]
    except Broken:
        raise
    except Exception as error:
        if not _is_out_of_room(error):
            if env.absent or isinstance(error, FileNotFoundError):
                return 0.0
            if env.fetched and _is_unreadable(error):
                raise Broken(_words(error)) from error
        raise
    _note("found", given[0])
    absent, of_files = bool(env.absent), bool(env.fetched) or _is_files(given[0])
    if job["expected"]:
        given.append(_get(job["expected"], getters, env, ValueError))
        _note("expected", given[1])
    measure = functools.partial(metric, **job["options"])
    try:
        value = measure(*given)
    except Exception as error:
        if not _is_out_of_room(error):
            if absent:
                return 0.0
            if of_files and _is_at_fault(error, measure, given[1:]):
                raise Broken(_words(error)) from error
        raise
    if value is None:
        raise ValueError(job["func"] + " gave no value")
    if not math.isfinite(value := float(value)):
        raise ValueError(f"{job['func']} gave {value}, which is not a score")
    return value


def _get(config: dict[str, Any] | None, getters: Any, env: Env, kind: type[Exception]) -> Any:
    """What a getter gives; an error of that kind where a file that it wanted is too large, whatever it makes of it."""
    try:
        return getattr(getters, "get_" + config["type"])(env, config) if config else None
    finally:
        if env.too_large:
            raise kind(env.too_large[0])


def _note(name: str, value: Any) -> None:
    if value is not None:
        seen[name] = _excerpt(value)


def _excerpt(value: Any) -> str:
    """What a getter gave: a text, the beginning of a text file, else how Python writes it."""
    try:
        if isinstance(value, dict) and set(value) == {"expected"}:
            value = value["expected"]
        if _is_files(value) and isinstance(value, str):
            with Path(value).open("rb") as file:
                text = file.read(_SHORT).decode(errors="replace").rstrip("\ufffd")  # the last one may be half
            readable = "\0" not in text and "\ufffd" not in text
            return text if readable else f"{Path(value).name}, {Path(value).stat().st_size} bytes"
        return value[:_SHORT] if isinstance(value, str) else repr(value)[:_SHORT]
    except Exception as error:  # noqa: BLE001  (whatever it is, the value is judged all the same)
        return _words(error)


def _is_at_fault(error: Exception, measure: Callable[..., Any], expected: list[Any]) -> bool:
    """Whether it was the result that a metric stumbled over: it gets on, or further, with the expected files alone."""
    if not expected or not _is_files(expected[0]):
        return _is_unreadable(error)
    try:
        return measure(expected[0], expected[0]) is not None
    except Exception as other:  # noqa: BLE001  (whatever it is, the metric or the task is to blame)
        return _is_unreadable(error) and not _is_unreadable(other)


def _is_files(given: Any) -> bool:
    each = given if isinstance(given, list) else [given]
    try:
        return bool(each) and all(isinstance(one, str) and Path(one).is_file() for one in each)
    except OSError:  # a text that is too long for any path
        return False


def _is_unreadable(error: BaseException) -> bool:
    """Whether an error says that a file is not what its name says, by its kind or by who raised it."""
    if isinstance(error, UnicodeDecodeError | EOFError | shutil.ReadError) or type(error).__name__ in _UNREADABLE:
        return True
    if type(error).__module__.partition(".")[0] in _READERS:
        return True
    last = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        last = frame.f_globals.get("__name__", "")
    return isinstance(error, KeyError | ValueError | OSError) and last.partition(".")[0] in _READERS


def _is_out_of_room(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return True
        error = error.__cause__ or error.__context__
    return False


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_SHORT]


def answer(job: dict[str, Any], package: tuple[Any, Any, Any], relay: Path) -> dict[str, Any]:
    """One job's answer: its value, or why there is none; with a 0 for a broken file, what is wrong with that."""
    if not job["func"].startswith(_RUNS_CODE):
        _watch_names()
    cache = tempfile.mkdtemp(prefix="cache-")
    os.chdir(cache)
    said: dict[str, Any]
    try:
        if (relay / "files").is_dir():
            shutil.copytree(relay / "files", cache, dirs_exist_ok=True)
        said = {"value": judge(job, package, cache)}
    except Broken as error:
        said = {"value": 0.0, "error": str(error), "traceback": traceback.format_exc()[-_LONG:]}
    except BaseException as error:  # noqa: BLE001  (whatever it is, the other side is told)
        said = {"error": _words(error), "traceback": traceback.format_exc()[-_LONG:]}
    if os.statvfs(_TMP).f_bavail == 0:  # getters keep that to themselves, too
        missed.append("needs more room than evaluators have")
    return {"error": missed[0], "traceback": "\n".join(missed)[:_LONG]} if missed else said | seen


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
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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


def run_forked(work: Callable[[], object], *closed: int) -> int:
    """Do something in a process of its own, which never comes back here and has neither our input nor those files."""
    child = os.fork()
    if child:
        return child
    try:
        for each in (0, *closed):
            os.close(each)
        os.open(os.devnull, os.O_RDONLY)  # takes the place of standard input
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        work()
    except BaseException:  # noqa: BLE001  (printed for whoever looks into it)
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def end_others() -> None:
    """Kill all processes but this one and the first, and wait for them: what a model wrote may have run."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # orphans, too, become children of this process
        while True:
            os.waitpid(-1, 0)


def empty(rooms: tuple[str, ...], folders: list[str]) -> bool:
    """Remove all that a job left in its folders, and make those anew that libraries expect; False if some is left."""
    try:
        for room in map(Path, rooms):
            room.chmod(0o755)
            for each in room.iterdir():
                if each.is_dir() and not each.is_symlink():
                    shutil.rmtree(each)
                else:
                    each.unlink()
        for folder in folders:
            Path(folder).mkdir(parents=True, exist_ok=True)
    except (OSError, RecursionError):
        return False
    return True


def seal(said: bytes, key: bytes) -> bytes:
    """An answer as it counts: whoever reads it does not learn how to write another."""
    return hmac.digest(key, said, "sha256") + said


def read_answer(paper: int, key: bytes, status: int) -> dict[str, Any]:
    """What a job left as its answer, which may be anything: its value or its words, of bounded length."""
    if status:
        return {"error": f"the evaluator died (status {status})"}
    data = os.pread(paper, _PAPER + 1, 0)
    try:
        ours = len(data) <= _PAPER and hmac.compare_digest(data, seal(data[_SEAL:], key))
        said = json.loads(data[_SEAL:] if ours else b"")
        value = said.get("value")
        words = {name: str(said.get(name, ""))[:most] for name, most in (("error", _SHORT), ("traceback", _LONG))}
        kept: dict[str, Any] = {name: text.encode(errors="replace").decode() for name, text in words.items()}
        for name in ("found", "expected"):
            if said.get(name) is not None:
                kept[name] = str(said[name])[:_SHORT].encode(errors="replace").decode()
        if value is not None:
            kept["value"] = float(value)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return {"error": "the evaluator left no answer"}
    return kept if math.isfinite(kept.get("value", 0.0)) else {"error": "the value is not a number"}


class Server:
    """Does one job after the other; whatever happens in one, the next finds everything as the first did."""

    def __init__(self, relay: Path) -> None:
        self._relay = relay
        self._answers = os.dup(1)
        os.dup2(2, 1)  # what metrics print is no answer
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_DUMPABLE, 0)  # nobody looks into this process
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._package = load()
        self._ports = listeners(relay)
        self._folders = [folder for folder, _, _ in os.walk(_TMP)]

    def serve(self) -> None:
        """Answer jobs until standard input ends."""
        self._say({})
        for line in sys.stdin:
            job = json.loads(line)
            token = job.pop("token")
            self._say(self._do(job) | {"token": token})

    def _do(self, job: dict[str, Any]) -> dict[str, Any]:
        paper = os.memfd_create("answer", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        ports = [listener.fileno() for listener, _ in self._ports]
        run_forked(functools.partial(carry, self._ports), self._answers, paper)
        key = os.urandom(_KEY)  # after the first fork: that process has no use for it
        child = run_forked(functools.partial(self._write, paper, key, job), self._answers, *ports)
        _, status = os.waitpid(child, 0)
        end_others()
        said = read_answer(paper, key, status)
        os.close(paper)
        for listener, _ in self._ports:
            listener.close()  # with all connections that nobody has accepted
        self._ports = listeners(self._relay)
        clean = empty(_ROOMS, self._folders)
        return said | {"spent": bool(status) or not clean or job["func"].startswith(_RUNS_CODE)}

    def _write(self, paper: int, key: bytes, job: dict[str, Any]) -> None:
        said = seal(json.dumps(answer(job, self._package, self._relay)).encode(), key)
        os.ftruncate(paper, 0)  # whoever wrote there is not the metric, nor who will
        os.pwrite(paper, said, 0)
        with contextlib.suppress(OSError):
            fcntl.fcntl(paper, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)

    def _say(self, said: dict[str, Any]) -> None:
        with os.fdopen(os.dup(self._answers), "w", encoding="utf-8") as file:
            file.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--check":
        load()
    elif socket.gethostname() != HOSTNAME:
        sys.exit("worker.py kills and removes all that it can reach: it runs in its sandbox only")
    else:
        Server(Path(sys.argv[1])).serve()
