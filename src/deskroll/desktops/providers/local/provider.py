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
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from deskroll.desktops.base import Address, DesktopSpec
from deskroll.desktops.providers.local import places, shims
from deskroll.desktops.providers.local.wire import Booted, Failed, Report, Request, decode_report, send_request
from deskroll.errors import BootError, InputError, MissingDependency
from deskroll.types import Event, EventSink, NullSink

BOOT_S = 90.0
"""The longest wait for a desktop; the keeper gives up before."""
STOP_S = 15.0
"""The longest wait for a keeper to clean up; then it is done from here."""
_FIRST_UID = 0x6000_0000
"""Where root starts desktops, each gets a user of its own from here on: nobody else on the host has such a uid."""
_NURSERY_ENV = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR")
"""All that the nursery inherits: keys and tokens have no business near a desktop."""
_WIDTHS, _HEIGHTS = (160, 7680), (120, 4320)


class _Running:
    """A desktop that was started here."""

    def __init__(self, link: socket.socket, folder: Path) -> None:
        self.link = link
        self.folder = folder
        self.sandbox: int | None = None  # pidfd


class LocalProvider:
    """Embedded desktops: Xvfb in namespaces. `isolation="none"` runs them without, where bubblewrap cannot."""

    name = "local"

    def __init__(self, *, isolation: str = "bwrap", sink: EventSink | None = None) -> None:
        if isolation not in ("bwrap", "none"):
            raise InputError(f"isolation is {isolation!r}; allowed: bwrap, none")
        self._isolation = isolation
        self._sink = sink or NullSink()
        self._nursery: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
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
            running.sandbox = os.pidfd_open(booted.sandbox_pid)
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
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with socket.socket(socket.AF_UNIX) as listener, theirs:
            listener.bind(str(folder / "guest.sock"))
            listener.listen(128)
            uid = _desktop_uid(desktop_id)
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
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._nursery is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._nursery.wait(), 5.0)
            if self._nursery.returncode is None:
                self._nursery.kill()
                await self._nursery.wait()
            self._nursery = None

    async def _ready_nursery(self) -> socket.socket:
        """The control socket of the nursery, which is started on first use and again when it died."""
        async with self._starting:
            if self._control is not None and self._nursery is not None and self._nursery.returncode is None:
                return self._control
            check_installed()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            await asyncio.to_thread(shims.stage, places.runtime_root())
            with theirs:
                self._nursery = await _start_nursery(theirs.fileno())
            ours.setblocking(False)
            if not await asyncio.get_running_loop().sock_recv(ours, 64):
                raise BootError(await _last_words(self._nursery))
            ours.setblocking(True)
            self._control = ours
            return ours


def check_installed() -> None:
    """Raise `MissingDependency`, with the line to run, unless the programs of a desktop are there."""
    from deskroll.desktops.providers.local import packages  # noqa: PLC0415

    missing = packages.missing("local")
    if missing:
        raise MissingDependency(
            f"local desktops need programs that are not installed; run:  {packages.install_line(missing)}"
        )


async def _start_nursery(control: int) -> asyncio.subprocess.Process:
    env = {name: os.environ[name] for name in _NURSERY_ENV if name in os.environ}
    # One BLAS thread: a process with threads must not fork, and nothing here multiplies matrices.
    env |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deskroll.desktops.providers.local.nursery", str(control), env=env,
        pass_fds=(control,), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip


async def _last_words(nursery: asyncio.subprocess.Process) -> str:
    _, errors = await nursery.communicate()
    return f"the process that starts desktops died: {errors.decode(errors='replace').strip()[-1000:]}"


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
        if running.sandbox is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(running.sandbox, signal.SIGKILL)
            os.close(running.sandbox)
        if running.folder.exists():
            await asyncio.to_thread(shutil.rmtree, running.folder, ignore_errors=True)


async def _until_gone(link: socket.socket) -> None:
    while isinstance(await _receive(link), Booted | Failed):
        pass


def _with_pid(note: places.Note, report: Booted) -> places.Note:
    return msgspec.structs.replace(note, sandbox_pid=report.sandbox_pid, cgroup=report.cgroup)


def _desktop_uid(desktop_id: str) -> int:
    """The host user that a desktop's processes are: the caller's own, or for root one of the desktop's own."""
    if os.getuid() != 0:
        return os.getuid()
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
