"""SimDesktop: one simulated machine: its life, its generations, and who used which of them.

A generation is the time from a boot or reset to the next reset. Guarantees: nothing that was begun in one generation
goes on in the next (`pause` raises instead); what one generation left behind, the next does not have.
"""

from __future__ import annotations

import asyncio
import enum
from collections import Counter
from typing import NoReturn, Protocol

from deskroll.desktops.base import DesktopSpec, Fence
from deskroll.desktops.guest.requests import BadRequest
from deskroll.desktops.notes import Note
from deskroll.desktops.providers.sim.contents import Contents
from deskroll.desktops.providers.sim.dice import Turn
from deskroll.desktops.providers.sim.settings import SimSettings
from deskroll.errors import BootError, DeathCause, DesktopError, DesktopLost, ResetError


class State(enum.StrEnum):
    """What a simulated machine is at the moment."""

    BOOTING = "booting"
    READY = "ready"
    RESETTING = "resetting"
    WEDGED = "wedged"
    """It runs, and answers nothing."""
    BROKEN = "broken"
    """It runs in no known state: a boot leaked it, or a reset or a stop did not finish."""
    STOPPING = "stopping"
    DEAD = "dead"
    """It runs no more."""


_ENDED = (State.DEAD, State.STOPPING, State.BROKEN)
_BETWEEN = (State.BOOTING, State.RESETTING)


class Keeper(Protocol):
    """The provider that owns a machine."""

    is_open: bool
    """Whether it still renews its notes."""

    def report_lost(self, desktop_id: str, reason: str, cause: DeathCause) -> None:
        """Hear that a machine died by itself."""


class World(Protocol):
    """Where a machine stands."""

    resets: int
    violations: list[str]

    def number(self) -> int:
        """The number of the next machine."""

    def remove(self, desktop: SimDesktop) -> None:
        """Take a machine away, if it is still there."""

    def move(self, desktop: SimDesktop, state: State) -> None:
        """Change the state of a machine."""

    def grant(self, desktop: SimDesktop) -> None:
        """Give a machine a token, unless it has one."""

    def revoke(self, desktop: SimDesktop, *, gone: bool = False) -> None:
        """Make a machine's token worthless; `gone`: because the machine is."""


class SimDesktop:
    """One machine of a world."""

    def __init__(self, world: World, keeper: Keeper, note: Note, spec: DesktopSpec, settings: SimSettings) -> None:
        self.id = note.id
        self.world = world
        self.keeper = keeper
        self.note = note
        self.spec = spec
        self.settings = settings
        self.state = State.DEAD
        self.generation = 0
        self.token = ""
        self.checked = False
        """Whether a health check succeeded in this generation."""
        self.contents = Contents(spec)
        self.acting = asyncio.Lock()
        """One step at a time."""
        self.reason = "has not booted"
        self.epoch = 0
        """Raised by everything that ends what is going on."""
        self._number = world.number()
        self._turns: Counter[str] = Counter()
        self._leases: list[str] = []
        self._unchecked: set[str] = set()
        self._pauses: set[asyncio.Future[None]] = set()
        self._death: asyncio.TimerHandle | None = None

    @property
    def used(self) -> bool:
        """Whether a lease reached it in this generation."""
        return bool(self._leases)

    async def boot(self) -> None:
        """Come up; raises `BootError`. State BROKEN afterwards: the machine is still there."""
        turn, faults = self.turn("boot"), self.settings
        try:
            if turn.happens("boot_hangs", faults.boot_hangs):
                await self.pause(None)
            await self.pause(turn.lasts("boot", self.settings.boot))
        except DesktopLost as error:
            raise BootError(str(error)) from None
        if turn.happens("boot_leaks", faults.boot_leaks):
            self.world.move(self, State.BROKEN)
            raise BootError(f"simulated desktop {self.id} did not boot, and its machine is still there: stop it")
        if turn.happens("boot_fails", faults.boot_fails):
            raise BootError(f"simulated desktop {self.id} did not boot, as its settings want it (boot_fails)")
        self._begin_generation()

    async def reset(self, spec: DesktopSpec) -> None:
        """Go back to the clean state of `spec`; raises `ResetError`, and the machine is BROKEN then."""
        if self.state in (*_BETWEEN, State.STOPPING):
            raise ResetError(f"simulated desktop {self.id} is {self.state} and cannot be reset now")
        turn, faults = self.turn("reset"), self.settings
        self.world.resets += 1
        self.world.move(self, State.RESETTING)
        self._end_generation("is being reset")
        epoch = self.epoch
        try:
            if turn.happens("reset_hangs", faults.reset_hangs):
                await self.pause(None)
            slow = faults.slow_factor if turn.happens("reset_slow", faults.reset_slow) else 1.0
            await self.pause(turn.lasts("reset", self.settings.reset) * slow)
            if turn.happens("reset_fails", faults.reset_fails):
                raise ResetError(f"simulated desktop {self.id} was not reset, as its settings want it (reset_fails)")
        except DesktopLost as error:
            raise ResetError(str(error)) from None
        else:
            self.spec = spec
            self._begin_generation()
        finally:
            # However it ended: failed, or called off. Unless somebody else has the machine by now.
            if self.state is State.RESETTING and self.epoch == epoch:
                self.reason = "was not reset"
                self.world.move(self, State.BROKEN)

    async def stop(self) -> None:
        """Go away. A stop that fails or is called off leaves the machine BROKEN."""
        turn = self.turn("stop")
        if self.state is not State.STOPPING:
            self._end_generation("was stopped", gone=True)
            self.world.move(self, State.STOPPING)
        done = False
        try:
            if seconds := turn.lasts("stop", self.settings.stop):
                await asyncio.sleep(seconds)
            if turn.happens("stop_fails", self.settings.stop_fails):
                raise DesktopError(f"simulated desktop {self.id} was not stopped, as its settings want it (stop_fails)")
            done = True
        finally:
            if done:
                self.world.remove(self)
            elif self.state is State.STOPPING:
                self.world.move(self, State.BROKEN)

    def unplug(self) -> None:
        """Take the machine away at once, whatever it does."""
        self._end_generation("was stopped", gone=True)
        self.world.remove(self)

    def take_over(self, keeper: Keeper, note: Note, settings: SimSettings) -> None:
        """Change hands. What the last keeper was about ends; the machine wants a reset."""
        self.keeper, self.note, self.settings = keeper, note, settings
        self._end_generation("was taken over")
        if self.state is not State.DEAD:
            self.world.move(self, State.BROKEN)

    def die(self, reason: str) -> None:
        """End by itself, and have the keeper told."""
        self._interrupt(reason)
        self.world.move(self, State.DEAD)
        self.keeper.report_lost(self.id, reason, self.settings.dies_of)

    def wedge(self) -> None:
        """Answer nothing any more."""
        self.world.move(self, State.WEDGED)

    async def enter(self, lease: str) -> None:
        """A request arrives, on behalf of a lease or of nobody. Raises when the machine cannot serve it."""
        if lease:
            self._look_at(lease)
        if self.state is State.READY:
            return
        if self.state in _ENDED:
            self.lose()
        if self.state in _BETWEEN:
            raise BadRequest(f"simulated desktop {self.id} is {self.state}", status=503)
        await self.pause(None)

    async def check(self) -> None:
        """The health check."""
        await self.pause(self.turn("check").lasts("check", self.settings.check))
        self.checked = True

    async def pause(self, seconds: float | None) -> None:
        """Let time pass (None: for ever); raises `DesktopLost` when what is going on was ended meanwhile."""
        if seconds is not None and seconds <= 0:
            return
        epoch, loop = self.epoch, asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, _finish, over)
        self._pauses.add(over)
        try:
            await over
        finally:
            self._pauses.discard(over)
            if timer is not None:
                timer.cancel()
        self.still(epoch)

    def still(self, epoch: int) -> None:
        """Raise `DesktopLost` when what was going on at `epoch` was ended."""
        if epoch != self.epoch:
            self.lose()

    def lose(self) -> NoReturn:
        """Raise `DesktopLost` with the reason."""
        cause = self.settings.dies_of if self.state is State.DEAD else DeathCause.UNKNOWN
        raise DesktopLost(f"simulated desktop {self.id} {self.reason}", cause)

    def turn(self, kind: str) -> Turn:
        """The next operation of a kind, for random decisions about it."""
        number = self._turns[kind]
        self._turns[kind] += 1
        return Turn(self.settings.seed, self._number, number)

    def _begin_generation(self) -> None:
        self.generation += 1
        self.contents = Contents(self.spec)
        self._leases = []
        self._unchecked = set()
        self.world.grant(self)
        self.world.move(self, State.READY)
        turn, faults = self.turn("clean"), self.settings
        if turn.happens("dies_idle", faults.dies_idle):
            delay = turn.lasts("dies_after", faults.dies_after)
            self._death = asyncio.get_running_loop().call_later(delay, self._die_idle)

    def _end_generation(self, reason: str, *, gone: bool = False) -> None:
        self._interrupt(reason)
        if gone or self.settings.fence is Fence.HARD:
            self.world.revoke(self, gone=gone)
        self.checked = False

    def _interrupt(self, reason: str) -> None:
        self.reason = reason
        self.epoch += 1
        for over in self._pauses:
            _finish(over)
        if self._death is not None:
            self._death.cancel()
            self._death = None

    def _die_idle(self) -> None:
        if self.state is State.READY and not self.used:
            self.die("died while nobody used it")

    def _look_at(self, lease: str) -> None:
        """Write down what must never happen."""
        where = f"desktop {self.id}, generation {self.generation}"
        ready = self.checked and self.state not in _BETWEEN
        if not ready and lease not in self._unchecked:
            self._unchecked.add(lease)
            what = f"while it was {self.state}" if self.state in _BETWEEN else "before a health check succeeded"
            self.world.violations.append(f"{where}: handed out unchecked: lease {lease} used it {what}")
        if lease not in self._leases:
            if self._leases:
                self.world.violations.append(f"{where}: used by lease {lease} after lease {self._leases[0]}, not reset")
            self._leases.append(lease)


def _finish(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)
