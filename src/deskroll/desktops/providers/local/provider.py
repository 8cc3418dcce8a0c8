"""LocalProvider: embedded desktops on this machine.

Owns one zygote and the desktops that it started. Guarantees, besides what every provider does: the death of
this process, however sudden, takes the desktops away, with their processes, sockets and files.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec

from deskroll.config import Settings
from deskroll.desktops.base import Address, Capabilities, DesktopSpec, Fence, Recycling
from deskroll.desktops.providers.base import Provider
from deskroll.desktops.providers.local import network, packages, places, shims
from deskroll.desktops.providers.local.checks import require_modules
from deskroll.desktops.providers.local.running import Running, remove_orphan
from deskroll.desktops.providers.local.wire import Booted, Failed, Lost, Request
from deskroll.errors import BootError, DesktopLost, InputError, MissingDependency
from deskroll.events import EventSink
from deskroll.host.control_group import ControlGroup
from deskroll.host.owner import process_start
from deskroll.host.runtime_folder import runtime_root
from deskroll.host.zygote import ZygoteHandle

BOOT_S = 90.0
"""The longest wait for a desktop; the keeper gives up before."""
FULL = 0.97
"""The share of its memory from which on a desktop counts as having none left."""
_LEAST_MEMORY = 48 << 20
"""What a desktop takes of the host's memory before any program runs in it."""
_FIRST_UID = 0x6000_0000
"""Where root starts desktops, each gets a user of its own from here on: nobody else on the host has such a uid."""
_NOBODY = 65534
_ENV = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR")
"""All that a zygote inherits: keys and tokens have no business near a desktop."""


class LocalSettings(Settings):
    """Options of local desktops."""

    isolation: Literal["bwrap", "none"] = "bwrap"
    """Whether each has namespaces of its own; without, where bubblewrap cannot make any."""


class LocalProvider(Provider):
    """Embedded desktops: Xvfb in namespaces."""

    name = places.PROVIDER
    Settings: ClassVar[type[LocalSettings]] = LocalSettings
    note_type: ClassVar[type[places.LocalNote]] = places.LocalNote
    boot_limit_s: ClassVar[float | None] = BOOT_S
    capabilities = Capabilities(
        recycling=Recycling.REPLACE,
        fence=Fence.HARD,  # the socket of a desktop dies with it
        boot_s=0.3,
        reset_s=0.4,
        host_only=True,
        most=max(1, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _LEAST_MEMORY),
    )

    def __init__(self, settings: LocalSettings | None = None, *, sink: EventSink | None = None) -> None:
        super().__init__(settings, sink=sink)
        self._isolation: str = self.settings.isolation
        self._zygote: ZygoteHandle | None = None
        self._starting = asyncio.Lock()
        self._running: dict[str, Running] = {}

    @classmethod
    def check_installed(cls) -> None:
        """See `Plugin`: its Python modules; programs are asked for where a desktop is."""
        require_modules()

    async def warm_up(self) -> None:
        """Start the zygote."""
        await self._ready_zygote()

    def check_spec(self, spec: DesktopSpec) -> None:
        """Raise `InputError` for what local desktops cannot be, `MissingDependency` for what they cannot be here."""
        super().check_spec(spec)
        _check_spec(spec)
        if spec.network and self._isolation == "bwrap":
            network.require()

    def note_fields(self, desktop_id: str, spec: DesktopSpec) -> dict[str, Any]:
        """See `Provider`."""
        return {"isolation": self._isolation, "endpoint": f"unix:{places.socket_path(desktop_id)}"}

    async def start_machine(self, note: places.LocalNote, spec: DesktopSpec, token: str) -> Address:
        """See `Provider`."""
        running = Running(note.id, places.notebook().folder(note.id), self._isolation)
        self._running[note.id] = running
        booted = await self._start(await self._ready_zygote(), running, spec, token)
        running.watching = asyncio.create_task(self._watch(running))
        started = msgspec.structs.replace(
            note,
            sandbox_pid=booted.sandbox_pid,
            sandbox_start=process_start(booted.sandbox_pid),
            keeper_pid=running.keeper_pid,
            keeper_start=process_start(running.keeper_pid),
            cgroup=booted.cgroup,
        )
        await self.rewrite_note(started)
        running.boot_seconds = booted.seconds
        return Address(
            id=note.id, endpoint=note.endpoint, provider=self.name, token=token, width=spec.width, height=spec.height
        )

    async def end_machine(self, note: places.LocalNote) -> None:
        """See `Provider`: by its keeper or, of an owner and a keeper that were killed together, by its note."""
        running = self._running.get(note.id)
        if running is None:
            await asyncio.to_thread(remove_orphan, note)
            return
        await running.take_away()
        del self._running[note.id]

    def boot_seconds(self, desktop_id: str) -> Mapping[str, float]:
        """See `Provider`."""
        return self._running[desktop_id].boot_seconds

    async def _start(self, zygote: ZygoteHandle, running: Running, spec: DesktopSpec, token: str) -> Booted:
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
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(places.socket_of(running.folder)))
        listener.listen(128)
        return await running.boot(zygote, request, listener)

    async def check(self, address: Address) -> None:
        """Raise unless the guest answers, every part of the desktop is alive, and it has room and memory left."""
        await super().check(address)
        if memory := ControlGroup.existing(address.id).memory_in_use():
            used, limit = memory
            if used > limit * FULL:
                raise DesktopLost(f"desktop {address.id} has no memory left: {used >> 20} of {limit >> 20} MB in use")

    async def _watch(self, running: Running) -> None:
        """Follow a running desktop, and report it when it, or a part of it, dies before anybody stopped it."""

        def tell(word: Lost | Failed) -> None:
            self.report_lost(running.id, word.message, word.cause)

        tell(await running.until_gone(tell))

    async def shut_down(self) -> None:
        """End the zygote."""
        if self._zygote is not None:
            zygote, self._zygote = self._zygote, None
            await zygote.__aexit__()

    async def _ready_zygote(self) -> ZygoteHandle:
        """The zygote, which is started on first use and again when it died."""
        async with self._starting:
            self.require_open()
            if self._zygote is not None and not self._zygote.alive():
                await self._zygote.__aexit__()
                self._zygote = None
            if self._zygote is None:
                check_installed()
                await asyncio.to_thread(shims.stage, runtime_root())
                self._zygote = await keeper_zygote().__aenter__()
            return self._zygote


def keeper_zygote() -> ZygoteHandle:
    """The zygote of keepers, which has imported all that a guest needs, and knows no keys; keepers outlive it."""
    environment = {name: os.environ[name] for name in _ENV if name in os.environ}
    # One BLAS thread: a process with threads must not fork, and nothing here multiplies matrices.
    environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    keeper = "deskroll.desktops.providers.local.keeper"
    return ZygoteHandle(
        f"{keeper}:keep", forks="desktop", refused=BootError, gone=BootError, prepare=f"{keeper}:import_guest",
        bound=False, environment=environment,
    )  # fmt: skip


def check_installed() -> None:
    """Raise `MissingDependency`, with the line to run, unless the programs of a desktop are there."""
    missing = packages.missing("local")
    if missing:
        line = packages.install_line(each.name for each in missing)
        raise MissingDependency(f"local desktops need programs that are not installed; run:  {line}")
    if wrong := packages.wrong_xlib():
        raise MissingDependency(f"{wrong}; run:  {packages.XLIB_LINE}")


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
