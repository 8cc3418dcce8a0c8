"""SimProvider: simulated desktops behind the interface of every provider.

Owns one server and the desktops that it booted or adopted in a `SimWorld`. Guarantees: a desktop is noted before its
boot begins; a boot that fails or is cancelled leaves nothing alive, unless the fault `boot_leaks` says so; leaving the
`async with` block takes all of its own desktops away and none of anybody else's.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping

from deskroll.desktops.base import HEIGHTS, WIDTHS, Address, Capabilities, DesktopSpec, Recycling, TellLost
from deskroll.desktops.notes import Note, Owner, renewed
from deskroll.desktops.providers.sim.desktop import SimDesktop
from deskroll.desktops.providers.sim.server import SimServer
from deskroll.desktops.providers.sim.settings import SimSettings
from deskroll.desktops.providers.sim.world import SimWorld, State
from deskroll.errors import BootError, DeathCause, DesktopLost, InputError, ResetError
from deskroll.events import DesktopBooted, DesktopDied, DesktopReset, DesktopStopped, EventSink, guarded

_DEFAULTS = SimSettings()
REVERTIBLE = ("snapshot", "proxy", "fixed_ip")


class SimProvider:
    """Simulated desktops. Two providers with one `world` see each other's, as two processes on a host would."""

    name = "sim"

    def __init__(
        self,
        settings: SimSettings = _DEFAULTS,
        *,
        world: SimWorld | None = None,
        owner: Owner | None = None,
        sink: EventSink | None = None,
    ) -> None:
        self.settings = settings
        self.world = world or SimWorld()
        self.capabilities = _capabilities(settings)
        self._owner = owner or Owner.this_process()
        self._sink = guarded(sink)
        self._server = SimServer(self.world)
        self._open = False
        self._tell: list[TellLost] = []

    @classmethod
    def from_options(cls, options: Mapping[str, str], sink: EventSink | None = None) -> SimProvider:
        """The options are those of `SimSettings.parse`, e.g. `boot=1..3`, `reset=0.5`, `step_crashes=0.01`."""
        return cls(SimSettings.parse(options), sink=sink)

    async def __aenter__(self) -> SimProvider:
        await self._server.__aenter__()
        self._open = True
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            # Whatever a stop would say: leaving means that nothing is left.
            for desktop in [desktop for desktop in self.world.desktops.values() if desktop.keeper is self]:
                desktop.unplug()
        finally:
            await self.abandon()

    async def abandon(self) -> None:
        """Vanish as a killed process does: no socket, no more renewals; the desktops stay in the world."""
        self._open = False
        await self._server.__aexit__()

    @property
    def is_open(self) -> bool:
        """Whether it renews the notes of its desktops."""
        return self._open

    def check_spec(self, spec: DesktopSpec) -> None:
        """Raise `InputError` when the settings allow for no such desktop."""
        for name, value, (low, high) in (("width", spec.width, WIDTHS), ("height", spec.height, HEIGHTS)):
            if not low <= value <= high:
                raise InputError(f"DesktopSpec.{name} is {value}; allowed: {low} to {high}")
        if spec.snapshot and spec.snapshot not in self.settings.snapshots:
            names = ", ".join(self.settings.snapshots) or "none: they are a setting of simulated desktops"
            raise InputError(f"DesktopSpec.snapshot is {spec.snapshot!r}; allowed: {names}")
        for name in ("proxy", "fixed_ip"):
            if getattr(spec, name) and not getattr(self.settings, name):
                raise InputError(f"DesktopSpec.{name} is asked for, and these simulated desktops have none")

    def on_lost(self, tell: TellLost) -> None:
        """Have it told when a desktop dies by itself."""
        self._tell.append(tell)

    def lost(self, desktop_id: str, reason: str, cause: DeathCause) -> None:
        """Pass on that a desktop died, unless there is nobody to hear it any more."""
        if not self._open:
            return
        self._sink.emit(DesktopDied(desktop=desktop_id, reason=reason, cause=cause))
        for tell in self._tell:
            tell(desktop_id, reason, cause)

    async def boot(self, spec: DesktopSpec = DesktopSpec(), *, desktop_id: str = "") -> Address:
        """Start a desktop, under the id that is given."""
        self.check_spec(spec)
        self._require_open()
        began = time.monotonic()
        desktop_id = desktop_id or f"sim-{secrets.token_hex(8)}"
        if desktop_id in self.world.desktops:
            raise BootError(f"there is a simulated desktop {desktop_id} already; give another id, or none")
        now = time.time()
        note = Note(
            id=desktop_id, provider=self.name, owner=self._owner, created_at=now, expires_at=now,
            width=spec.width, height=spec.height,
        )  # fmt: skip
        desktop = SimDesktop(self.world, self, renewed(note), spec, self.settings)
        self.world.add(desktop)
        try:
            await desktop.boot()
        except BaseException:
            if desktop.state is State.BOOTING:
                desktop.unplug()
            raise
        self._sink.emit(DesktopBooted(desktop=desktop_id, seconds=time.monotonic() - began))
        return self._address(desktop)

    async def revert(self, desktop_id: str, spec: DesktopSpec) -> Address:
        """Put a desktop back to the clean state of `spec`."""
        if self.settings.recycling is not Recycling.REVERT:
            raise ResetError(f"simulated desktop {desktop_id} cannot be reverted: the settings say to replace it")
        return await self._reset(self._own(desktop_id), spec)

    async def check(self, address: Address) -> None:
        """Raise a `DesktopError` unless the desktop is well: what its guest answers to /health, without the detour."""
        desktop = self.world.find(address.token)
        if desktop is None:
            raise DesktopLost(f"simulated desktop {address.id} is not at this address (any more)")
        await desktop.enter("")
        await desktop.check()

    async def stop(self, desktop_id: str) -> None:
        """End a desktop. One that is unknown, or belongs to another provider, is left alone."""
        desktop = self.world.desktops.get(desktop_id)
        if desktop is not None and desktop.keeper is self:
            await desktop.stop()
            self._sink.emit(DesktopStopped(desktop=desktop_id))

    async def notes(self) -> list[Note]:
        """The notes of all desktops in the world."""
        return self.world.notes()

    async def adopt(self, note: Note, spec: DesktopSpec) -> Address:
        """Take over a desktop whose owner is gone, and reset it."""
        self._require_open()
        if not self._claim(note):
            raise ResetError(f"simulated desktop {note.id} is no orphan (any more): leave it to its owner")
        return await self._reset(self._own(note.id), spec)

    async def remove(self, note: Note) -> None:
        """Take away a desktop whose owner is gone, or our own; one that has another owner by now is left alone."""
        self._claim(note)
        await self.stop(note.id)

    def _claim(self, note: Note) -> bool:
        """Become the owner of an orphan."""
        desktop = self.world.desktops.get(note.id)
        if desktop is None or not desktop.note.orphaned():
            return False
        desktop.take_over(self, renewed(desktop.note, self._owner), self.settings)
        return True

    def _own(self, desktop_id: str) -> SimDesktop:
        desktop = self.world.desktops.get(desktop_id)
        if desktop is None or desktop.keeper is not self:
            raise ResetError(f"simulated desktop {desktop_id} is not here (any more)")
        return desktop

    async def _reset(self, desktop: SimDesktop, spec: DesktopSpec) -> Address:
        self.check_spec(spec)
        kept = (name for name in spec.__struct_fields__ if name not in REVERTIBLE)
        if changed := [name for name in kept if getattr(spec, name) != getattr(desktop.spec, name)]:
            raise ResetError(f"a reset cannot change {', '.join(changed)} of simulated desktop {desktop.id}")
        began = time.monotonic()
        await desktop.reset(spec)
        self._sink.emit(DesktopReset(desktop=desktop.id, seconds=time.monotonic() - began))
        return self._address(desktop)

    def _address(self, desktop: SimDesktop) -> Address:
        return Address(
            id=desktop.id, endpoint=self._server.endpoint, provider=self.name, token=desktop.token,
            width=desktop.spec.width, height=desktop.spec.height, simulated=True,
        )  # fmt: skip

    def _require_open(self) -> None:
        if not self._open:
            raise BootError("the provider of simulated desktops is not open: use it with `async with`")


def _capabilities(settings: SimSettings) -> Capabilities:
    boot_s, replace_s = settings.boot.typical, settings.stop.typical + settings.boot.typical
    return Capabilities(
        recycling=settings.recycling,
        revertible=REVERTIBLE,
        fence=settings.fence,
        boot_s=boot_s,
        reset_s=settings.reset.typical if settings.recycling is Recycling.REVERT else replace_s,
        host_only=True,
        adopts=True,
    )
