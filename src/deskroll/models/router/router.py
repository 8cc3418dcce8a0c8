"""Router: the roster of endpoints with a clock, looks at their health, and whoever waits for a ticket.

It runs in one process: that of a run's coordinator, or of `deskroll models up`. Workers ask it over a socket
(`service.py`). Guarantees: what its roster says is carried out at once; every endpoint is looked at every 5 s
(`/health`, and `/metrics` where it is a vLLM); a request that found no endpoint for `server_wait` is told every
endpoint's last error; every change of an endpoint is told as an event.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from deskroll.clocks import running_time
from deskroll.errors import ModelError, plain
from deskroll.events import EndpointChanged, EventSink, guarded
from deskroll.host.supervise import Supervisor
from deskroll.models.router.looking import Looker
from deskroll.models.router.roster import AFFINITY_MARGIN, EndpointState, EndpointView, Outcome, Roster, Ticket
from deskroll.models.settings import read_address
from deskroll.types import Record

LOOK_S = 5.0
SERVER_WAIT_S = 900.0


class Server(Record, frozen=True):
    """One endpoint: where it is, and what is asked for there."""

    url: str
    """As it is shown: the name of the endpoint, too."""
    model: str
    key: str = ""
    max_in_flight: int | None = None
    version: str = ""
    keeps: bool = False
    """Whether its weights may change while a request is open: then whoever gives a ticket back is told the version."""
    takes_sessions: bool = False
    """Whether it is a vLLM, which takes the name of whoever asks (the header X-Session-ID)."""

    def __repr__(self) -> str:
        return f"Server({self.url!r}, {self.model!r})"  # the key is in no message


Answer = Callable[[Ticket | ModelError], None]
PinAnswer = Callable[[str | ModelError], None]


class Router:
    """Use with `async with`."""

    def __init__(
        self,
        *,
        sink: EventSink | None = None,
        affinity_margin: int = AFFINITY_MARGIN,
        server_wait: float = SERVER_WAIT_S,
        look_s: float = LOOK_S,
        coming: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`coming`: names of models, each with its version, by which servers can be asked that are to come up."""
        self._roster = Roster(affinity_margin)
        self._servers: dict[str, Server] = {}
        self._answers: dict[tuple[str, int], Answer] = {}
        self._sink = guarded(sink)
        self._wait = server_wait
        self._look_s = look_s
        self._coming = coming
        self._lookers = itertools.count(1)
        self._supervisor = Supervisor()
        self._timer: asyncio.TimerHandle | None = None
        self._told: dict[str, EndpointView] = {}
        self._told_changes = 0
        self._drained: dict[str, list[asyncio.Future[None]]] = {}
        self._holders = itertools.count(1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._supervisor.close()
        for back in (back for backs in self._drained.values() for back in backs if not back.done()):
            back.set_exception(ModelError("the router of the model's servers was closed"))
        for key in list(self._answers):
            self._answers.pop(key)(ModelError("the router of the model's servers was closed"))

    # --- servers ---

    def add(self, server: Server, *, starting: bool = False) -> None:
        """Ask this one, too; `starting`: once it is `ready`."""
        read_address(server.url, "url")
        self._roster.add(
            server.url, running_time(), model=server.model, version=server.version, limit=server.max_in_flight,
            starting=starting,
        )  # fmt: skip
        self._servers[server.url] = server
        name = f"look {next(self._lookers)}, at {server.url}"
        self._supervisor.keep(name, lambda: self._look_again_and_again(server))
        self._act()

    def server(self, name: str) -> Server:
        """Where an endpoint is."""
        return self._servers[name]

    def ready(self, name: str, *, model: str | None = None, version: str | None = None) -> None:
        """An endpoint may be asked, from now on or again."""
        self._roster.ready(name, running_time(), model=model, version=version)
        self._act()

    def serve(self, name: str, version: str, model: str | None = None) -> None:
        """An endpoint serves another version from now on, while requests go on."""
        self._roster.serve(name, version, model)
        self._act()

    def offer(self, name: str, models: Mapping[str, str]) -> None:
        """These may be asked for by name at an endpoint, and no others: each with its version."""
        self._roster.offer(name, models)
        self._act()

    def restart(self, name: str) -> None:
        """An endpoint starts anew, and may be asked once it is `ready`."""
        self._roster.restart(name, running_time())
        self._act()

    def hold(self, name: str) -> None:
        """Grant nothing more there until it is `ready`; what is open goes on."""
        self._roster.drain(name, running_time())
        self._act()

    async def drain(self, name: str) -> None:
        """The same, and wait until what is open has come to its end."""
        self.hold(name)
        if self._roster.in_flight(name):
            back = asyncio.get_running_loop().create_future()
            self._drained.setdefault(name, []).append(back)
            await back

    def remove(self, name: str) -> None:
        """Let an endpoint go, as soon as its last request is over."""
        self._roster.remove(name, running_time())
        self._act()

    def view(self) -> tuple[EndpointView, ...]:
        """How each endpoint stands."""
        return self._roster.view()

    def models_asked(self, name: str) -> set[str]:
        """The names of models that open requests at an endpoint ask for, or that somebody has pinned."""
        return self._roster.models_asked(name)

    @property
    def waiting(self) -> int:
        """Requests without a ticket."""
        return self._roster.waiting

    # --- those who ask ---

    def new_holder(self) -> str:
        """The name of one more process that asks."""
        return f"holder-{next(self._holders)}"

    def ask(
        self, holder: str, request: int, session: str, answer: Answer, answered: Sequence[int] = (), model: str = ""
    ) -> None:
        """A ticket is wanted; `answer` gets it, or the error that says why there is none.

        `answered`: tickets that are given back first; `model`: see `Roster`.
        """
        now = running_time()
        for ticket in answered:
            self._roster.give_back(holder, ticket, Outcome.ANSWERED, now)
        self._answers[holder, request] = answer
        self._roster.ask(holder, request, session, now, model)
        self._act_at(now)

    def refuse(self, why: str) -> None:
        """Tell everybody who waits that there will be no ticket."""
        for holder, request in list(self._answers):
            self._roster.withdraw(holder, request)
            self._answers.pop((holder, request))(ModelError(why))

    def pin(self, holder: str, number: int, version: str, answer: PinAnswer) -> None:
        """Have a version served on until `unpin`, or until the holder is gone; `answer` gets the name to ask for it by.

        One that no server has yet, and that servers are to come up with, is waited for as a request waits.
        """
        loaded = self._roster.find(version)
        if (model := loaded or next((name for name, its in self._coming().items() if its == version), None)) is None:
            why = "only adapters (enable_lora) that are loaded can, and what they are on"
            answer(ModelError(f"no server can be asked for version {plain(version)} by name: {why}"))
            return
        self._roster.pins.add(holder, number, model)
        if loaded:
            answer(model)
            return

        def hear(found: Ticket | ModelError) -> None:
            if isinstance(found, ModelError):
                self._roster.pins.end(holder, number)
                answer(found)
                return
            self._roster.give_back(holder, found.id, Outcome.ABANDONED, running_time())
            answer(model)

        self.ask(holder, number, "", hear, model=model)

    def unpin(self, holder: str, number: int) -> None:
        """It is not wanted any more."""
        self.withdraw(holder, number)
        self._roster.pins.end(holder, number)
        self._act()

    def withdraw(self, holder: str, request: int) -> None:
        """It is not wanted any more."""
        self._roster.withdraw(holder, request)
        self._answers.pop((holder, request), None)

    def give_back(self, holder: str, ticket: int, outcome: Outcome, error: str = "") -> str:
        """A request is over; see `Roster`."""
        now = running_time()
        version = self._roster.give_back(holder, ticket, outcome, now, plain(error, 500) if error else "")
        self._act_at(now)
        return version

    def note_answered(self, holder: str, tickets: Sequence[int]) -> None:
        """Requests are over, and were answered."""
        now = running_time()
        for ticket in tickets:
            self._roster.give_back(holder, ticket, Outcome.ANSWERED, now)
        self._act_at(now)

    def end_session(self, holder: str, session: str) -> None:
        """An attempt is over."""
        self._roster.end_session(holder, session)

    def lose(self, holder: str) -> None:
        """A process is gone."""
        self._roster.lose(holder)
        for key in [key for key in self._answers if key[0] == holder]:
            del self._answers[key]
        self._act()

    # --- the machinery ---

    def _act(self) -> None:
        """Carry out what the roster says by now."""
        self._act_at(running_time())

    def _act_at(self, now: float) -> None:
        """The same, twice for each request: what has not changed costs nothing."""
        roster = self._roster
        if roster.waiting:
            for grant in roster.grant(now):
                self._answers.pop((grant.holder, grant.request))(grant.ticket)
        if self._drained:
            self._wake_drained()
        if roster.changes != self._told_changes:
            self._told_changes = roster.changes
            self._tell()
        if roster.waiting or self._timer is not None:
            self._wind(now)

    def _wind(self, now: float) -> None:
        """Tell those who have waited too long; look again when something changes by itself."""
        for key, model in self._roster.expire(now, self._wait).items():
            self._answers.pop(key)(ModelError(self._hopeless(model)))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (at := self._roster.next_look(now, self._wait)) is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, at - now) + 0.001, self._act)

    def _wake_drained(self) -> None:
        for name in [name for name in self._drained if not self._roster.in_flight(name)]:
            for back in self._drained.pop(name):
                if not back.done():
                    back.set_result(None)

    def _tell(self) -> None:
        """Say which endpoints have changed."""
        views = {view.name: view for view in self._roster.view()}
        for name, view in views.items():
            known = self._told.get(name)
            if known is None or (known.state, known.version, known.limit, known.queue) != (
                view.state, view.version, view.limit, view.queue,
            ):  # fmt: skip
                self._told[name] = view
                self._sink.emit(_changed(view))
        for name in self._told.keys() - views.keys():
            self._sink.emit(EndpointChanged(endpoint=name, state="removed"))
            del self._told[name], self._servers[name]

    def _hopeless(self, model: str) -> str:
        views = self._roster.view()
        if model and any(view.state is EndpointState.UP for view in views):
            return f"no server has {plain(model)} any more; ask for the newest weights, or have them loaded and pinned"
        each = "; ".join(
            f"{view.name}: {view.state}{f', {view.last_error}' if view.last_error else ''}" for view in views
        )
        return f"no server of the model could be asked for {self._wait:g} s: {each or 'there is none'}"

    async def _look_again_and_again(self, server: Server) -> None:
        async with Looker(server.url, server.key) as looker:
            while True:
                asked = running_time()
                seen = await looker.look()
                if self._servers.get(server.url) is not server:  # it was removed; another may have its name by now
                    return
                self._roster.note_health(server.url, running_time(), asked=asked, good=not seen.error, error=seen.error)
                if seen.running is not None:
                    self._roster.note_queue(server.url, seen.waiting, seen.running)
                self._act()
                await asyncio.sleep(self._look_s)


def _changed(view: EndpointView) -> EndpointChanged:
    return EndpointChanged(
        endpoint=view.name, state=view.state, version=view.version, limit=view.limit, queue=view.queue,
        reason=view.last_error if view.state == "closed" else "",
    )  # fmt: skip
