"""What runs inside the sandbox, as its first process: takes snippets, runs them in one namespace, says when it is done.

Stands alone: it is copied into the sandbox and knows the standard library only. Code that it runs can change everything
here, and harms itself alone by it: whoever listens outside believes nothing but the token of a call and one letter.
What has to outlive clumsy code (overwritten built-ins, closed streams, trace functions) is held by names of its own.

    request   4 bytes length, 16 bytes token, 1 byte (1: the last of its call), source
    answer    16 bytes token, `d` (done) or `i` (interrupted)
Values and tracebacks go through a pipe of their own, so that nothing that the code goes on printing can bury them. An
exit is an exit: the process ends.
"""

from __future__ import annotations

import builtins

globals()["__builtins__"] = dict(vars(builtins))  # for every function below, whatever becomes of the shared ones

import _ast  # noqa: E402
import _signal  # type: ignore[import-not-found]  # noqa: E402  (`signal` takes long to import)
import fcntl  # noqa: E402
import resource  # noqa: E402
import sys  # noqa: E402
from os import _exit, close, dup2, getpid, kill, nice, read, waitpid, write  # noqa: E402

TYPE_CHECKING = False  # `typing` takes as long to import as Python takes to start
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import TextIO

_CONTROL, _SHOWN, _OUTPUT = 200, 201, 202
"""Descriptors: requests and answers; values and tracebacks; a copy of the standard output."""
_ONLY_AST = 0x400
_TOKEN = 16
_SIGINT, _SIGKILL = 2, 9
_settrace, _setprofile, _set_handler = sys.settrace, sys.setprofile, _signal.signal
_getrecursionlimit, _setrecursionlimit = sys.getrecursionlimit, sys.setrecursionlimit


class Runner:
    """The loop over snippets."""

    def __init__(self, extra_path: str, home: str) -> None:
        self._pid = getpid()
        self._busy = False
        self._sources: dict[str, str] = {}
        self._streams = (_stream(1), _stream(2))
        module = type(sys)("__main__")
        self._names = vars(module)
        self._names["__builtins__"] = builtins
        sys.modules["__main__"] = module
        sys.path[:] = [home, *sys.path, extra_path]
        for name in ("exit", "quit"):
            setattr(builtins, name, sys.exit)

    def serve(self) -> None:
        """Run snippets until nobody asks any more."""
        self._mend()
        while True:
            size = int.from_bytes(self._read(4), "big")
            token, last, source = self._read(_TOKEN), self._read(1), self._read(size - _TOKEN - 1)
            done = self._guarded(source.decode())
            if getpid() != self._pid:  # a fork that came back from the code
                _exit(0)
            self._mend()  # where that fails, it fails in the call that broke it, and not in the next
            if last == b"\1" or not done:
                self._end_children()
            write(_CONTROL, token + (b"d" if done else b"i"))

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            if not (chunk := read(_CONTROL, min(size - len(data), 65536))):
                _exit(0)
            data += chunk
        return bytes(data)

    def _mend(self) -> None:
        """Set up again what code may have changed for the worse."""
        dup2(_OUTPUT, 1)
        dup2(_OUTPUT, 2)
        out, err = self._streams
        self._streams = (out if _usable(out) else _stream(1), err if _usable(err) else _stream(2))
        sys.stdout, sys.stderr = self._streams
        _set_handler(_SIGINT, self._interrupt)
        if _getrecursionlimit() < 500:
            _setrecursionlimit(1000)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self._busy:
            raise KeyboardInterrupt

    def _guarded(self, source: str) -> bool:
        """Run one snippet; whether it came to its end without being interrupted."""
        done = True
        try:
            self._busy = True
            self._run(source)
            self._busy = False
        except BaseException as error:  # noqa: BLE001  (whatever code raises is its result)
            self._busy = False
            _untrace()
            if isinstance(error, SystemExit):
                self._exit(error.code)
            done = not isinstance(error, KeyboardInterrupt)
            self._say(_shown(error, self._sources))
        self._flush()
        return done

    def _run(self, source: str) -> None:
        name = f"<snippet {len(self._sources)}>"
        self._sources[name] = source
        body, last = _compiled(source, name)
        exec(body, self._names)  # noqa: S102  (this is what it is for)
        value = eval(last, self._names) if last is not None else None  # noqa: S307
        _untrace()
        if value is not None:
            self._names["_"] = value
            self._say(f"{value!r}\n")

    def _say(self, text: str) -> None:
        data = memoryview(text.encode(errors="backslashreplace"))
        while data:
            data = data[write(_SHOWN, data[:65536]) :]

    def _flush(self) -> None:
        for stream in (*self._streams, sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BaseException:  # noqa: BLE001, S110  (closed, or no stream at all: the code's own doing)
                pass

    def _exit(self, code: object) -> None:
        if code is not None and not isinstance(code, int):
            self._say(f"{code}\n")
            code = 1
        self._flush()
        _exit((code or 0) & 0xFF)

    def _end_children(self) -> None:
        """What a call has started ends with it."""
        try:
            kill(-1, _SIGKILL)
            while True:
                waitpid(-1, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def _stream(file: int) -> TextIO:
    return open(file, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _usable(stream: TextIO) -> bool:
    try:
        return not stream.closed
    except ValueError:  # it was detached
        return False


def _untrace() -> None:
    """Take trace functions away; one that raises is taken away by Python itself, which the second round sees."""
    for _ in range(2):
        try:
            _settrace(None)
            _setprofile(None)
        except BaseException:  # noqa: BLE001, S110  (whatever they raise is meant to disturb)
            pass


def _compiled(source: str, name: str) -> tuple[CodeType, CodeType | None]:
    """The statements, and the last of them by itself where it is an expression."""
    tree = compile(source, name, "exec", _ONLY_AST, dont_inherit=True)
    last = None
    if tree.body and isinstance(tree.body[-1], _ast.Expr):
        last = compile(_ast.Expression(tree.body.pop().value), name, "eval", 0, dont_inherit=True)
    return compile(tree, name, "exec", 0, dont_inherit=True), last


def _shown(error: BaseException, sources: dict[str, str]) -> str:
    """The traceback, of the code's own frames alone."""
    try:
        import linecache  # noqa: PLC0415  (many episodes never need it, and it takes time)
        from traceback import TracebackException  # noqa: PLC0415

        for name, text in sources.items():
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        shown = TracebackException(type(error), error, error.__traceback__, compact=True)
        shown.stack[:] = [frame for frame in shown.stack if frame.filename != __file__]
        return "".join(shown.format())
    except BaseException:  # noqa: BLE001  (out of memory or files, or made so that nothing can show it)
        return _briefly(error)


def _briefly(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}\n"
    except BaseException:  # noqa: BLE001  (the same)
        return f"{type(error).__name__}\n"


def _place(files: dict[int, int]) -> None:
    """Give descriptors the numbers that they have here, wherever they were."""
    copies = {number: fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, max(files) + 1) for number, file in files.items()}
    for file in files.values():
        if file > 2:
            close(file)
    for number, copy in copies.items():
        dup2(copy, number, inheritable=False)
        close(copy)


def _limit(memory: int, processes: int, file_size: int) -> None:
    # What one process may have is less than what all may have together: so its end is a MemoryError, mostly.
    for what, most in (
        (resource.RLIMIT_DATA, memory // 8 * 7),
        (resource.RLIMIT_AS, memory + (512 << 20)),
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_FSIZE, file_size),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (limit, limit))


def main() -> None:
    """Take the limits and the connection from the command line, and serve."""
    control, shown, memory, processes, file_size = map(int, sys.argv[1:6])
    _place({_CONTROL: control, _SHOWN: shown, _OUTPUT: 1})
    _limit(memory, processes, file_size)
    nice(5)
    runner = Runner(*sys.argv[6:8])
    sys.argv[:] = [""]
    try:
        runner.serve()
    finally:
        _exit(70)  # code has broken it: no more of that code, at exit, either


if __name__ == "__main__":
    main()
