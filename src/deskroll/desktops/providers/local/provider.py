"""LocalProvider: embedded desktops on this machine.

Owns one nursery process and the desktops that it started. Guarantees: `boot` returns a desktop that answers, or
raises `BootError` and leaves nothing; `stop`, leaving the `async with` block, and the death of this process (however
sudden) each take the desktops away, with their processes, sockets and files.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from deskroll.desktops.base import Address, DesktopSpec
from deskroll.desktops.guest.marks import end_marked
from deskroll.desktops.providers.local import places, shims
from deskroll.desktops.providers.local.limits import ControlGroup
from deskroll.desktops.providers.local.wire import (
    Booted,
    Failed,
    Report,
    Request,
    Started,
    decode_report,
    send_request,
)
from deskroll.errors import BootError, InputError, MissingDependency
from deskroll.types import Event, EventSink, NullSink

BOOT_S = 90.0
"""The longest wait for a desktop; the keeper gives up before."""
STOP_S = 10.0
"""The longest wait for a keeper to clean up; then it is done from here."""
_FIRST_UID = 0x6000_0000
"""Where root starts desktops, each gets a user of its own from here on: nobody else on the host has such a uid."""
_NURSERY_ENV = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR")
"""All that the nursery inherits: keys and tokens have no business near a desktop."""
_NOBODY = 65534
_WIDTHS, _HEIGHTS = (160, 7680), (120, 4320)


class _Running:
    """A desktop that was started here: the link to its keeper, and what has to be killed if the keeper cannot."""

    def __init__(self, desktop_id: str, folder: Path, isolation: str) -> None:
        self.id = desktop_id
        self.folder = folder
        self.isolation = isolation
        self.link, self.keeper_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.link.setblocking(False)
        self.watching: asyncio.Task[None] | None = None
        self.ending: asyncio.Task[None] | None = None
        self._pidfds: list[int] = []

    async def booted(self) -> Booted:
        """Wait until the keeper says that the desktop can be used; raises `BootError` with its reason otherwise."""
        while True:
            match await _receive(self.link):
                case Started(keeper_pid=pid):
                    self._pidfds.append(os.pidfd_open(pid))
                case Booted() as report:
                    self._pidfds.append(os.pidfd_open(report.sandbox_pid))
                    return report
                case Failed(message=message):
                    raise BootError(f"desktop {self.id} did not boot: {message}")
                case None:
                    raise BootError(f"desktop {self.id} did not boot: its keeper died")

    async def take_away(self) -> None:
        """Let go of the lifeline and wait for the keeper; where the keeper cannot, do its work."""
        self.keeper_end.close()
        try:
            with contextlib.suppress(OSError):
                self.link.shutdown(socket.SHUT_WR)
            await asyncio.wait_for(self.watching or self.until_gone(), STOP_S)
        except (TimeoutError, OSError):
            pass  # the keeper was killed or stopped: what it would have done follows
        finally:
            self.link.close()
            await asyncio.to_thread(self._sweep)

    async def until_gone(self) -> str:
        """Wait until the keeper has ended, and return its reason."""
        reason = ""
        while (report := await _receive(self.link)) is not None:
            match report:
                case Started(keeper_pid=pid) if not self._pidfds:
                    self._pidfds.append(os.pidfd_open(pid))
                case Failed(message=message):
                    reason = message
        return reason

    def _sweep(self) -> None:
        """Remove what a keeper that died before its desktop has left; after a sound one there is nothing to do."""
        for pidfd in self._pidfds:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        for pidfd in self._pidfds:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            poll.poll(STOP_S * 1000)
            os.close(pidfd)
        if self.folder.exists():
            while self.isolation == "none" and end_marked(self.id):
                time.sleep(0.01)
            ControlGroup.existing(self.id).remove()
            shutil.rmtree(self.folder, ignore_errors=True)


class LocalProvider:
    """Embedded desktops: Xvfb in namespaces. `isolation="none"` runs them without, where bubblewrap cannot."""

    name = "local"

    def __init__(self, *, isolation: str = "bwrap", sink: EventSink | None = None) -> None:
        if isolation not in ("bwrap", "none"):
            raise InputError(f"isolation is {isolation!r}; allowed: bwrap, none")
        self._isolation = isolation
        self._sink = sink or NullSink()
        self._nursery: _Nursery | None = None
        self._starting = asyncio.Lock()
        self._running: dict[str, _Running] = {}
        self._closed = False

    async def __aenter__(self) -> LocalProvider:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def warm_up(self) -> None:
        """Start what the first boot would have to wait for. Optional."""
        await self._ready_nursery()

    async def boot(self, spec: DesktopSpec = DesktopSpec(), *, token: str = "") -> Address:
        """Start a desktop; returns when it can be used."""
        _check_spec(spec)
        began = time.monotonic()
        control = await self._ready_nursery()
        desktop_id = f"local-{secrets.token_hex(4)}"
        note = places.new_note(desktop_id, spec.width, spec.height, self._isolation)
        folder = places.make_desktop_folder(places.runtime_root(), note)
        running = _Running(desktop_id, folder, self._isolation)
        self._running[desktop_id] = running
        try:
            self._request(control, running, spec, token)
            booted = await asyncio.wait_for(running.booted(), BOOT_S)
            running.watching = asyncio.create_task(self._watch(running))
            places.write_note(folder, _with_pid(note, booted))
        except BaseException as error:
            await asyncio.shield(self.stop(desktop_id))
            if isinstance(error, TimeoutError):
                raise BootError(f"desktop {desktop_id} did not boot within {BOOT_S:g} s") from None
            if isinstance(error, OSError):
                raise BootError(f"desktop {desktop_id} did not boot: {error}") from error
            raise
        seconds = {**booted.seconds, "total": time.monotonic() - began}
        self._sink.emit(Event(kind="desktop.booted", subject=desktop_id, data={"seconds": seconds}))
        return Address(
            id=desktop_id,
            endpoint=f"unix:{folder / 'guest.sock'}",
            provider=self.name,
            token=token,
            width=spec.width,
            height=spec.height,
        )

    def _request(self, control: socket.socket, running: _Running, spec: DesktopSpec, token: str) -> None:
        """Ask the nursery for a keeper."""
        uid = _desktop_uid(running.id, self._isolation)
        if self._isolation == "none":
            inside = running.folder / places.INSIDE
            inside.mkdir(mode=0o700)
            running.folder.chmod(0o711)
            os.chown(inside, uid, uid)
        request = Request(
            id=running.id,
            folder=str(running.folder),
            shims=str(shims.stage(places.runtime_root())),
            spec=spec,
            isolation=self._isolation,
            uid=uid,
            token=token,
        )
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(running.folder / "guest.sock"))
            listener.listen(128)
            with running.keeper_end as theirs:
                send_request(control, request, [theirs.fileno(), listener.fileno()])

    async def stop(self, desktop_id: str) -> None:
        """End a desktop and remove everything that it was; a second call waits for the first."""
        running = self._running.get(desktop_id)
        if running is None:
            return
        if running.ending is None:
            running.ending = asyncio.create_task(self._end(running))
        # Shielded: once begun, taking a desktop away is finished whatever happens to the caller.
        await asyncio.shield(running.ending)

    async def _watch(self, running: _Running) -> None:
        """Follow a running desktop, and report it when it dies before anybody stopped it."""
        reason = await running.until_gone()
        if running.ending is None:
            data = {"reason": reason or "its keeper died"}
            self._sink.emit(Event(kind="desktop.lost", subject=running.id, data=data))

    async def _end(self, running: _Running) -> None:
        try:
            await running.take_away()
        finally:
            self._running.pop(running.id, None)
            self._sink.emit(Event(kind="desktop.stopped", subject=running.id))

    async def close(self) -> None:
        """Stop every desktop, then the nursery."""
        self._closed = True
        try:
            while self._running:
                await asyncio.gather(*(self.stop(desktop_id) for desktop_id in list(self._running)))
        finally:
            if self._nursery is not None:
                nursery, self._nursery = self._nursery, None
                await nursery.close()

    async def _ready_nursery(self) -> socket.socket:
        """The control socket of the nursery, which is started on first use and again when it died."""
        async with self._starting:
            if self._closed:
                raise BootError("the provider is closed: it boots no more desktops")
            if self._nursery is not None and not self._nursery.alive:
                await self._nursery.close()
                self._nursery = None
            if self._nursery is None:
                check_installed()
                await asyncio.to_thread(shims.stage, places.runtime_root())
                nursery = _Nursery()
                try:
                    await nursery.ready()
                except BaseException:
                    await asyncio.shield(nursery.close())
                    raise
                self._nursery = nursery
            return self._nursery.control


def check_installed() -> None:
    """Raise `MissingDependency`, with the line to run, unless the programs of a desktop are there."""
    from deskroll.desktops.providers.local import packages  # noqa: PLC0415

    missing = packages.missing("local")
    if missing:
        raise MissingDependency(
            f"local desktops need programs that are not installed; run:  {packages.install_line(missing)}"
        )
    if wrong := packages.wrong_xlib():
        raise MissingDependency(f"{wrong}; run:  {packages.XLIB_LINE}")


class _Nursery:
    """The process that forks keepers, and the socket on which it is asked to."""

    def __init__(self) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the nursery)
        env = {name: os.environ[name] for name in _NURSERY_ENV if name in os.environ}
        # One BLAS thread: a process with threads must not fork, and nothing here multiplies matrices.
        env |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        module = "deskroll.desktops.providers.local.nursery"
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(theirs.fileno())], env=env, pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._errors, start_new_session=True,
            )  # fmt: skip

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    async def ready(self) -> None:
        """Wait until it has imported everything."""
        self.control.setblocking(False)
        try:
            word = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.control, 64), BOOT_S)
        except TimeoutError:
            raise BootError(f"the process that starts desktops did not come up within {BOOT_S:g} s") from None
        if not word:
            self._process.wait()
            self._errors.seek(0)
            words = self._errors.read().decode(errors="replace").strip()[-1000:]
            raise BootError(f"the process that starts desktops died: {words}")
        self.control.setblocking(True)

    async def close(self) -> None:
        """End it; it ends by itself when its socket closes."""
        self.control.close()
        try:
            await asyncio.to_thread(self._process.wait, 5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        finally:
            self._errors.close()


async def _receive(link: socket.socket) -> Report | None:
    data = await asyncio.get_running_loop().sock_recv(link, 65536)
    return decode_report(data) if data else None


def _with_pid(note: places.Note, report: Booted) -> places.Note:
    return msgspec.structs.replace(note, sandbox_pid=report.sandbox_pid, cgroup=report.cgroup)


def _desktop_uid(desktop_id: str, isolation: str) -> int:
    """The host user that a desktop's processes are: the caller's own, or for root one of the desktop's own."""
    if os.getuid() != 0:
        return os.getuid()
    if isolation == "none":
        return _NOBODY  # without an /etc of its own, a session bus wants a user that the host knows
    uid = _FIRST_UID + int.from_bytes(hashlib.sha256(desktop_id.encode()).digest()[:3], "big")
    return uid if _exists(uid) else _NOBODY


def _exists(uid: int) -> bool:
    """Whether this user namespace has such a user; in a container it may have only a few."""
    ranges = (map(int, line.split()) for line in Path("/proc/self/uid_map").read_text().splitlines())
    return any(first <= uid < first + count for first, _, count in ranges)


def _check_spec(spec: DesktopSpec) -> None:
    for name, value, (low, high) in (
        ("width", spec.width, _WIDTHS),
        ("height", spec.height, _HEIGHTS),
        ("memory_mb", spec.memory_mb, (256, 1 << 22)),
        ("processes", spec.processes, (64, 1 << 20)),
        ("disk_mb", spec.disk_mb, (16, 1 << 22)),
    ):
        if not low <= value <= high:
            raise InputError(f"DesktopSpec.{name} is {value}; allowed: {low} to {high}")
    if spec.snapshot:
        raise InputError(
            f"DesktopSpec.snapshot is {spec.snapshot!r}; local desktops have no snapshots: each one is new"
        )
