"""Roster: which endpoint a request goes to, and when. A pure state machine: times are handed in, nothing is awaited.

A **ticket** is one open request at one endpoint. Requests wait in the order in which they came; the first is granted a
ticket as soon as an endpoint that may be asked has room: the one that its session used last while that is at most
`affinity_margin` tickets above the least loaded (its prefix is cached there), else the least loaded.

Guarantees: no endpoint ever has more tickets open than its limit; a ticket counts until it is given back, or its holder
is gone; nothing is granted at an endpoint that drains, starts or refreshes, and one request at a time at one whose
circuit is closed; a request waits while there is no such endpoint, and none overtakes it but for a request that names
another model. A model that is pinned is used for as long as it is.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from deskroll.errors import InputError
from deskroll.models.router.circuit import Circuit
from deskroll.models.router.limit import Limit
from deskroll.models.router.pins import Pins
from deskroll.types import Record

AFFINITY_MARGIN = 4


class Outcome(enum.StrEnum):
    """How a request went, as far as its endpoint is concerned."""

    ANSWERED = "answered"
    """It was answered, or refused for what it asked."""
    THROTTLED = "throttled"
    """The endpoint is asked too much (429)."""
    UNAVAILABLE = "unavailable"
    """The endpoint cannot answer now (503)."""
    FAILED = "failed"
    """It brought nothing of use: an error, half an answer, silence."""
    UNREACHABLE = "unreachable"
    """There was no connection."""
    ABANDONED = "abandoned"
    """Whoever asked does not want to know any more: that says nothing of the endpoint."""


class EndpointState(enum.StrEnum):
    """Whether an endpoint is asked."""

    STARTING = "starting"
    """Not yet."""
    UP = "up"
    CLOSED = "closed"
    """Not for a while: it failed. Then with one request at a time."""
    DRAINING = "draining"
    """Not any more, or not until its weights are new: open requests come to their end."""


class Ticket(Record, frozen=True):
    """One open request."""

    id: int
    endpoint: str
    """The endpoint's name."""
    model: str
    """The name of the model to ask for there."""
    version: str = ""
    """Of the weights that answer."""
    scarce: bool = False
    """Whether no endpoint had room for another one with it: somebody may wait for it."""


class Grant(Record, frozen=True):
    """A request gets its ticket."""

    request: int
    holder: str
    ticket: Ticket


class EndpointView(Record, frozen=True):
    """How one endpoint stands."""

    name: str
    state: EndpointState
    in_flight: int
    limit: int
    queue: int
    """Requests that wait in the server itself."""
    model: str
    version: str
    last_error: str = ""


@dataclass(eq=False)
class _Endpoint:
    name: str
    model: str
    version: str
    limit: Limit
    circuit: Circuit = field(default_factory=Circuit)
    starting: bool = False
    draining: bool = False
    leaving: bool = False
    """Whether it goes once its last ticket is back."""
    named: dict[str, str] = field(default_factory=dict)
    """Models that may be asked for there by name, and the version of each: adapters, and what they are on."""
    in_flight: int = 0
    trials: int = 0
    """Of these, those that were let through while its circuit was closed."""
    last_error: str = ""

    def is_usable(self) -> bool:
        """Whether somebody may hope for an answer soon."""
        return not (self.starting or self.draining) and self.circuit.is_open

    def has_room(self, now: float) -> bool:
        if self.starting or self.draining or self.in_flight >= self.limit.most:
            return False
        return self.circuit.closed_until is None or self.circuit.lets_through(now, self.trials)

    def view(self) -> EndpointView:
        state = EndpointState.UP if self.circuit.is_open else EndpointState.CLOSED
        if self.starting or self.draining:
            state = EndpointState.STARTING if self.starting else EndpointState.DRAINING
        return EndpointView(
            name=self.name, state=state, in_flight=self.in_flight, limit=self.limit.most, queue=self.limit.queue,
            model=self.model, version=self.version, last_error=self.last_error,
        )  # fmt: skip


@dataclass(slots=True)
class _Request:
    id: int
    holder: str
    session: str
    since: float
    model: str


@dataclass(slots=True)
class _Open:
    endpoint: _Endpoint
    holder: str
    model: str
    era: int
    trial: bool


def _load(endpoint: _Endpoint) -> tuple[float, int]:
    """What is least where a request goes: open tickets over the limit."""
    return endpoint.in_flight / endpoint.limit.most, endpoint.in_flight


def _fitting(room: list[_Endpoint], request: _Request) -> list[_Endpoint]:
    """Those that have what a request names."""
    return [each for each in room if request.model in each.named] if request.model else room


class Roster:
    """Endpoints, the requests that wait, and the tickets that are open."""

    def __init__(self, affinity_margin: int = AFFINITY_MARGIN) -> None:
        self._margin = affinity_margin
        self._endpoints: dict[str, _Endpoint] = {}
        self._waiting: dict[tuple[str, int], _Request] = {}
        self._open: dict[int, _Open] = {}
        self._sessions: dict[tuple[str, str], str] = {}
        """The endpoint that a holder's session used last."""
        self.pins = Pins()
        self._serial = itertools.count(1)
        self._hopeless_since: float | None = 0.0
        """Since when no endpoint can be hoped for; None: one can."""
        self.changes = 0
        """Rises whenever an endpoint comes, goes, or stands otherwise: its tickets, which come and go, apart."""

    # --- endpoints come, change and go ---

    def add(
        self, name: str, now: float, *, model: str, version: str = "", limit: int | None = None, starting: bool = False
    ) -> None:
        """An endpoint is there from now on; `starting`: and may be asked once it is `ready`."""
        if name in self._endpoints:
            raise InputError(f"endpoint {name} is there already")
        self._endpoints[name] = _Endpoint(name, model, version, Limit(limit), starting=starting)
        self._note_change(now)

    def ready(self, name: str, now: float, *, model: str | None = None, version: str | None = None) -> None:
        """An endpoint may be asked, from now on or again; what it serves may be new."""
        endpoint = self._of(name)
        endpoint.starting, endpoint.draining, endpoint.last_error = False, endpoint.leaving, ""
        endpoint.model = endpoint.model if model is None else model
        endpoint.version = endpoint.version if version is None else version
        endpoint.circuit.note_answer(now)
        self._note_change(now)

    def drain(self, name: str, now: float) -> None:
        """Grant nothing more there; what is open comes to its end."""
        self._of(name).draining = True
        self._note_change(now)

    def restart(self, name: str, now: float) -> None:
        """It starts anew: it may be asked once it is `ready`."""
        self._of(name).starting = True
        self._note_change(now)

    def remove(self, name: str, now: float) -> None:
        """Let it go, as soon as its last ticket is back."""
        endpoint = self._of(name)
        endpoint.draining = endpoint.leaving = True
        self._let_go(endpoint)
        self._note_change(now)

    def serve(self, name: str, version: str, model: str | None = None) -> None:
        """It serves this version from now on, while requests go on (LoRA, or weights that change under them)."""
        endpoint = self._of(name)
        endpoint.version = version
        endpoint.model = endpoint.model if model is None else model
        self.changes += 1

    def offer(self, name: str, models: Mapping[str, str]) -> None:
        """These may be asked for there by name, and no others: each with its version."""
        self._of(name).named = dict(models)
        self.changes += 1

    def note_health(self, name: str, now: float, *, asked: float, good: bool, error: str = "") -> None:
        """What came of a look at its health that began at `asked`."""
        endpoint = self._of(name)
        endpoint.circuit.note_health(now, asked=asked, good=good)
        if not good:
            endpoint.last_error = error
        self._note_change(now)

    def note_queue(self, name: str, waiting: int, running: int) -> None:
        """What a server says of its own queue."""
        self._of(name).limit.note_queue(waiting, running)
        self.changes += 1

    # --- requests ---

    def ask(self, holder: str, request: int, session: str, now: float, model: str = "") -> None:
        """Somebody wants a ticket; `holder` is the process that asks, `request` its own number for it.

        `model`: for that one alone; empty: whatever an endpoint serves at the time.
        """
        self._waiting[holder, request] = _Request(request, holder, session, now, model)

    def find(self, version: str) -> str | None:
        """The name by which a version can be asked for, at whatever endpoint; None: it cannot be."""
        named = (item for each in self._endpoints.values() for item in each.named.items())
        return next((model for model, its in named if its == version), None)

    def withdraw(self, holder: str, request: int) -> None:
        """It is not wanted any more; nothing where it was granted in the meantime: that ticket is given back."""
        self._waiting.pop((holder, request), None)

    def give_back(self, holder: str, ticket: int, outcome: Outcome, now: float, error: str = "") -> str:
        """A request is over; the version that its model's name stands for there by now, empty where it is another's.

        A ticket that nobody holds is no error.
        """
        held = self._open.get(ticket)
        if held is None or held.holder != holder:
            return ""
        endpoint = held.endpoint
        version = endpoint.version if endpoint.model == held.model else ""
        before = endpoint.limit.most, endpoint.circuit.is_open
        self._close(ticket)
        if outcome is Outcome.ANSWERED:
            endpoint.limit.note_good(endpoint.in_flight)
            endpoint.circuit.note_answer(now)
        elif outcome is not Outcome.ABANDONED:
            endpoint.last_error = error or str(outcome)
            if outcome in (Outcome.THROTTLED, Outcome.UNAVAILABLE):
                endpoint.limit.note_overload(held.era)
            if outcome is Outcome.THROTTLED:
                endpoint.circuit.note_answer(now)  # whoever says so lives
            else:
                endpoint.circuit.note_failure(now, at_once=outcome is Outcome.UNREACHABLE)
        if before != (endpoint.limit.most, endpoint.circuit.is_open):
            self._note_change(now)
        return version

    def end_session(self, holder: str, session: str) -> None:
        """An attempt is over: where it was answered does not matter any more."""
        self._sessions.pop((holder, session), None)

    def lose(self, holder: str) -> None:
        """A process is gone, and what it held and waited for with it."""
        self._waiting = {key: each for key, each in self._waiting.items() if each.holder != holder}
        self._sessions = {key: name for key, name in self._sessions.items() if key[0] != holder}
        self.pins.lose(holder)
        for ticket in [ticket for ticket, held in self._open.items() if held.holder == holder]:
            self._close(ticket)

    def grant(self, now: float) -> Iterator[Grant]:
        """Hand out what can be had at this moment, first come, first served."""
        while self._waiting:
            room = [each for each in self._endpoints.values() if each.has_room(now)]
            request = next((each for each in self._waiting.values() if _fitting(room, each)), None) if room else None
            if request is None:
                return
            del self._waiting[request.holder, request.id]
            yield self._grant(request, _fitting(room, request), now)

    def expire(self, now: float, wait: float) -> dict[tuple[str, int], str]:
        """Take those out of the line that have waited so long while no endpoint could be hoped for, and those who name
        what is nowhere, unless it is pinned and may come back; with what they name."""
        since = self._hopeless_since
        over = {
            key: each.model for key, each in self._waiting.items()
            if (since is not None and now - max(since, each.since) >= wait)
            or (each.model and not self._is_named(each.model) and self._lost_at(each, wait) <= now)
        }  # fmt: skip
        for key in over:
            del self._waiting[key]
        return over

    def next_look(self, now: float, wait: float) -> float | None:
        """When something changes by itself: a closed endpoint may be tried, or a request expires; None: never."""
        if not self._waiting:
            return None
        closed = (each.circuit.closed_until for each in self._endpoints.values() if not each.trials)
        times = [time for time in closed if time is not None and time > now]
        if self._hopeless_since is not None:
            oldest = next(iter(self._waiting.values())).since
            times.append(max(oldest, self._hopeless_since) + wait)
        named = (each for each in self._waiting.values() if each.model and not self._is_named(each.model))
        times += [self._lost_at(each, wait) for each in named]
        return min(times, default=None)

    # --- how it stands ---

    def view(self) -> tuple[EndpointView, ...]:
        """Every endpoint, in the order in which they came."""
        return tuple(each.view() for each in self._endpoints.values())

    def names(self) -> tuple[str, ...]:
        """Those that are there."""
        return tuple(self._endpoints)

    def in_flight(self, name: str) -> int:
        """Tickets that are open at an endpoint; none where there is no such."""
        return self._endpoints[name].in_flight if name in self._endpoints else 0

    def models_asked(self, name: str) -> set[str]:
        """The names of models that open tickets at an endpoint are for, or that somebody has pinned."""
        return {held.model for held in self._open.values() if held.endpoint.name == name} | self.pins.models

    @property
    def waiting(self) -> int:
        """Requests without a ticket."""
        return len(self._waiting)

    # --- the machinery ---

    def _of(self, name: str) -> _Endpoint:
        if (endpoint := self._endpoints.get(name)) is None:
            known = ", ".join(self._endpoints) or "none"
            raise InputError(f"there is no endpoint {name}; known: {known}")
        return endpoint

    def _is_named(self, model: str) -> bool:
        return any(model in each.named for each in self._endpoints.values())

    def _lost_at(self, request: _Request, wait: float) -> float:
        """When a request for a model that is nowhere is told so: at once, unless it is pinned."""
        return request.since + (wait if request.model in self.pins.models else 0.0)

    def _choose(self, request: _Request, room: list[_Endpoint]) -> _Endpoint:
        least = min(room, key=_load)
        last = self._endpoints.get(self._sessions.get((request.holder, request.session), ""))
        if last is None or last not in room or last.in_flight > least.in_flight + self._margin:
            return least
        return last

    def _grant(self, request: _Request, room: list[_Endpoint], now: float) -> Grant:
        endpoint = room[0] if len(room) == 1 else self._choose(request, room)
        trial = not endpoint.circuit.is_open
        endpoint.in_flight += 1
        endpoint.trials += trial
        model, version = endpoint.model, endpoint.version
        if request.model:
            model, version = request.model, endpoint.named[request.model]
        ticket = Ticket(
            id=next(self._serial), endpoint=endpoint.name, model=model, version=version,
            scarce=len(room) == 1 and not endpoint.has_room(now),
        )  # fmt: skip
        self._open[ticket.id] = _Open(endpoint, request.holder, model, endpoint.limit.era, trial)
        if request.session:
            self._sessions[request.holder, request.session] = endpoint.name
        return Grant(request=request.id, holder=request.holder, ticket=ticket)

    def _close(self, ticket: int) -> None:
        held = self._open.pop(ticket)
        held.endpoint.in_flight -= 1
        held.endpoint.trials -= held.trial
        self._let_go(held.endpoint)

    def _let_go(self, endpoint: _Endpoint) -> None:
        if endpoint.leaving and not endpoint.in_flight:
            self._endpoints.pop(endpoint.name, None)
            self.changes += 1

    def _note_change(self, now: float) -> None:
        """Count it; look whether any endpoint can be hoped for, and else since when not."""
        self.changes += 1
        if any(each.is_usable() for each in self._endpoints.values()):
            self._hopeless_since = None
        elif self._hopeless_since is None:
            self._hopeless_since = now
