"""The queue: who waits for a desktop, in which order, and who is held back by a quota.

Order: priority (higher first), then the group's ticket, then arrival. A group gets its ticket with its first request
and keeps it while any of its requests waits or holds a desktop, and for a minute after that. Guarantees: within one
spec requests are served in that order; a client never has more requests in line than its quota leaves room for, and
those that are held back keep their place.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeVar

import msgspec

from deskroll.desktops.base import DesktopSpec
from deskroll.errors import ConfigError
from deskroll.types import Record

K = TypeVar("K")
TICKET_KEPT_S = 60.0
"""For how long a group that neither waits nor holds anything keeps its place."""
_GROUPS_KEPT = 10_000


class Request(Record, frozen=True):
    """Somebody wants a desktop."""

    id: str
    """Also the id of the lease that comes of it."""
    spec: DesktopSpec
    client: str = ""
    """Whose quota it counts against."""
    group: str = ""
    """Requests of one group are served together, before those of groups that came later: of one plan's, where there
    is one (a run asks from several processes), else of one client's."""
    plan: str = ""
    """Of which of the plans that were told (`expected.py`) it is a part."""
    priority: int = 0
    """Higher ones are served first."""
    arrived_at: float = 0.0
    deadline: float | None = None
    """When to give up; None: never while the pool is healthy."""


class Quotas(Record, frozen=True):
    """How many desktops a client may hold at a time."""

    each: int | None = None
    """For every client that is not named; None: no limit."""
    named: dict[str, int] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        for client, limit in (("every client", self.each), *self.named.items()):
            if limit is not None and limit < 1:
                raise ConfigError(f"the quota of {client} is {limit}; at least 1, or the client would wait for ever")

    def of(self, client: str) -> int | None:
        """The limit of one client."""
        return self.named.get(client, self.each)


@dataclass(slots=True)
class _Group:
    """Requests that are served together."""

    ticket: int
    active: int = 0
    """How many of them wait or hold a desktop."""
    idle_since: float = 0.0


Place = tuple[int, int, int, str]
"""Where a request stands: sorts as requests are served. The last part is its id."""


class Queue:
    """Requests that wait. Plain data: no clock, no tasks."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._requests: dict[str, tuple[Request, Place]] = {}
        self._lines: dict[DesktopSpec, list[Place]] = {}
        self._parked: dict[str, list[Place]] = {}
        self._in_line: dict[str, list[Place]] = {}
        """By client, where it has a quota: those of its requests that stand in line."""
        self._held: Counter[str] = Counter()
        self._deadlines: list[tuple[float, str]] = []
        self._groups: OrderedDict[tuple[str, str], _Group] = OrderedDict()
        self._arrivals = 0

    def __len__(self) -> int:
        """How many wait, those held back included."""
        return len(self._requests)

    @property
    def parked(self) -> int:
        """How many are held back by a quota."""
        return sum(map(len, self._parked.values()))

    def all(self) -> list[Request]:
        """Everybody who waits, in order."""
        return [request for request, _ in sorted(self._requests.values(), key=lambda entry: entry[1])]

    def waiting(self, spec: DesktopSpec) -> int:
        """How many stand in line for such a desktop."""
        return len(self._lines.get(spec, ()))

    def add(self, request: Request) -> None:
        """Let a request wait at its place."""
        self._arrivals += 1
        ticket = self._ticket(request)
        place = (-request.priority, ticket, self._arrivals, request.id)
        self._requests[request.id] = (request, place)
        if request.deadline is not None:
            heappush(self._deadlines, (request.deadline, request.id))
        if self._quotas.of(request.client) is None:
            insort(self._lines.setdefault(request.spec, []), place)
            return
        insort(self._parked.setdefault(request.client, []), place)
        self._balance(request.client)

    def discard(self, request_id: str, now: float) -> Request | None:
        """Forget a request; None when it does not wait."""
        request = self._remove(request_id)
        if request is not None:
            self._leave_group(request, now)
        return request

    def _remove(self, request_id: str) -> Request | None:
        found = self._requests.pop(request_id, None)
        if found is None:
            return None
        request, place = found
        if not _drop(self._parked, request.client, place):
            _drop(self._lines, request.spec, place)
            _drop(self._in_line, request.client, place)
        self._balance(request.client)
        return request

    def take(self, spec: DesktopSpec) -> Request | None:
        """Remove and return who is next for such a desktop. Its client holds one more until `freed`."""
        line = self._lines.get(spec)
        if not line:
            return None
        request, _ = self._requests[line[0][3]]
        self._held[request.client] += 1
        self._remove(request.id)
        return request

    def freed(self, request: Request, now: float) -> None:
        """Whoever made that request holds one desktop less."""
        client = request.client
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]
        self._leave_group(request, now)
        self._balance(client)

    def unmet(self, supply: Mapping[DesktopSpec, int], allowed: Callable[[DesktopSpec], bool]) -> DesktopSpec | None:
        """The spec of the first request, in order, for which none of the desktops in `supply` is left."""
        best: tuple[Place, DesktopSpec] | None = None
        for spec, line in self._lines.items():
            coming = supply.get(spec, 0)
            if len(line) > coming and (best is None or line[coming] < best[0]) and allowed(spec):
                best = (line[coming], spec)
        return best[1] if best else None

    def lacking(self, supply: Mapping[DesktopSpec, int], allowed: Callable[[DesktopSpec], bool]) -> int:
        """How many requests in line have no desktop in `supply`."""
        short = ((spec, len(line) - supply.get(spec, 0)) for spec, line in self._lines.items())
        return sum(number for spec, number in short if number > 0 and allowed(spec))

    def overdue(self, now: float) -> list[Request]:
        """Requests whose deadline has passed."""
        found = []
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            found.append(self._requests[heappop(self._deadlines)[1]][0])
        return found

    def next_deadline(self) -> float | None:
        """When the next request gives up."""
        while self._deadlines and self._deadlines[0][1] not in self._requests:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def held_back(self, request_id: str) -> int | None:
        """The quota that keeps a request out of the line; None when none does."""
        request, place = self._requests[request_id]
        return self._quotas.of(request.client) if place in self._parked.get(request.client, ()) else None

    def ahead_of(self, request_id: str) -> int:
        """How many are served before this one, as things stand."""
        place = self._requests[request_id][1]
        return sum(1 for _, other in self._requests.values() if other < place)

    def _ticket(self, request: Request) -> int:
        if not request.group:
            return self._arrivals
        key = _group_of(request)
        group = self._groups.get(key)
        if group is None or (not group.active and request.arrived_at - group.idle_since > TICKET_KEPT_S):
            group = self._groups[key] = _Group(self._arrivals)
        group.active += 1
        self._groups.move_to_end(key)
        while len(self._groups) > _GROUPS_KEPT and not next(iter(self._groups.values())).active:
            self._groups.popitem(last=False)
        return group.ticket

    def _leave_group(self, request: Request, now: float) -> None:
        group = self._groups.get(_group_of(request))
        if group is not None:
            group.active -= 1
            group.idle_since = now

    def _balance(self, client: str) -> None:
        """Let as many of a client's requests stand in line as its quota has room for: the first ones in order."""
        quota = self._quotas.of(client)
        if quota is None:
            return
        room = max(0, quota - self._held[client])
        parked, in_line = self._parked.setdefault(client, []), self._in_line.setdefault(client, [])
        while in_line and (len(in_line) > room or (parked and parked[0] < in_line[-1])):
            place = in_line.pop()
            _drop(self._lines, self._requests[place[3]][0].spec, place)
            insort(parked, place)
        while parked and len(in_line) < room:
            place = parked.pop(0)
            insort(in_line, place)
            insort(self._lines.setdefault(self._requests[place[3]][0].spec, []), place)
        for places in (self._parked, self._in_line):
            if not places[client]:
                del places[client]


def _group_of(request: Request) -> tuple[str, str]:
    """Whose group it is: that of a plan, whichever of its clients asks; else the client's own."""
    return request.plan or request.client, request.group


def _drop(places: dict[K, list[Place]], key: K, place: Place) -> bool:
    """Remove a place from a sorted list, and the list when it is empty; False when it is not there."""
    line = places.get(key, [])
    at = bisect_left(line, place)
    if at == len(line) or line[at] != place:
        return False
    del line[at]
    if not line:
        del places[key]
    return True
