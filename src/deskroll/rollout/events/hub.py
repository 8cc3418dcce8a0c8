"""EventHub: all events of a run come together here; whoever shows, counts, keeps or exports something has it from here.

Guarantees: `emit` neither waits nor raises, whatever a listener, the disk or a follower does. Listeners hear an event
at once, in the order of arrival. No `reason` leaves here with a secret in it. The newest events are kept in memory,
`RING` bytes of them; a follower that is slower than that misses some, and is told how many. Followers are sent an event
within `FOLLOWED_S`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any, NamedTuple, TypeVar, get_args

import msgspec

from deskroll.events import Event, EventSink, EventsSkipped, Occurrence, guarded, kind_of
from deskroll.rollout.events.file import EventFile

FOLLOWED_S = 0.02
_FILED_S = 0.25
"""While nobody follows, lines are made and written this seldom."""
RING = 8 * 2**20
_log = logging.getLogger(__name__)
_encoder = msgspec.json.Encoder()
_TELLING = frozenset(kind for kind in get_args(Event) if "reason" in kind.__struct_fields__)
E = TypeVar("E", bound=Occurrence)


class _Lines(NamedTuple):
    """Events that were made into lines together."""

    first: int
    """How many came before."""
    number: int
    data: bytes


class EventHub:
    """Use with `async with`."""

    def __init__(
        self,
        hide: Callable[[str], str],
        file: EventFile | None = None,
        *,
        sink: EventSink | None = None,
        ring: int = RING,
        enabled: bool = True,
    ) -> None:
        self._hide = hide
        self._file = file
        self._sink = guarded(sink)
        self._most = ring
        self._enabled = enabled
        """If not, listeners hear what the coordinator itself has to say, and nothing is kept."""
        self._listeners: dict[type, list[Callable[[Any], None]]] = {}
        self._pending: list[Event] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.get_ident()
        self._ring: deque[_Lines] = deque()
        self._size = self._count = self._followers = 0
        self._timer: asyncio.TimerHandle | None = None
        self._more = asyncio.Event()
        self._ended = False
        self._failed: set[type] = set()

    async def __aenter__(self) -> EventHub:
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.end_following()
        self._enabled = False
        if self._file is not None:
            await self._file.close()

    def on(self, kind: type[E], hear: Callable[[E], None]) -> None:
        """Have every event of a kind heard, at once."""
        self._listeners.setdefault(kind, []).append(hear)

    def emit(self, event: Event) -> None:
        """Take an event, from whichever process, and from any thread of this one."""
        if threading.get_ident() != self._thread:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self.emit, event)
            return
        kind = type(event)
        if kind in _TELLING and (reason := event.reason):  # type: ignore[union-attr]
            event = msgspec.structs.replace(event, reason=self._hide(reason))
        for hear in self._listeners.get(kind, ()):
            try:
                hear(event)
            except Exception:  # noqa: BLE001  (whoever listens must not hurt who reports, nor the others)
                self._tell_failure(kind)
        self._sink.emit(event)
        if self._enabled:
            self._pending.append(event)
            if self._timer is None:
                wait = FOLLOWED_S if self._followers else _FILED_S
                self._timer = asyncio.get_running_loop().call_later(wait, self._flush)

    async def follow(self, last: int = 0) -> AsyncGenerator[bytes]:
        """Lines as they come, after the last so many, until the run is closed."""
        self._flush()
        self._followers += 1
        position = max(0, self._count - last)
        try:
            while True:
                ended, more = self._ended, self._more
                position, data = self._since(position)
                if data:
                    yield data
                elif ended:
                    return
                else:
                    await more.wait()
        finally:
            self._followers -= 1

    def end_following(self) -> None:
        """Let whoever follows have what there is, and no more."""
        self._ended = True
        self._flush()
        self._wake()

    def _since(self, position: int) -> tuple[int, bytes]:
        """All lines from a position on, as far as they are still there."""
        found = [lines for lines in self._ring if lines.first + lines.number > position]
        if not found:
            return position, b""
        parts = [lines.data for lines in found]
        if (missed := found[0].first - position) > 0:
            parts.insert(0, _encoder.encode(EventsSkipped(count=missed)) + b"\n")
        elif missed < 0:
            parts[0] = b"".join(parts[0].splitlines(keepends=True)[-missed:])
        return found[-1].first + found[-1].number, b"".join(parts)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._pending:
            return
        events, self._pending = self._pending, []
        data = _lines_of(events)
        self._ring.append(_Lines(self._count, len(events), data))
        self._count += len(events)
        self._size += len(data)
        while self._size > self._most and len(self._ring) > 1:
            self._size -= len(self._ring.popleft().data)
        if self._file is not None:
            self._file.put(data)
        self._wake()

    def _tell_failure(self, kind: type[Event]) -> None:
        """Once for each kind: a run has millions of events."""
        if kind not in self._failed:
            self._failed.add(kind)
            _log.exception("not everybody who listens could hear the event %s", kind_of(kind))

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()


def _lines_of(events: list[Event]) -> bytes:
    try:
        return _encoder.encode_lines(events)
    except (TypeError, UnicodeEncodeError):  # somebody's text is no Unicode: the others are not lost by it
        return b"".join(map(_line_of, events))


def _line_of(event: Event) -> bytes:
    try:
        return _encoder.encode(event) + b"\n"
    except (TypeError, UnicodeEncodeError):
        return _encoder.encode({"kind": kind_of(event), "at": event.at}) + b"\n"
