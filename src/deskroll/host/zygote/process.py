"""The zygote: one process, small and single-threaded, that forks one for each request.

    python -P -m deskroll.host.zygote.process SOCKET bound|free MODULE:FUNCTION [MODULE:FUNCTION]

The first function is what each fork runs, with the message and the descriptors of its request; what it returns is the
exit code. The second prepares the zygote, once. A bound fork dies with the zygote; a free one lives on. Guarantees: a
fork's pid is told before its end; nobody knows a bound one's before it is sure to die with the zygote; the zygote ends
when its socket is closed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from typing import NoReturn

import msgspec

from deskroll.host.forking import begin_fork, find_function, share_memory, wake_on_child
from deskroll.host.sockets import receive_with_files
from deskroll.host.zygote.wire import READY, Ended, Forked, Refused, Told

Target = Callable[..., int | None]


class Zygote:
    """Serves one control socket."""

    def __init__(self, control: socket.socket, target: Target, *, bound: bool) -> None:
        self._control = control
        self._target = target
        self._bound = bound
        self._wake = wake_on_child()

    def serve(self) -> None:
        """Fork for each request, and tell how each fork ended, until the control socket closes."""
        share_memory()
        self._control.send(READY)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while True:
            for file, _ in poll.poll():
                if file == self._wake.fileno():
                    self._wake.recv(4096)
                    self._bury()
                elif not self._obey():
                    return

    def _tell(self, told: Told) -> None:
        self._control.send(msgspec.json.encode(told))

    def _obey(self) -> bool:
        """Answer one request; False: there are no more."""
        request, files = receive_with_files(self._control)
        if not request:
            return False
        told: Told = Refused(message=os.strerror(errno.EMFILE))
        if len(files) == request[0]:
            try:
                told = Forked(pid=self._fork(request[1:], files))
            except OSError as error:  # no room for another process at this moment
                told = Refused(message=str(error))
        self._tell(told)
        for file in files:
            os.close(file)
        return True

    def _fork(self, message: bytes, files: list[int]) -> int:
        parent = os.getpid()
        begun, begin = os.pipe()
        try:
            if (pid := os.fork()) == 0:
                zygotes = (self._control.detach(), self._wake.detach(), begun, begin)
                _run(self._target, message, files, parent if self._bound else None, zygotes)
            return pid
        finally:
            os.close(begin)
            if self._bound:
                os.read(begun, 1)  # until the fork has closed its end
            os.close(begun)

    def _bury(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._tell(Ended(pid=ended[0], code=os.waitstatus_to_exitcode(ended[1])))


def _run(target: Target, message: bytes, files: list[int], parent: int | None, zygotes: tuple[int, ...]) -> NoReturn:
    """In the fork: run the function, without what is the zygote's own."""
    code = 70
    try:
        begin_fork(parent)
        for file in zygotes:
            os.close(file)
        code = target(message, *files) or 0
    except BaseException:  # noqa: BLE001  (a fork must never return into its parent's code)
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(code)


def main(control: str, binding: str, target: str, *prepare: str) -> None:
    """Do as the command line says."""
    # Ctrl-C in a terminal goes to the whole group; when to stop is the holder's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run = find_function(target)
    for each in prepare:
        find_function(each)()
    Zygote(socket.socket(fileno=int(control)), run, bound=binding == "bound").serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
