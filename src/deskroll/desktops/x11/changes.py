"""What changes on the screen, as it happens: the X server's damage reports, checked against the pixels.

Owns one connection that only listens. Reports cost nothing while the screen stands still, so they are always on, and
the last seconds tell which small regions change by themselves. While something waits for the screen to settle, each
report is compared with the framebuffer, so that painting the same pixels again is no change.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator

import numpy as np
from Xlib.display import Display
from Xlib.error import ConnectionClosedError
from Xlib.ext import damage

from deskroll.desktops.base import Settle, SettleOutcome
from deskroll.desktops.x11.capture import Frame, Screen
from deskroll.desktops.x11.settle import HISTORY_S, Change, Rect, Settler, periodic_regions
from deskroll.errors import DesktopLost

_BATCH_S = 0.004
"""Reports are collected for this long, so that a window that paints piece by piece costs one look, not hundreds."""
_REMEMBERED = 64


class ChangeWatcher:
    """Listens to one display, in the event loop; never blocks it."""

    def __init__(self, screen: Screen, busy: Callable[[], bool]) -> None:
        self._screen = screen
        self._busy = busy
        self._display: Display | None = None
        self._damage = 0
        self._history: deque[Change] = deque(maxlen=_REMEMBERED)
        self._listeners: set[Callable[[list[Change]], None]] = set()
        self._lost = ""

    async def open(self, name: str) -> None:
        """Connect and start to listen."""
        loop = asyncio.get_running_loop()
        self._display = await loop.run_in_executor(None, _listen, name)
        self._damage = damage.damage_create(self._display.screen().root, damage.DamageReportDeltaRectangles)
        self._display.flush()
        loop.add_reader(self._display.fileno(), self._readable)

    def close(self) -> None:
        """Stop listening."""
        if self._display is not None:
            asyncio.get_running_loop().remove_reader(self._display.fileno())
            with contextlib.suppress(OSError, ConnectionClosedError):
                self._display.close()
            self._display = None

    def _readable(self) -> None:
        """Let reports gather for a moment, then read them all."""
        if self._display is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._display.fileno())
            loop.call_later(_BATCH_S, self._read)

    def _read(self) -> None:
        if self._display is None:
            return
        try:
            rects = [_rect(self._display.next_event()) for _ in range(self._display.pending_events())]
            # Without this the server would not report the same region again.
            damage.damage_subtract(self._display, self._damage)
            self._display.flush()
        except Exception as error:  # noqa: BLE001  (a watcher that has stopped in silence would call every screen settled)
            self._lost = f"changes of the screen cannot be followed any more: {type(error).__name__}: {error}"
            self._display = None
            return
        asyncio.get_running_loop().add_reader(self._display.fileno(), self._readable)
        now = time.monotonic()
        changes = [Change(now, rect) for rect in rects if rect is not None]
        self._history.extend(changes)
        for listener in self._listeners:
            listener(changes)

    def _catch_up(self) -> None:
        """Hear what was reported until now, without waiting for more."""
        self._read()
        if self._lost:
            raise DesktopLost(self._lost)

    @contextlib.contextmanager
    def watch(self, settle: Settle, *, clicked: bool) -> Iterator[SettleWatch]:
        """Follow what an action changes; enter before acting."""
        if self._lost:
            raise DesktopLost(self._lost)
        now = time.monotonic()
        recent = [change for change in self._history if now - change.at <= HISTORY_S]
        settler = Settler(settle, now, periodic_regions(recent), clicked=clicked)
        watch = SettleWatch(settler, self._screen, self._busy, self._catch_up)
        self._listeners.add(watch.heard)
        try:
            yield watch
        finally:
            self._listeners.discard(watch.heard)


class SettleWatch:
    """One action's wait."""

    def __init__(
        self, settler: Settler, screen: Screen, busy: Callable[[], bool], catch_up: Callable[[], None]
    ) -> None:
        self._busy = busy
        self._catch_up = catch_up
        self._settler = settler
        self._screen = screen
        self._seen = screen.grab()
        self._wake = asyncio.Event()

    def heard(self, changes: list[Change]) -> None:
        """Compare what was reported with the pixels, and tell the settler what really changed."""
        frame = self._screen.grab()
        before, after = _pixels(self._seen), _pixels(frame)
        self._seen = frame
        for change in changes:
            x, y, width, height = change.rect
            part = np.s_[max(y, 0) : y + height, max(x, 0) : x + width]
            if not np.array_equal(before[part], after[part]):
                self._settler.changed(change)
                self._wake.set()

    async def settled(self, is_read: Awaitable[bool]) -> SettleOutcome:
        """Wait; call once the last input has been delivered.

        `is_read` ends when the programs that got it have read it; with False, where they have not when `cap` is over.
        """
        self._settler.acted(time.monotonic())
        if await is_read:
            self._settler.read(time.monotonic())
        while True:
            answer = self._answer()
            if isinstance(answer, SettleOutcome):
                return answer
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(0.001, answer - time.monotonic()))

    def _answer(self) -> SettleOutcome | float:
        answer = self._settler.poll(time.monotonic(), busy=False)
        if not isinstance(answer, SettleOutcome):
            return answer
        # Asking the kernel costs a little, so only where it decides; and what was painted while the guest itself waited
        # for the CPU may be reported and not heard yet.
        busy = self._busy()
        self._catch_up()
        return self._settler.poll(time.monotonic(), busy=busy)


def _listen(name: str) -> Display:
    display = Display(name)
    # python-xlib ships this extension but does not load it by itself.
    info = display.query_extension(damage.extname)
    if info is None or not info.present:
        raise DesktopLost(f"X display {name} has no {damage.extname} extension, which settling needs")
    display.display.set_extension_major(damage.extname, info.major_opcode)
    display.extension_add_event(info.first_event, damage.DamageNotify)
    damage.query_version(display)
    return display


def _rect(event: object) -> Rect | None:
    area = getattr(event, "area", None)
    return None if area is None else Rect(area.x, area.y, area.width, area.height)


def _pixels(frame: Frame) -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
    rows = np.frombuffer(frame.data, np.uint32).reshape(frame.height, frame.stride // 4)
    return rows[:, : frame.width]
