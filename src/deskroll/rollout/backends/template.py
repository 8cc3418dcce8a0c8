"""The pre-imported parent of all workers: one process, small and single-threaded, that forks one for each request.

A worker is a fork and not an import, so that one comes up within milliseconds, also one to an episode, and all of them
share the memory of what was imported. Ends when the coordinator closes its socket (or dies), and its workers with it.
"""

from __future__ import annotations

import ctypes
import gc
import os
import selectors
import signal
import socket
import sys

import msgspec

from deskroll.rollout.backends import worker
from deskroll.rollout.backends.forks import Buried, Forked, Refused, receive_socket

_PR_SET_PDEATHSIG = 1


def serve(control: socket.socket) -> None:
    """Fork for each socket that arrives, and tell how each fork ended, until the control socket closes."""
    wake, waker = socket.socketpair()
    for each in (wake, waker):
        each.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Moves all that was imported out of the collector's sight: forks then share its pages instead of copying them.
    gc.collect()
    gc.freeze()
    control.send(b"ready")
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(wake, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is control:
                    if (link := receive_socket(control)) is None:
                        return
                    _fork(control, link)
                else:
                    wake.recv(4096)
                    _bury(control)


def _fork(control: socket.socket, link: socket.socket) -> None:
    parent = os.getpid()
    bound, bind = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:  # no room for another process at this moment
        link.close()
        os.close(bound)
        os.close(bind)
        control.send(msgspec.json.encode(Refused(message=str(error))))
        return
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        control.close()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(0)
        os.close(bound)
        os.close(bind)
        try:
            worker.work(link)
        except BaseException:  # noqa: BLE001  (a fork must never come back from here)
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
            os._exit(70)
        os._exit(0)
    link.close()
    os.close(bind)
    os.read(bound, 1)  # nobody knows its pid, to stop it, before it is sure to die with this process
    os.close(bound)
    control.send(msgspec.json.encode(Forked(pid=pid)))


def _bury(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        control.send(msgspec.json.encode(Buried(pid=pid, code=os.waitstatus_to_exitcode(status))))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(socket.socket(fileno=int(sys.argv[1])))
