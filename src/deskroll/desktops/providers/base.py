"""Provider: the base of every kind of desktop.

A kind says how a machine is started and ended (`start_machine`, `end_machine`) and what it is capable of; what else it
may say has a default. Owned here, for all of them: the note of each desktop, from before its start until it is gone,
and its renewal; that a desktop whose start was begun is either handed out or taken away, whatever is cancelled; that
one which died by itself is told of once; taking over and removing what owners that are gone have left. Leaving the
`async with` block stops everything that was booted or adopted.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from deskroll import events
from deskroll.desktops.base import HEIGHTS, WIDTHS, Address, Capabilities, DesktopSpec, Recycling, TellLost
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.notes import RENEW_S, RENEWAL, Note, renewed
from deskroll.desktops.providers.note_store import HostNotes, NoteStore
from deskroll.errors import BootError, DeathCause, DeskrollError, DesktopError, InputError, ResetError
from deskroll.host.owner import Owner
from deskroll.host.supervise import Supervisor
from deskroll.plugins import Plugin

_log = logging.getLogger(__name__)


class Provider(Plugin):
    """Boots and stops desktops of one kind. Use with `async with`; calls for several may run side by side."""

    name: ClassVar[str]
    """What its desktops and their notes are called by."""
    capabilities: Capabilities = Capabilities()
    note_type: ClassVar[type[Note]] = Note
    """What it notes of a desktop."""
    boot_limit_s: ClassVar[float | None] = None
    """The longest that a boot may take, in seconds; None: as long as its caller waits."""
    check_limit_s: ClassVar[float] = 10.0
    """Deadline of a health check, in seconds."""

    def __init__(self, settings: Any = None, *, sink: events.EventSink | None = None) -> None:
        self.settings: Any = self.Settings() if settings is None else settings
        self.owner = Owner.this_process()
        self.store = self.note_store()
        self._sink = events.guarded(sink)
        self._own: dict[str, Any] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._lost: set[str] = set()
        self._tell_lost: list[TellLost] = []
        self._background = Supervisor()
        self._closed = False

    # --- what a kind says --------------------------------------------------------------------------------------------

    @abstractmethod
    async def start_machine(self, note: Any, spec: DesktopSpec, token: str) -> Address:
        """Start the machine of a desktop; returns when it can be used, with where it answers.

        `token`: what its guest is to want of whoever asks it; empty: the provider decides. May raise anything, or be
        cancelled: `end_machine` follows.
        """

    @abstractmethod
    async def end_machine(self, note: Any) -> None:
        """End a machine, ours or an orphan's, with all that it was, however far its start has come. May be repeated."""

    async def revert_machine(self, note: Any, spec: DesktopSpec) -> Address:
        """Put a machine back to the clean state of `spec`, where `capabilities.recycling` says that it can.

        The old address is dead then where the fence is hard. Raises `ResetError`: the desktop is stopped then.
        """
        raise ResetError(f"desktop {note.id} has no snapshot to go back to: desktops of {self.name} are replaced")

    def note_store(self) -> NoteStore:
        """Where its notes are kept."""
        return HostNotes(self.name, self.note_type)

    def note_fields(self, desktop_id: str, spec: DesktopSpec) -> Mapping[str, Any]:
        """What a note of its own type says besides what every note does, before the desktop is started."""
        return {}

    def check_spec(self, spec: DesktopSpec) -> None:
        """Raise `InputError` when no desktop of this provider can ever be like that."""
        for name, value, (low, high) in (("width", spec.width, WIDTHS), ("height", spec.height, HEIGHTS)):
            if not low <= value <= high:
                raise InputError(f"DesktopSpec.{name} is {value}; allowed: {low} to {high}")

    async def warm_up(self) -> None:
        """Start what a boot would have to wait for."""

    async def check(self, address: Address) -> None:
        """Raise a `DesktopError` unless the desktop can be used: it answers, shows a screen, has room and memory."""
        async with GuestDesktop(address, timeout=self.check_limit_s) as desktop:
            await desktop.check()

    def boot_seconds(self, desktop_id: str) -> Mapping[str, float]:
        """Where the time of a desktop's boot went, by part."""
        return {}

    async def give_up(self, desktop_id: str) -> None:
        """Remove what a boot that failed, or was cancelled, may have left."""
        await self.stop(desktop_id)

    async def stop_all(self) -> None:
        """Stop all desktops of ours, those that are booting among them."""
        while self._own:
            await asyncio.gather(*(self.stop(desktop_id) for desktop_id in list(self._own)))

    async def shut_down(self) -> None:
        """Let go of what all desktops shared."""

    # --- what pools and people call ----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop every desktop, and let go of the rest."""
        self._closed = True
        try:
            await self.stop_all()
        finally:
            await self._background.close()
            await self.shut_down()

    def on_lost(self, tell: TellLost) -> None:
        """Have it told when a desktop dies by itself, where the provider can know."""
        self._tell_lost.append(tell)

    async def boot(self, spec: DesktopSpec = DesktopSpec(), *, desktop_id: str = "", token: str = "") -> Address:
        """Start a desktop, under the id that is given; returns when it can be used.

        Raises `BootError`, leaving nothing behind; after a boot that was cancelled, `stop` removes what may be left.
        """
        self.check_spec(spec)
        self.require_open()
        began = time.monotonic()
        await self.warm_up()
        desktop_id = desktop_id or f"{self.name}-{secrets.token_hex(4)}"
        if desktop_id in self._own:
            raise BootError(f"there is a desktop {desktop_id} already; give another id, or none")
        note = self._new_note(desktop_id, spec)
        await self.store.add(note)
        self._take(note)
        try:
            async with asyncio.timeout(self.boot_limit_s):
                address = await self.start_machine(note, spec, token)
        except BaseException as error:
            await asyncio.shield(self.give_up(desktop_id))
            if isinstance(error, TimeoutError) and self.boot_limit_s is not None:
                raise BootError(f"desktop {desktop_id} did not boot within {self.boot_limit_s:g} s") from None
            if isinstance(error, OSError):
                raise BootError(f"desktop {desktop_id} did not boot: {error}") from error
            raise
        parts = dict(self.boot_seconds(desktop_id))
        self._sink.emit(events.DesktopBooted(desktop=desktop_id, seconds=time.monotonic() - began, parts=parts))
        return address

    async def revert(self, desktop_id: str, spec: DesktopSpec) -> Address:
        """Put a desktop back to the clean state of `spec`. Raises `ResetError`: the desktop must then be stopped."""
        note = self._own.get(desktop_id)
        if note is None:
            raise ResetError(f"desktop {desktop_id} is not here (any more)")
        if self.capabilities.recycling is not Recycling.REVERT:
            raise ResetError(f"desktop {desktop_id} cannot be reverted: desktops of {self.name} are replaced")
        return await self._revert(note, spec)

    async def stop(self, desktop_id: str) -> None:
        """End a desktop and remove everything that it was. Unknown ids are no error: it is gone."""
        note = self._own.get(desktop_id)
        if note is None:
            return
        if desktop_id not in self._ending:
            self._ending[desktop_id] = asyncio.create_task(self._end(note))
        # Shielded: once begun, taking a desktop away is finished whatever happens to the caller.
        await asyncio.shield(self._ending[desktop_id])

    async def notes(self) -> list[Note]:
        """Every desktop of this kind within reach that deskroll started, whoever owns it."""
        return list(await self.store.list())

    async def adopt(self, note: Note, spec: DesktopSpec) -> Address:
        """Take over a desktop whose owner is gone, and put it back to the clean state of `spec`.

        Only where `capabilities.adopts`. Raises `ResetError`, also when somebody else was faster.
        """
        if not self.capabilities.adopts:
            raise ResetError(f"desktop {note.id} cannot be taken over: desktops of {self.name} end with their owner")
        self.require_open()
        ours = await self.store.claim(note)
        if ours is None:
            raise ResetError(f"desktop {note.id} is not an orphan (any more): leave it to its owner")
        self._take(ours)
        return await self._revert(ours, spec)

    async def remove(self, note: Note) -> None:
        """Remove whatever is left of a desktop whose owner is gone; one with another owner by now is left alone."""
        was_ours = note.id in self._own
        ours = await self.store.claim(note)
        if ours is not None and not was_ours:
            self._own[ours.id] = ours
        await self.stop(note.id)
        if ours is not None and not was_ours:
            self._sink.emit(events.DesktopReaped(desktop=note.id, owner_pid=note.owner.pid))

    # --- what kinds call ---------------------------------------------------------------------------------------------

    async def rewrite_note(self, note: Any) -> None:
        """Replace the note of a desktop of ours by one that says more."""
        self._own[note.id] = note
        await self.store.write(note)

    def report_lost(self, desktop_id: str, reason: str, cause: DeathCause) -> None:
        """A desktop died by itself: say so, once, unless it is ours no more, or being stopped."""
        if desktop_id not in self._own or desktop_id in self._ending or desktop_id in self._lost:
            return
        self._lost.add(desktop_id)
        self._sink.emit(events.DesktopDied(desktop=desktop_id, reason=reason, cause=cause))
        for tell in self._tell_lost:
            tell(desktop_id, reason, cause)

    def require_open(self) -> None:
        """Raise `BootError` where nothing more may be started."""
        if self._closed:
            raise BootError("the provider is closed: it boots no more desktops")

    # -----------------------------------------------------------------------------------------------------------------

    def _new_note(self, desktop_id: str, spec: DesktopSpec) -> Any:
        now = time.time()
        note = self.note_type(
            id=desktop_id, provider=self.name, owner=self.owner, created_at=now, expires_at=now,
            width=spec.width, height=spec.height, **self.note_fields(desktop_id, spec),
        )  # fmt: skip
        return renewed(note)

    def _take(self, note: Any) -> None:
        self._own[note.id] = note
        self._lost.discard(note.id)
        self._background.keep(RENEWAL, self._keep_renewing)

    async def _revert(self, note: Any, spec: DesktopSpec) -> Address:
        self.check_spec(spec)
        began = time.monotonic()
        address = await self.revert_machine(note, spec)
        self._lost.discard(note.id)
        self._sink.emit(events.DesktopReset(desktop=note.id, seconds=time.monotonic() - began))
        return address

    async def _end(self, note: Any) -> None:
        try:
            await self.end_machine(self._own.get(note.id, note))
            await self.store.remove(note.id)
        except OSError as error:  # it is still ours: the next stop tries again
            raise DesktopError(f"desktop {note.id} could not be taken away: {error}") from error
        finally:
            self._ending.pop(note.id, None)
        self._own.pop(note.id, None)
        self._lost.discard(note.id)
        self._sink.emit(events.DesktopStopped(desktop=note.id))

    async def _keep_renewing(self) -> None:
        while True:
            for desktop_id in list(self._own):
                try:
                    await self.store.renew(desktop_id)
                except (OSError, DeskrollError) as error:
                    # A full disk, for one: the others are still renewed, and this one at the next turn.
                    _log.warning("the note of desktop %s could not be renewed: %s", desktop_id, error)
            await asyncio.sleep(RENEW_S)
