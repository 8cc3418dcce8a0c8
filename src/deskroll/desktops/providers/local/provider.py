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
from deskroll.desktops.providers.local import places, shims
from deskroll.desktops.providers.local.limits import ControlGroup
from deskroll.desktops.providers.local.wire import Booted, Failed, Report, Request, decode_report, send_request
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
    """A desktop that was started here."""

    def __init__(self, link: socket.socket, folder: Path) -> None:
        self.link = link
        self.folder = folder
        self.pidfds: list[int] = []
        """Of its keeper and of the first process of its namespaces: all that has to be killed if the keeper cannot."""


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
        root = places.runtime_root()
        desktop_id = f"local-{secrets.token_hex(4)}"
        note = places.new_note(desktop_id, spec.width, spec.height, self._isolation)
        folder = places.make_desktop_folder(root, note)
        running = self._request(control, desktop_id, folder, spec, token)
        self._running[desktop_id] = running
        try:
            report = await asyncio.wait_for(_receive(running.link), BOOT_S)
            booted = _require_booted(report, desktop_id)
            running.pidfds = [os.pidfd_open(pid) for pid in {booted.keeper_pid, booted.sandbox_pid}]
            places.write_note(folder, _with_pid(note, booted))
        except TimeoutError:
            await self._abandon(desktop_id)
            raise BootError(f"desktop {desktop_id} did not boot within {BOOT_S:g} s") from None
        except BaseException:
            await self._abandon(desktop_id)
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

    def _request(
        self, control: socket.socket, desktop_id: str, folder: Path, spec: DesktopSpec, token: str
    ) -> _Running:
        """Ask the nursery for a keeper; the folder is removed again when that fails."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            with socket.socket(socket.AF_UNIX) as listener, theirs:
                listener.bind(str(folder / "guest.sock"))
                listener.listen(128)
                uid = _desktop_uid(desktop_id, self._isolation)
                if self._isolation == "none" and uid != os.getuid():
                    os.chown(folder, uid, uid)
                request = Request(
                    id=desktop_id,
                    folder=str(folder),
                    shims=str(shims.stage(folder.parent.parent)),
                    spec=spec,
                    isolation=self._isolation,
                    uid=uid,
                    token=token,
                )
                send_request(control, request, [theirs.fileno(), listener.fileno()])
        except OSError as error:
            ours.close()
            shutil.rmtree(folder)
            raise BootError(f"desktop {desktop_id} cannot be asked for: {error}") from error
        return _Running(ours, folder)

    async def stop(self, desktop_id: str) -> None:
        """End a desktop and remove everything that it was."""
        running = self._running.pop(desktop_id, None)
        if running is None:
            return
        try:
            # Shielded: once begun, taking a desktop away is finished whatever happens to the caller.
            await asyncio.shield(_take_away(running))
        finally:
            self._sink.emit(Event(kind="desktop.stopped", subject=desktop_id))

    async def _abandon(self, desktop_id: str) -> None:
        await asyncio.shield(self.stop(desktop_id))

    async def close(self) -> None:
        """Stop every desktop, then the nursery."""
        await asyncio.gather(*(self.stop(desktop_id) for desktop_id in list(self._running)))
        if self._nursery is not None:
            nursery, self._nursery = self._nursery, None
            await nursery.close()

    async def _ready_nursery(self) -> socket.socket:
        """The control socket of the nursery, which is started on first use and again when it died."""
        async with self._starting:
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
                [sys.executable, "-m", module, str(theirs.fileno())], env=env, pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._errors, start_new_session=True,
            )  # fmt: skip

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    async def ready(self) -> None:
        """Wait until it has imported everything."""
        self.control.setblocking(False)
        if not await asyncio.get_running_loop().sock_recv(self.control, 64):
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


def _require_booted(report: Report | None, desktop_id: str) -> Booted:
    if isinstance(report, Booted):
        return report
    raise BootError(f"desktop {desktop_id} did not boot: {report.message if report else 'its keeper died'}")


async def _take_away(running: _Running) -> None:
    """Let go of the lifeline and wait for the keeper; where the keeper cannot, do its work."""
    try:
        with contextlib.suppress(OSError):
            running.link.shutdown(socket.SHUT_WR)
        await asyncio.wait_for(_until_gone(running.link), STOP_S)
    except (TimeoutError, OSError):
        pass  # the keeper was killed or stopped: what it would have done follows
    finally:
        running.link.close()
        await asyncio.to_thread(_sweep, running)


def _sweep(running: _Running) -> None:
    """Remove what a keeper that died before its desktop has left; after a sound one there is nothing to do."""
    for pidfd in running.pidfds:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    for pidfd in running.pidfds:
        select.select([pidfd], [], [], STOP_S)
        os.close(pidfd)
    if running.folder.exists():
        ControlGroup.existing(running.folder.name).remove()
        shutil.rmtree(running.folder, ignore_errors=True)


async def _until_gone(link: socket.socket) -> None:
    while isinstance(await _receive(link), Booted | Failed):
        pass


def _with_pid(note: places.Note, report: Booted) -> places.Note:
    return msgspec.structs.replace(note, sandbox_pid=report.sandbox_pid, cgroup=report.cgroup)


def _desktop_uid(desktop_id: str, isolation: str) -> int:
    """The host user that a desktop's processes are: the caller's own, or for root one of the desktop's own."""
    if os.getuid() != 0:
        return os.getuid()
    if isolation == "none":
        return _NOBODY  # without an /etc of its own, a session bus wants a user that the host knows
    digest = hashlib.sha256(desktop_id.encode()).digest()
    return _FIRST_UID + int.from_bytes(digest[:3], "big")


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
