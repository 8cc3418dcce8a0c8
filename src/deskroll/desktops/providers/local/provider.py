"""LocalProvider: embedded desktops on this machine.

Owns one nursery process and the desktops that it started. Guarantees: `boot` returns a desktop that answers, or
raises `BootError` and leaves nothing; `stop`, leaving the `async with` block, and the death of this process (however
sudden) each take the desktops away, with their processes, sockets and files.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import socket
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from deskroll.desktops.base import HEIGHTS, WIDTHS, Address, Capabilities, DesktopSpec, Fence, Recycling, TellLost
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.notes import Note, Notebook, keep_renewing, process_start, runtime_root
from deskroll.desktops.providers.local import network, orphan, places, shims
from deskroll.desktops.providers.local.checks import require_modules
from deskroll.desktops.providers.local.limits import ControlGroup
from deskroll.desktops.providers.local.nursery_process import NurseryProcess
from deskroll.desktops.providers.local.running import Running
from deskroll.desktops.providers.local.wire import Booted, Failed, Lost, Request, send_request
from deskroll.errors import BootError, DesktopError, DesktopLost, InputError, MissingDependency, ResetError
from deskroll.events import DesktopBooted, DesktopDied, DesktopReaped, DesktopStopped, EventSink, guarded

BOOT_S = 90.0
"""The longest wait for a desktop; the keeper gives up before."""
CHECK_S = 10.0
"""Deadline of a health check; a healthy desktop answers within milliseconds."""
FULL = 0.97
"""The share of its memory from which on a desktop counts as having none left."""
_LEAST_MEMORY = 48 << 20
"""What a desktop takes of the host's memory before any program runs in it."""
_FIRST_UID = 0x6000_0000
"""Where root starts desktops, each gets a user of its own from here on: nobody else on the host has such a uid."""
_NOBODY = 65534


class LocalProvider:
    """Embedded desktops: Xvfb in namespaces. `isolation="none"` runs them without, where bubblewrap cannot."""

    name = places.PROVIDER

    def __init__(self, *, isolation: str = "bwrap", sink: EventSink | None = None) -> None:
        if isolation not in ("bwrap", "none"):
            raise InputError(f"isolation is {isolation!r}; allowed: bwrap, none")
        self.capabilities = Capabilities(
            recycling=Recycling.REPLACE,
            fence=Fence.HARD,  # the socket of a desktop dies with it
            boot_s=0.3,
            reset_s=0.4,
            host_only=True,
            most=max(1, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _LEAST_MEMORY),
        )
        self._isolation = isolation
        self._sink = guarded(sink)
        self._nursery: NurseryProcess | None = None
        self._starting = asyncio.Lock()
        self._running: dict[str, Running] = {}
        self._renewing: asyncio.Task[None] | None = None
        self._tell_lost: TellLost | None = None
        self._closed = False

    @classmethod
    def from_options(cls, options: Mapping[str, str], sink: EventSink | None = None) -> LocalProvider:
        """One option: `isolation`."""
        if unknown := sorted(set(options) - {"isolation"}):
            raise InputError(f"local desktops have no option {unknown[0]!r}; allowed: isolation=bwrap, isolation=none")
        require_modules()
        return cls(isolation=options.get("isolation", "bwrap"), sink=sink)

    async def __aenter__(self) -> LocalProvider:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def warm_up(self) -> None:
        """Start what the first boot would have to wait for. Optional."""
        await self._ready_nursery()

    def check_spec(self, spec: DesktopSpec) -> None:
        """Raise `InputError` for what local desktops cannot be, `MissingDependency` for what they cannot be here."""
        _check_spec(spec)
        if spec.network and self._isolation == "bwrap":
            network.require()

    def on_lost(self, tell: TellLost) -> None:
        """Have it told when a desktop dies by itself."""
        self._tell_lost = tell

    async def boot(self, spec: DesktopSpec = DesktopSpec(), *, desktop_id: str = "", token: str = "") -> Address:
        """Start a desktop; returns when it can be used."""
        self.check_spec(spec)
        began = time.monotonic()
        control = await self._ready_nursery()
        desktop_id = desktop_id or f"local-{secrets.token_hex(4)}"
        note = places.new_note(desktop_id, spec, self._isolation)
        folder = places.make_desktop_folder(note)
        running = Running(desktop_id, folder, self._isolation)
        self._running[desktop_id] = running
        try:
            self._request(control, running, spec, token)
            booted = await asyncio.wait_for(running.booted(), BOOT_S)
            running.watching = asyncio.create_task(self._watch(running))
            places.notebook().write(_with_pids(note, running, booted))
        except BaseException as error:
            await asyncio.shield(self.stop(desktop_id))
            if isinstance(error, TimeoutError):
                raise BootError(f"desktop {desktop_id} did not boot within {BOOT_S:g} s") from None
            if isinstance(error, OSError):
                raise BootError(f"desktop {desktop_id} did not boot: {error}") from error
            raise
        seconds = time.monotonic() - began
        self._sink.emit(DesktopBooted(desktop=desktop_id, seconds=seconds, parts=booted.seconds))
        return Address(
            id=desktop_id,
            endpoint=note.endpoint,
            provider=self.name,
            token=token,
            width=spec.width,
            height=spec.height,
        )

    def _request(self, control: socket.socket, running: Running, spec: DesktopSpec, token: str) -> None:
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
            shims=str(shims.stage(runtime_root())),
            spec=spec,
            isolation=self._isolation,
            uid=uid,
            token=token,
        )
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(places.socket_of(running.folder)))
            listener.listen(128)
            with running.keeper_end as theirs:
                send_request(control, request, [theirs.fileno(), listener.fileno()])

    async def revert(self, desktop_id: str, spec: DesktopSpec) -> Address:
        """Local desktops are replaced, not reverted."""
        raise ResetError(f"desktop {desktop_id} has no snapshot to go back to: local desktops are replaced")

    async def check(self, address: Address) -> None:
        """Raise unless the guest answers, every part of the desktop is alive, and it has room and memory left."""
        async with GuestDesktop(address, timeout=CHECK_S) as desktop:
            await desktop.check()
        if memory := ControlGroup.existing(address.id).memory_in_use():
            used, limit = memory
            if used > limit * FULL:
                raise DesktopLost(f"desktop {address.id} has no memory left: {used >> 20} of {limit >> 20} MB in use")

    async def notes(self) -> list[Note]:
        """The local desktops of this user on this host, whoever started them."""
        notebook = places.notebook()
        await asyncio.to_thread(notebook.tidy)
        return list(await asyncio.to_thread(notebook.list, self.name))

    async def adopt(self, note: Note, spec: DesktopSpec) -> Address:
        """Local desktops end with their owner: there is nothing to take over."""
        raise ResetError(f"desktop {note.id} cannot be taken over: local desktops end with their owner")

    async def remove(self, note: Note) -> None:
        """Remove what an owner and a keeper that were killed together have left."""
        notebook = places.notebook()
        ours = await asyncio.to_thread(_claim, notebook, note)
        if ours is not None and ours.id not in self._running:
            try:
                await asyncio.to_thread(orphan.remove, notebook, ours)
            except OSError as error:
                raise DesktopError(f"what is left of desktop {note.id} could not be removed: {error}") from error
            self._sink.emit(DesktopReaped(desktop=note.id, owner_pid=note.owner.pid))

    async def stop(self, desktop_id: str) -> None:
        """End a desktop and remove everything that it was; a second call waits for the first."""
        running = self._running.get(desktop_id)
        if running is None:
            return
        if running.ending is None:
            running.ending = asyncio.create_task(self._end(running))
        # Shielded: once begun, taking a desktop away is finished whatever happens to the caller.
        await asyncio.shield(running.ending)

    async def _watch(self, running: Running) -> None:
        """Follow a running desktop, and report it when it, or a part of it, dies before anybody stopped it."""
        told = False

        def tell(word: Lost | Failed) -> None:
            nonlocal told
            if running.ending is None and not told:
                told = True
                self._sink.emit(DesktopDied(desktop=running.id, reason=word.message, cause=word.cause))
                if self._tell_lost is not None:
                    self._tell_lost(running.id, word.message, word.cause)

        tell(await running.until_gone(tell))

    async def _end(self, running: Running) -> None:
        try:
            await running.take_away()
        except OSError as error:
            running.ending = None  # it is still ours: the next stop tries again
            raise DesktopError(f"desktop {running.id} could not be taken away: {error}") from error
        self._running.pop(running.id, None)
        self._sink.emit(DesktopStopped(desktop=running.id))

    async def close(self) -> None:
        """Stop every desktop, then the nursery."""
        self._closed = True
        try:
            while self._running:
                await asyncio.gather(*(self.stop(desktop_id) for desktop_id in list(self._running)))
        finally:
            if self._renewing is not None:
                self._renewing.cancel()
                await asyncio.wait([self._renewing])
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
                await asyncio.to_thread(shims.stage, runtime_root())
                nursery = NurseryProcess()
                try:
                    await nursery.ready()
                except BaseException:
                    await asyncio.shield(nursery.close())
                    raise
                self._nursery = nursery
            if self._renewing is None:
                self._renewing = asyncio.create_task(keep_renewing(places.notebook(), self._running))
            return self._nursery.control


def check_installed() -> None:
    """Raise `MissingDependency`, with the line to run, unless the programs of a desktop are there."""
    from deskroll.desktops.providers.local import packages  # noqa: PLC0415

    missing = packages.missing("local")
    if missing:
        line = packages.install_line(each.name for each in missing)
        raise MissingDependency(f"local desktops need programs that are not installed; run:  {line}")
    if wrong := packages.wrong_xlib():
        raise MissingDependency(f"{wrong}; run:  {packages.XLIB_LINE}")


def _with_pids(note: places.LocalNote, running: Running, report: Booted) -> places.LocalNote:
    return msgspec.structs.replace(
        note,
        sandbox_pid=report.sandbox_pid,
        sandbox_start=process_start(report.sandbox_pid),
        keeper_pid=running.keeper_pid,
        keeper_start=process_start(running.keeper_pid),
        cgroup=report.cgroup,
    )


def _claim(notebook: Notebook[places.LocalNote], note: Note) -> places.LocalNote | None:
    current = notebook.read(note.id)
    return notebook.claim(current) if current is not None else None


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
        ("width", spec.width, WIDTHS),
        ("height", spec.height, HEIGHTS),
        ("memory_mb", spec.memory_mb, (256, 1 << 22)),
        ("processes", spec.processes, (64, 1 << 20)),
        ("disk_mb", spec.disk_mb, (16, 1 << 22)),
    ):
        if not low <= value <= high:
            raise InputError(f"DesktopSpec.{name} is {value}; allowed: {low} to {high}")
    if spec.snapshot not in ("", "init_state"):  # the latter is what the state of a new desktop is called elsewhere
        raise InputError(
            f"DesktopSpec.snapshot is {spec.snapshot!r}; local desktops have no snapshots: each one is new"
        )
    for name, asked in (("proxy", spec.proxy), ("fixed_ip", spec.fixed_ip)):
        if asked:
            raise InputError(f"DesktopSpec.{name} is true; local desktops have none: use another provider")
