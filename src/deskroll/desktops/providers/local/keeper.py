"""One keeper a desktop: makes its sandbox, puts the guest inside, watches, and takes everything away again.

Guarantees: when `keep` returns, no process, mount, socket, control group or file of the desktop is left, whether the
owner asked for it (closed the link), died, or a part of the desktop died. Everything inside is in one pid namespace,
which ends with its first process, whatever else runs there. That one dies with the keeper, twice over: it reads a pipe
that only the keeper holds, and the kernel kills it with its parents. Nothing inside can signal, trace or replace it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

import msgspec

from deskroll.desktops.guest.marks import MARK, end_marked
from deskroll.desktops.guest.settings import GuestSettings
from deskroll.desktops.providers.local import namespaces, network, places, sandbox
from deskroll.desktops.providers.local.limits import set_rlimits
from deskroll.desktops.providers.local.syscalls import RULES
from deskroll.desktops.providers.local.watching import Watch
from deskroll.desktops.providers.local.wire import Booted, Failed, Lost, Report, Request
from deskroll.errors import BootError
from deskroll.host import keyring, seccomp
from deskroll.host.bubblewrap import Command
from deskroll.host.control_group import ControlGroup
from deskroll.host.memory_watch import MemoryWatch

BOOT_TIMEOUT_S = 60.0


def import_guest() -> None:
    """Import all that a guest may ever need: inside the sandbox there is nothing left to import from."""
    from deskroll.desktops.guest import main  # noqa: PLC0415

    main.warm_up()


def keep(message: bytes, link_file: int, listen_file: int) -> None:
    """In a fork of the zygote: run one desktop, as the `Request` in the message says, from start to end."""
    request = msgspec.json.decode(message, type=Request)
    os.dup2(0, 1)  # nobody reads what a guest prints
    namespaces.set_process_name(f"desk-{request.id}")
    namespaces.adopt_orphans()
    os.setsid()
    link = socket.socket(fileno=link_file)
    desktop = _Sandboxed(request) if request.isolation == "bwrap" else _Bare(request)
    last = Failed(message="")
    try:
        began = time.monotonic()
        keyring.leave_session_keyring()
        guest = desktop.start(listen_file, link, began + BOOT_TIMEOUT_S)
        seconds = _await_guest(guest, link, began + BOOT_TIMEOUT_S)
        seconds["boot"] = time.monotonic() - began
        grouped = desktop.group is not None
        with contextlib.closing(desktop.watch(link, guest)) as watch:
            _report(link, Booted(sandbox_pid=desktop.pid, cgroup=grouped, seconds=seconds))
            last = watch.until_gone(lambda lost: _report(link, lost))
    except Exception as error:  # noqa: BLE001  (this is where a desktop's failures become a report)
        last = Failed(message=str(error) if isinstance(error, BootError) else traceback.format_exc())
    if last.message:  # whoever held it waits for this word, and taking a desktop away may last
        _report(link, Lost(message=last.message, cause=last.cause))
    try:
        desktop.end()
    finally:
        shutil.rmtree(request.folder, ignore_errors=True)
        _report(link, last)


def _report(link: socket.socket, report: Report) -> None:
    # The owner may be gone already; then there is nobody left to tell.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        link.send(msgspec.json.encode(report))


def _await_guest(guest: int, link: socket.socket, deadline: float) -> dict[str, float]:
    """Wait for the guest's one line: its timings, or why it cannot run."""
    line = b""
    while not line.endswith(b"\n"):
        chunk = _read_some(guest, link, deadline)
        if not chunk:
            raise BootError("its guest died while it was booting; the machine may be out of memory or processes")
        line += chunk
    answer = msgspec.json.decode(line, type=dict[str, float] | str)
    if isinstance(answer, str):
        raise BootError(answer)
    return answer


class _Sandboxed:
    """A desktop in bubblewrap's namespaces."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.pid = 0
        self.group: ControlGroup | None = None
        self._pidfd = -1  # of the first process inside: a pid alone could be somebody else's by the time it is used
        self._lifeline = -1
        self._plan: network.Plan | None = None
        self._way_out: network.WayOut | None = None

    def start(self, listen_file: int, link: socket.socket, deadline: float) -> int:
        """Make the sandbox and put the guest inside; returns the pipe on which the guest speaks."""
        spec = self.request.spec
        self.group = ControlGroup.create(self.request.id, memory_mb=spec.memory_mb, processes=spec.processes)
        self._plan = network.plan() if spec.network else None
        self._start_bwrap(link, deadline)
        if self._plan is not None:
            self._connect(self._plan, link, deadline)
        return _fork_guest(self.request, listen_file, self.pid, self.group)

    def _start_bwrap(self, link: socket.socket, deadline: float) -> None:
        stdin_read, self._lifeline = os.pipe()
        up_read, up_write = os.pipe()
        name_server = self._plan.name_server if self._plan is not None else ""
        command = sandbox.command(self.request.id, self.request.spec, self.request.shims, name_server)
        bwrap = os.fork()
        if bwrap == 0:
            self._exec_bwrap(command, stdin_read, up_write)
        command.close()
        for file in (stdin_read, up_write):
            os.close(file)
        # The program inside says that everything is mounted; bubblewrap tells the first process before that.
        up = _read_all(up_read, link, deadline, until=b"up\n")
        info = _read_all(command.report, link, deadline)
        if not up.endswith(b"up\n"):
            raise BootError(
                "bubblewrap cannot make a sandbox: "
                + (up.decode(errors="replace").strip() or "it said nothing")
                + "; see `deskroll doctor`"
            )
        self.pid = msgspec.json.decode(info, type=dict[str, int])["child-pid"]
        self._pidfd = os.pidfd_open(self.pid)

    def _connect(self, plan: network.Plan, link: socket.socket, deadline: float) -> None:
        """Give the sandbox a way to the network, before anything runs in it."""
        self._way_out = network.connect(plan, self.request.uid, self.pid, self.group)
        if not _read_some(self._way_out.ready, link, deadline):
            raise BootError(f"its network could not be set up: slirp4netns says: {self._way_out.said()}")

    def _exec_bwrap(self, command: Command, stdin: int, stdout: int) -> None:
        try:
            if self.group is not None:
                self.group.enter()
            os.dup2(stdin, 0)
            os.dup2(stdout, 1)
            os.dup2(stdout, 2)
            for file in command.files:
                os.set_inheritable(file, True)
            namespaces.become(self.request.uid)
            # An empty environment: what is given here can be read inside.
            os.execve(command.words[0], command.words, {})  # noqa: S606
        except OSError as error:
            os.write(2, f"cannot run bwrap: {error}".encode())
        finally:
            os._exit(127)

    def watch(self, link: socket.socket, guest: int) -> Watch:
        """What of it is to be watched."""
        watch = Watch(link, guest)
        watch.first, watch.first_pid = self._pidfd, self.pid
        watch.memory = MemoryWatch(self.group.folders[0]) if self.group is not None else None
        watch.way_out = self._way_out.pidfd if self._way_out is not None else -1
        return watch

    def end(self) -> None:
        """End every process inside and wait until they are gone."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        # The first process of a pid namespace goes last: when all others are gone and buried, and the guest's
        # grave is ours to dig. Half-made sandboxes become our children when bubblewrap dies, and would wait for ever.
        while _end_children():
            _bury_one()
        if self._way_out is not None:
            self._way_out.close()
        if self._pidfd >= 0:
            select.select([self._pidfd], [], [])
            os.close(self._pidfd)
        if self.group is not None:
            self.group.remove()


class _Bare:
    """A desktop without a sandbox, for machines that allow none: its processes carry a mark."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.pid = os.getpid()
        self.group: ControlGroup | None = None

    def start(self, listen_file: int, _link: socket.socket, _deadline: float) -> int:
        """Start the guest as a plain process; returns the pipe on which it speaks."""
        return _fork_guest(self.request, listen_file, 0, None)

    def watch(self, link: socket.socket, guest: int) -> Watch:
        """What of it is to be watched."""
        return Watch(link, guest)

    def end(self) -> None:
        """End everything that carries the desktop's mark or has become our child; again until there is nobody left."""
        while end_marked(self.request.id) | _end_children():
            _bury_one()


def _fork_guest(request: Request, listen_file: int, sandbox_pid: int, group: ControlGroup | None) -> int:
    """Fork the guest into the sandbox; returns a pipe that gives its one line and is open while it lives."""
    read, write = os.pipe()
    joiner = os.fork()
    if joiner == 0:
        code = 1
        try:
            if group is not None:
                group.enter()
            namespaces.become(request.uid)
            if sandbox_pid:
                namespaces.join(sandbox_pid, functools.partial(namespaces.limit_terminals, sandbox.TERMINALS))
            if os.fork() == 0:
                _run_guest(request, listen_file, write, bool(sandbox_pid), group is not None)
            code = 0
        except Exception as error:  # noqa: BLE001  (a fork must never return into its parent's code)
            os.write(write, msgspec.json.encode(f"the guest cannot enter its sandbox: {error}") + b"\n")
        finally:
            os._exit(code)
    os.close(write)
    os.close(listen_file)
    os.waitpid(joiner, 0)
    return read


def _run_guest(request: Request, listen_file: int, speak: int, sandboxed: bool, grouped: bool) -> None:
    code = 1
    try:
        if sandboxed:
            namespaces.drop_capabilities()
            if (filtered := seccomp.program(RULES)) is not None:
                seccomp.install(filtered)
        set_rlimits(request.spec, grouped=grouped, own_namespace=sandboxed)
        os.environ.clear()  # before its memory is overwritten
        if sandboxed:
            namespaces.hide_origin("deskroll-guest")
        namespaces.set_process_name("deskroll-guest")
        from deskroll.desktops.guest import main  # noqa: PLC0415

        main.run(_guest_settings(request, sandboxed), listen_file, speak)
        code = 0
    except BaseException:  # noqa: BLE001  (a fork must never return into its parent's code)
        text = "".join(traceback.format_exc()[-3000:])
        with contextlib.suppress(OSError):
            os.write(speak, msgspec.json.encode(text) + b"\n")
    finally:
        os._exit(code)


def _guest_settings(request: Request, sandboxed: bool) -> GuestSettings:
    spec = request.spec
    home, run, state, shims = sandbox.HOME, sandbox.RUN, sandbox.STATE, sandbox.SHIMS
    if not sandboxed:
        home, run, state = (f"{request.folder}/{places.INSIDE}/{name}" for name in ("home", "run", "state"))
        shims = request.shims
    env = sandbox.environment(home, run, shims, spec)
    env[MARK] = request.id
    return GuestSettings(
        id=request.id,
        width=spec.width,
        height=spec.height,
        env=env,
        state=state,
        # X's abstract sockets live in the network namespace: where that is the host's, so are the display numbers.
        display=":0" if sandboxed else "",
        sandboxed=sandboxed,
        password=spec.client_password,
        token=request.token,
    )


def _bury_one() -> None:
    """Wait for a child that has been killed."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, 0)


def _read_all(file: int, link: socket.socket, deadline: float, until: bytes = b"") -> bytes:
    data = b""
    while not (until and data.endswith(until)) and (chunk := _read_some(file, link, deadline)):
        data += chunk
    os.close(file)
    return data


def _read_some(file: int, link: socket.socket, deadline: float) -> bytes:
    """What a pipe gives next; raises when the owner lets go or time runs out before that."""
    readable, _, _ = select.select([file, link.fileno()], [], [], max(0.0, deadline - time.monotonic()))
    if link.fileno() in readable:
        raise BootError("the owner let go of the desktop while it was booting")
    if not readable:
        raise BootError(f"it did not come up within {BOOT_TIMEOUT_S:g} s")
    return os.read(file, 65536)


def _end_children() -> set[int]:
    children = set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return children


if sys.platform != "linux":  # pragma: no cover
    raise ImportError("local desktops need Linux")
