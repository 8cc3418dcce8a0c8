"""Whether a program has read the input that was sent to it.

The X server queues events for a program and forgets them; the program may read them much later. Owns the
question 'has this window's program read everything up to now?', asked with `_NET_WM_PING`: the ping enters
the same queue behind the input, so its answer proves that the input was read. Toolkits (GTK, Qt, Chromium)
answer by themselves. A program that does not take part (xterm) is given `SILENT_S` since the input was
sent, and longer where its process is still at work: one that has read everything sleeps.

A window manager is asked with `_NET_REQUEST_FRAME_EXTENTS`, which it answers with a property on the window.

What one of them does about input gives others something to read (a dialog is mapped by its program, placed by the
window manager, then painted by its program): `have_read` asks again until nobody new has got the focus.
"""

from __future__ import annotations

import itertools
import select
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from Xlib import X, error
from Xlib.display import Display
from Xlib.protocol import event
from Xlib.xobject.drawable import Window

SILENT_S = 0.25
"""Seconds given to a program that cannot be asked."""
AWAKE_S = 2.0
"""Seconds that it is given beyond those while its process does not sleep; one that used them up gets no more until it
was seen asleep."""
PATIENCE_S = 5.0
"""Seconds that a program which can be asked may take to answer. One that takes longer hangs: it is given
`SILENT_S` from then on, until it has answered again."""
_NOBODY = 0
_GONE = error.CatchError(error.BadWindow)
"""What is said to a window that is gone is lost, and that is all."""


class Readers:
    """Finds the window that input goes to, and waits until its program has caught up."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._root = display.screen().root
        self._ping = display.intern_atom("_NET_WM_PING")
        self._protocols = display.intern_atom("WM_PROTOCOLS")
        self._pid = display.intern_atom("_NET_WM_PID")
        self._supported = display.intern_atom("_NET_SUPPORTED")
        self._manager = display.intern_atom("_NET_SUPPORTING_WM_CHECK")
        self._ask_extents = display.intern_atom("_NET_REQUEST_FRAME_EXTENTS")
        self._extents = display.intern_atom("_NET_FRAME_EXTENTS")
        self._asking: Window | None = None
        # Window managers number their own pings from 1: keep away from those.
        self._serials = itertools.count(0x7D000000)
        self._hanging: set[int] = set()
        self._awake: set[int] = set()
        """Windows of programs that cannot be asked and did not sleep when they were waited for."""

    def focused(self) -> int:
        """Return the id of the top-level window with the keyboard focus; 0 where there is none to name."""
        focus = self._display.get_input_focus().focus
        return _NOBODY if isinstance(focus, int) else self._top_level(focus)

    def under_pointer(self) -> int:
        """Return the id of the window under the pointer that can be asked; 0 where there is none."""
        window = self._root
        try:
            while not isinstance(child := window.query_pointer().child, int):
                if self._answers(child):
                    return int(child.id)
                window = child
        except error.XError:  # it was closed while we looked
            return _NOBODY
        return _NOBODY

    def wait(self, windows: Iterable[int], sent_at: float) -> None:
        """Return once the programs behind `windows` have read what was sent to them until now, or hang.

        `sent_at` is the time (monotonic) of the last input that they got.
        """
        asked, silent = {}, set()
        for window in set(windows):
            if window != _NOBODY and self._answers(self._window(window)):
                asked[next(self._serials)] = window
            else:
                silent.add(window)
        if silent:
            time.sleep(max(0.0, sent_at + SILENT_S - time.monotonic()))
            for window in silent - {_NOBODY}:
                self._let_sleep(window)
        if asked:
            self._ask(asked, SILENT_S if self._hanging.issuperset(asked.values()) else PATIENCE_S)

    def have_read(self, windows: Iterable[int], patience: float) -> bool:
        """Whether all programs that got input have read it within `patience` seconds, as far as they can be asked.

        They are the window manager, those behind `windows`, and whoever has the focus after that.
        """
        deadline = time.monotonic() + patience
        asked = {_NOBODY}
        while True:
            if not self.wait_for_manager(deadline - time.monotonic()):
                return False
            new = {*windows, self.focused()} - asked
            if not new:
                return True
            asked |= new
            able = {next(self._serials): window for window in new if self._answers(self._window(window))}
            if able and not self._ask(able, deadline - time.monotonic()):
                return False

    def wait_for_manager(self, patience: float | None = None) -> bool:
        """Return once the window manager has read what was sent until now, or (False) hangs.

        At once where there is none, or one that cannot be asked. Without a `patience` of the caller's, one that hung
        the last time is given `SILENT_S`.
        """
        managers = self._root.get_full_property(self._manager, X.AnyPropertyType)
        supported = self._root.get_full_property(self._supported, X.AnyPropertyType)
        if not managers or not len(managers.value) or not supported or self._ask_extents not in supported.value:
            return True
        manager = int(managers.value[0])
        if not self._exists(manager):  # it has ended, and what it said of itself is still there
            return True
        if patience is None:
            patience = SILENT_S if manager in self._hanging else PATIENCE_S
        answered = self._ask_manager(patience)
        self._hanging = self._hanging - {manager} if answered else self._hanging | {manager}
        self._drop_events()
        return answered

    def _ask_manager(self, patience: float) -> bool:
        """About a window that is never destroyed: openbox dies of one that is gone when it comes to it."""
        if self._asking is None:
            self._asking = self._root.create_window(0, 0, 1, 1, 0, 0, X.InputOnly, event_mask=X.PropertyChangeMask)
        asking = self._asking
        message = event.ClientMessage(window=asking, client_type=self._ask_extents, data=(32, [0] * 5))
        self._root.send_event(message, event_mask=X.SubstructureRedirectMask | X.SubstructureNotifyMask)

        def is_answer(received: object) -> bool:  # openbox sets other properties before it has done
            told = isinstance(received, event.PropertyNotify) and received.window == asking
            return told and getattr(received, "atom", None) == self._extents

        answered = self._hear(is_answer, patience)
        if not answered:
            self._asking = None  # an answer that comes late is not taken for that to the next question
        return answered

    def _let_sleep(self, window: int) -> None:
        """Return once the program behind a window sleeps, as far as that can be seen."""
        pid = self._pid_of(self._window(window))
        until, asleep = time.monotonic() + (0.0 if window in self._awake else AWAKE_S), 0
        while True:
            asleep = asleep + 1 if _sleeps(pid) else 0
            if asleep == 2 or time.monotonic() >= until:  # twice: it may wait for an answer in the middle of its work
                break
            time.sleep(0.005)
        self._awake = self._awake - {window} if asleep else self._awake | {window}

    def _pid_of(self, window: Window) -> int:
        """Whose it, or a window that holds it, says it is; 0: nobody's."""
        current: Window | int = window
        try:
            while not isinstance(current, int):
                found = current.get_full_property(self._pid, X.AnyPropertyType)
                if found is not None and len(found.value):
                    return int(found.value[0])
                current = current.query_tree().parent
        except error.XError:  # it was closed while we looked
            pass
        return _NOBODY

    def _ask(self, asked: dict[int, int], patience: float) -> bool:
        """Ping windows, by serial; whether all have answered, or are gone: then there is nothing left to read."""
        # Answers are sent to the root window, to whoever listens to its children.
        self._root.change_attributes(event_mask=X.SubstructureNotifyMask)
        for serial, number in asked.items():
            window = self._window(number)
            window.change_attributes(onerror=_GONE, event_mask=X.StructureNotifyMask)
            message = event.ClientMessage(
                window=window, client_type=self._protocols, data=(32, [self._ping, serial, number, 0, 0])
            )
            window.send_event(message, onerror=_GONE)
        silent = {serial for serial, window in asked.items() if self._exists(window)}

        def heard(received: object) -> bool:
            silent.discard(self._answer(received))
            if isinstance(received, event.DestroyNotify):
                silent.difference_update([serial for serial in silent if asked[serial] == received.window.id])
            return not silent

        if silent:
            self._hear(heard, patience)
        self._hanging -= set(asked.values())
        self._hanging |= {asked[serial] for serial in silent}
        for window in (self._root, *map(self._window, asked.values())):
            window.change_attributes(onerror=_GONE, event_mask=X.NoEventMask)
        self._drop_events()
        return not silent

    def _hear(self, is_last: Callable[[object], bool], patience: float) -> bool:
        """Take events in until the one that is waited for has come; False where it has not, within this time."""
        deadline = time.monotonic() + patience
        while (left := deadline - time.monotonic()) > 0:
            if not self._display.pending_events():
                select.select([self._display.fileno()], [], [], left)
            elif is_last(self._display.next_event()):
                return True
        return False

    def _drop_events(self) -> None:
        self._display.sync()
        while self._display.pending_events():
            self._display.next_event()

    def _answer(self, received: object) -> int:
        if isinstance(received, event.ClientMessage) and received.client_type == self._protocols:
            data = received.data[1]
            if data[0] == self._ping:
                return int(data[1])
        return -1

    def _window(self, window: int) -> Window:
        found = self._display.create_resource_object("window", window)
        assert isinstance(found, Window)  # noqa: S101 - the library's signature is wider than what it returns
        return found

    def _exists(self, window: int) -> bool:
        try:
            self._window(window).get_attributes()
        except error.XError:
            return False
        return True

    def _answers(self, window: Window) -> bool:
        try:
            protocols = window.get_full_property(self._protocols, X.AnyPropertyType)
        except error.XError:
            return False
        return protocols is not None and self._ping in protocols.value

    def _top_level(self, window: Window) -> int:
        """Return the nearest ancestor that can be asked, else the window itself."""
        current: Window | int = window
        while not isinstance(current, int) and current != self._root:
            if self._answers(current):
                return int(current.id)
            try:
                current = current.query_tree().parent
            except error.XError:
                break
        return int(window.id)


def _sleeps(pid: int) -> bool:
    """Whether a process waits for something, or is none of ours to look at."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("R", "D")
    except (OSError, IndexError):
        return True
