"""SimProvider: simulated desktops behind the interface of every provider.

Owns one server and the desktops that it booted or adopted in a `SimWorld`. Guarantees, besides what every provider
does: leaving the `async with` block takes all of its own desktops away at once, whatever a stop would say, and none of
anybody else's. Only the fault `boot_leaks` leaves a machine alive after a boot that failed.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from deskroll.desktops.base import Address, Capabilities, DesktopSpec, Recycling
from deskroll.desktops.notes import Note, renewed
from deskroll.desktops.providers.base import Provider
from deskroll.desktops.providers.note_store import NoteStore
from deskroll.desktops.providers.sim.desktop import SimDesktop, State
from deskroll.desktops.providers.sim.server import SimServer
from deskroll.desktops.providers.sim.settings import SimSettings
from deskroll.desktops.providers.sim.world import SimWorld
from deskroll.errors import BootError, DeathCause, DesktopLost, InputError, ResetError
from deskroll.events import EventSink
from deskroll.host.owner import Owner

REVERTIBLE = ("snapshot", "proxy", "fixed_ip")


class SimProvider(Provider):
    """Simulated desktops. Two providers with one `world` see each other's, as two processes on a host would."""

    name = "sim"
    Settings: ClassVar[type[SimSettings]] = SimSettings

    def __init__(
        self,
        settings: SimSettings | None = None,
        *,
        world: SimWorld | None = None,
        owner: Owner | None = None,
        sink: EventSink | None = None,
    ) -> None:
        self.world = world or SimWorld()
        super().__init__(settings, sink=sink)
        self.owner = owner or self.owner
        self.capabilities = _capabilities(self.settings)
        self._server = SimServer(self.world)
        self.is_open = False
        """Whether it renews the notes of its desktops."""

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        self.is_open = True
        return self

    async def stop_all(self) -> None:
        """Unplug them: leaving means that nothing is left."""
        for ending in self._ending.values():
            ending.cancel()
        for desktop in [desktop for desktop in self.world.desktops.values() if desktop.keeper is self]:
            desktop.unplug()

    async def shut_down(self) -> None:
        """Close the server."""
        await self.abandon()

    async def abandon(self) -> None:
        """Vanish as a killed process does: no socket, no more renewals; the desktops stay in the world."""
        self.is_open = False
        await self._server.__aexit__()

    def require_open(self) -> None:
        """See `Provider`."""
        if not self.is_open:
            raise BootError("the provider of simulated desktops is not open: use it with `async with`")

    def check_spec(self, spec: DesktopSpec) -> None:
        """Raise `InputError` when the settings allow for no such desktop."""
        super().check_spec(spec)
        if spec.snapshot and spec.snapshot not in self.settings.snapshots:
            names = ", ".join(self.settings.snapshots) or "none: they are a setting of simulated desktops"
            raise InputError(f"DesktopSpec.snapshot is {spec.snapshot!r}; allowed: {names}")
        for name, asked, has in (
            ("proxy", spec.proxy, self.settings.proxy),
            ("fixed_ip", spec.fixed_ip, self.settings.fixed_ip),
        ):
            if asked and not has:
                raise InputError(f"DesktopSpec.{name} is asked for, and these simulated desktops have none")

    def note_store(self) -> NoteStore:
        """In the world."""
        return _WorldNotes(self)

    def report_lost(self, desktop_id: str, reason: str, cause: DeathCause) -> None:
        """See `Provider`; who has vanished hears nothing."""
        if self.is_open:
            super().report_lost(desktop_id, reason, cause)

    async def start_machine(self, note: Note, spec: DesktopSpec, token: str) -> Address:
        """See `Provider`; tokens are the world's."""
        if note.id in self.world.desktops:
            raise BootError(f"there is a simulated desktop {note.id} already; give another id, or none")
        desktop = SimDesktop(self.world, self, note, spec, self.settings)
        self.world.add(desktop)
        await desktop.boot()
        return self._address(desktop)

    async def give_up(self, desktop_id: str) -> None:
        """See `Provider`; a machine that leaked stays."""
        desktop = self._find(desktop_id)
        if desktop is None or desktop.state is State.BOOTING:
            self._own.pop(desktop_id, None)
        if desktop is not None and desktop.state is State.BOOTING:
            desktop.unplug()

    async def end_machine(self, note: Note) -> None:
        """See `Provider`; one that belongs to another provider by now is left alone."""
        if (desktop := self._find(note.id)) is not None:
            await desktop.stop()

    async def revert_machine(self, note: Note, spec: DesktopSpec) -> Address:
        """See `Provider`."""
        desktop = self._find(note.id)
        if desktop is None:
            raise ResetError(f"simulated desktop {note.id} is not here (any more)")
        kept = (name for name in spec.__struct_fields__ if name not in REVERTIBLE)
        if changed := [name for name in kept if getattr(spec, name) != getattr(desktop.spec, name)]:
            raise ResetError(f"a reset cannot change {', '.join(changed)} of simulated desktop {desktop.id}")
        await desktop.reset(spec)
        return self._address(desktop)

    async def check(self, address: Address) -> None:
        """Raise a `DesktopError` unless the desktop is well: what its guest answers to /health, without the detour."""
        desktop = self.world.find(address.token)
        if desktop is None:
            raise DesktopLost(f"simulated desktop {address.id} is not at this address (any more)")
        await desktop.enter("")
        await desktop.check()

    def _find(self, desktop_id: str) -> SimDesktop | None:
        """A machine of ours."""
        desktop = self.world.desktops.get(desktop_id)
        return desktop if desktop is not None and desktop.keeper is self else None

    def _address(self, desktop: SimDesktop) -> Address:
        return Address(
            id=desktop.id, endpoint=self._server.endpoint, provider=self.name, token=desktop.token,
            width=desktop.spec.width, height=desktop.spec.height, simulated=True,
        )  # fmt: skip


class _WorldNotes(NoteStore):
    """Notes that are part of their machines, as tags are; whoever is open renews its own whenever somebody looks."""

    def __init__(self, provider: SimProvider) -> None:
        self._provider = provider
        self._world = provider.world

    async def list(self) -> list[Any]:
        return self._world.notes()

    async def write(self, note: Any) -> None:
        self._world.desktops[note.id].note = note

    async def claim(self, note: Note) -> Any:
        desktop = self._world.desktops.get(note.id)
        if desktop is None or not desktop.note.orphaned():
            return None
        provider = self._provider
        desktop.take_over(provider, renewed(desktop.note, provider.owner), provider.settings)
        return desktop.note

    async def renew(self, desktop_id: str) -> None:
        """Nothing: see `list`."""


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
