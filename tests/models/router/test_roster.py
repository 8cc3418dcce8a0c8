"""The roster of endpoints: who is asked, by whom, and when."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from deskroll.errors import InputError
from deskroll.models.router.roster import EndpointState, Grant, Outcome, Roster

WAIT = 900.0


def of(*names: str, limit: int | None = None, margin: int = 4) -> Roster:
    roster = Roster(margin)
    for name in names:
        roster.add(name, 0.0, model="m", limit=limit)
    return roster


def ask(
    roster: Roster, request: int, session: str = "", now: float = 0.0, holder: str = "w", model: str = ""
) -> Grant | None:
    """Ask, and what is granted for it at once."""
    roster.ask(holder, request, session, now, model)
    return next((each for each in roster.grant(now) if each.request == request), None)


def place(grant: Grant | None) -> str:
    assert grant is not None
    return grant.ticket.endpoint


def states(roster: Roster) -> list[str]:
    return [each.state for each in roster.view()]


def test_the_least_loaded_is_asked_first() -> None:
    roster = of("a", "b", limit=10)
    assert sorted(place(ask(roster, n)) for n in range(4)) == ["a", "a", "b", "b"]


def test_load_is_measured_by_the_limit() -> None:
    roster = Roster()
    roster.add("small", 0.0, model="m", limit=2)
    roster.add("large", 0.0, model="m", limit=20)
    assert [place(ask(roster, n)) for n in range(11)].count("large") == 10


def test_a_session_stays_where_it_was_within_the_margin() -> None:
    roster = of("a", "b", limit=100)
    home = place(ask(roster, 0, "s"))
    assert [place(ask(roster, n, "s")) for n in range(1, 5)] == [home] * 4
    assert place(ask(roster, 5, "s")) != home  # five open there, none elsewhere
    roster.end_session("w", "s")
    assert place(ask(roster, 6, "s")) != home


def test_the_ticket_that_takes_the_last_room_is_scarce() -> None:
    roster = of("a", "b", limit=2)
    assert [granted.ticket.scarce for n in range(4) if (granted := ask(roster, n))] == [False, False, False, True]


def test_a_full_endpoint_makes_its_sessions_move() -> None:
    roster = of("a", "b", limit=1)
    home = place(ask(roster, 0, "s"))
    assert place(ask(roster, 1, "s")) != home


def test_first_come_first_served_once_there_is_room() -> None:
    roster = of("a", limit=1)
    first = ask(roster, 0)
    assert first is not None and [ask(roster, n) for n in (1, 2)] == [None, None]
    roster.give_back("w", first.ticket.id, Outcome.ANSWERED, 1.0)
    assert [each.request for each in roster.grant(1.0)] == [1]
    roster.withdraw("w", 2)
    assert roster.waiting == 0


def test_a_limit_that_is_learnt_grows_with_good_answers_and_is_halved_once_for_a_burst() -> None:
    roster = of("a")
    granted = [ask(roster, n) for n in range(16)]
    assert all(granted) and ask(roster, 99) is None
    roster.withdraw("w", 99)
    for n, each in enumerate(granted):  # all in use, all the time
        assert each is not None
        roster.give_back("w", each.ticket.id, Outcome.ANSWERED, 1.0)
        granted.append(ask(roster, 100 + n)) if n < 30 else None
    assert roster.view()[0].limit == 18  # after sixteen, and seventeen more
    burst = [each.ticket.id for n in range(10) if (each := ask(roster, 200 + n)) is not None]
    assert len(burst) == 10
    for ticket in burst:
        roster.give_back("w", ticket, Outcome.THROTTLED, 3.0)
    assert roster.view()[0].limit == 9
    assert states(roster) == ["up"]


def test_a_long_queue_in_the_server_halves_a_limit_and_an_empty_one_is_needed_to_grow() -> None:
    roster = of("a")
    for _ in range(2):
        roster.note_queue("a", waiting=9, running=16)
    assert roster.view()[0].limit == 16
    roster.note_queue("a", waiting=9, running=16)
    assert roster.view()[0].limit == 8
    for n in range(5):
        assert ask(roster, n) is not None  # so that more than half is in use

    def answer(number: int) -> None:
        granted = ask(roster, number)
        assert granted is not None
        roster.give_back("w", granted.ticket.id, Outcome.ANSWERED, 1.0)

    for n in range(20):
        answer(10 + n)
    assert roster.view()[0].limit == 8
    roster.note_queue("a", waiting=0, running=3)
    for n in range(8):
        answer(50 + n)
    assert roster.view()[0].limit == 9


def test_a_limit_that_nobody_needs_does_not_grow() -> None:
    roster = of("a")
    for n in range(100):
        granted = ask(roster, n)
        assert granted is not None
        roster.give_back("w", granted.ticket.id, Outcome.ANSWERED, 1.0)
    assert roster.view()[0].limit == 16


def fail(roster: Roster, number: int, now: float, outcome: Outcome = Outcome.FAILED) -> None:
    granted = ask(roster, number, now=now)
    assert granted is not None
    roster.give_back("w", granted.ticket.id, outcome, now, "it fell over")


def test_three_failures_in_a_row_close_it_and_one_request_at_a_time_tries_it_again() -> None:
    roster = of("a", limit=10)
    for n in range(3):
        assert states(roster) == ["up"]
        fail(roster, n, 1.0)
    assert states(roster) == ["closed"] and roster.view()[0].last_error == "it fell over"
    assert ask(roster, 10, now=1.5) is None
    assert roster.next_look(1.5, WAIT) == 2.0
    [trial] = roster.grant(2.0)
    assert ask(roster, 11, now=2.0) is None
    roster.give_back("w", trial.ticket.id, Outcome.FAILED, 2.5)
    assert roster.next_look(2.5, WAIT) == 4.5  # twice as long
    [trial] = roster.grant(4.5)
    roster.give_back("w", trial.ticket.id, Outcome.ANSWERED, 5.0)
    assert states(roster) == ["up"] and all(ask(roster, 20 + n, now=5.0) for n in range(5))


def test_a_refused_connection_closes_it_at_once_and_others_go_on() -> None:
    roster = of("a", "b", limit=10)
    first = ask(roster, 0)
    roster.give_back("w", first.ticket.id if first else 0, Outcome.UNREACHABLE, 1.0)
    gone = place(first)
    assert all(place(ask(roster, n, now=1.0)) != gone for n in range(1, 6))


def test_health_that_fails_closes_unless_an_answer_came_meanwhile() -> None:
    roster = of("a", limit=10)
    granted = ask(roster, 0)
    assert granted is not None
    roster.give_back("w", granted.ticket.id, Outcome.ANSWERED, 6.0)
    roster.note_health("a", 15.0, asked=5.0, good=False)
    assert states(roster) == ["up"]
    roster.note_health("a", 25.0, asked=15.0, good=False, error="no answer")
    assert states(roster) == ["closed"]
    roster.note_health("a", 25.5, asked=25.4, good=True)
    assert ask(roster, 1, now=25.5) is not None  # one may try it now


def test_good_health_is_no_reason_to_try_one_sooner_that_answers_nonsense() -> None:
    roster = of("a", limit=10)
    for n in range(3):
        fail(roster, n, 1.0)
    roster.note_health("a", 1.5, asked=1.4, good=True)
    assert ask(roster, 10, now=1.5) is None


def test_a_request_from_before_it_was_closed_does_not_keep_others_from_trying_it() -> None:
    roster = of("a", limit=10)
    slow, refused = ask(roster, 0), ask(roster, 1)
    assert slow is not None and refused is not None
    roster.give_back("w", refused.ticket.id, Outcome.UNREACHABLE, 1.0)
    assert ask(roster, 2, now=1.5) is None
    assert roster.next_look(1.5, WAIT) == 2.0
    assert [each.request for each in roster.grant(2.0)] == [2]


def test_one_that_says_too_many_lives() -> None:
    roster = of("a", limit=10)
    fail(roster, 0, 1.0, Outcome.UNREACHABLE)
    fail(roster, 1, 2.0, Outcome.THROTTLED)
    assert states(roster) == ["up"]


def test_one_that_drains_gets_nothing_and_leaves_when_its_last_ticket_is_back() -> None:
    roster = of("a", limit=10)
    granted = ask(roster, 0)
    assert granted is not None
    roster.remove("a", 1.0)
    assert ask(roster, 1, now=1.0) is None and states(roster) == ["draining"]
    roster.give_back("w", granted.ticket.id, Outcome.ANSWERED, 2.0)
    assert roster.names() == ()
    roster.add("b", 3.0, model="m")
    assert [each.request for each in roster.grant(3.0)] == [1]


def test_versions_are_those_of_the_moment_and_tell_a_change_under_way() -> None:
    roster = of("a", limit=10)
    roster.serve("a", "12", "m@12")
    granted = ask(roster, 0)
    assert granted is not None and (granted.ticket.version, granted.ticket.model) == ("12", "m@12")
    roster.serve("a", "13")
    assert roster.give_back("w", granted.ticket.id, Outcome.ANSWERED, 1.0) == "13"
    pinned = ask(roster, 1)
    roster.serve("a", "14", "m@14")
    assert pinned is not None and roster.give_back("w", pinned.ticket.id, Outcome.ANSWERED, 1.0) == ""


def test_requests_wait_for_servers_that_start_and_expire_only_while_there_is_no_hope() -> None:
    roster = Roster()
    roster.add("a", 0.0, model="m", starting=True)
    assert ask(roster, 0, now=10.0) is None
    assert roster.expire(909.9, WAIT) == {} and roster.next_look(10.0, WAIT) == 910.0
    assert roster.expire(910.0, WAIT) == {("w", 0): ""}
    assert ask(roster, 1, now=911.0) is None
    roster.ready("a", 920.0)
    assert [each.request for each in roster.grant(920.0)] == [1]
    full = of("a", limit=1)
    assert ask(full, 0) is not None and ask(full, 1) is None
    assert full.expire(10_000.0, WAIT) == {}  # somebody is being answered: that is a line, not a loss


def named(grant: Grant | None) -> tuple[str, str]:
    assert grant is not None
    return grant.ticket.model, grant.ticket.version


def test_a_model_is_asked_for_by_name_beside_the_newest() -> None:
    roster = of("a", "b", limit=1)
    roster.serve("a", "13", "m@13")
    roster.serve("b", "13", "m@13")
    roster.offer("a", {"m": "0", "m@12": "12", "m@13": "13"})
    assert named(ask(roster, 0, model="m@12")) == ("m@12", "12")
    assert ask(roster, 1, model="m@12") is None, "only one endpoint has it, and that is full"
    assert (place(second := ask(roster, 2)), named(second)) == ("b", ("m@13", "13")), "others pass it by"
    assert roster.models_asked("a") == {"m@12"}
    roster.give_back("w", 1, Outcome.ANSWERED, 1.0)
    assert [named(each) for each in roster.grant(1.0)] == [("m@12", "12")]


def test_what_is_nowhere_is_told_at_once_unless_it_is_pinned() -> None:
    roster = of("a")
    roster.offer("a", {"m": "0", "m@12": "12"})
    assert (roster.find("12"), roster.find("0"), roster.find("13")) == ("m@12", "m", None)
    roster.pins.add("trainer", 7, "m@12")
    assert roster.models_asked("a") == {"m@12"}
    roster.offer("a", {"m": "0"})
    assert ask(roster, 0, model="m@11", now=10.0) is None and ask(roster, 1, model="m@12", now=10.0) is None
    assert roster.next_look(9.0, WAIT) == 10.0
    assert roster.expire(10.0, WAIT) == {("w", 0): "m@11"}
    assert (roster.next_look(10.0, WAIT), roster.expire(11.0, WAIT)) == (910.0, {}), "it may come back"
    roster.lose("trainer")
    assert roster.models_asked("a") == set()
    assert roster.expire(11.0, WAIT) == {("w", 1): "m@12"}


def test_a_holder_that_is_gone_loses_its_tickets_and_its_place() -> None:
    roster = of("a", limit=1)
    assert ask(roster, 0, holder="dead") is not None
    roster.ask("dead", 1, "", 0.0)
    roster.ask("alive", 2, "", 0.0)
    roster.lose("dead")
    assert [(each.holder, each.request) for each in roster.grant(0.0)] == [("alive", 2)]


def test_what_nobody_holds_changes_nothing() -> None:
    roster = of("a", limit=1)
    granted = ask(roster, 0)
    assert granted is not None
    assert roster.give_back("another", granted.ticket.id, Outcome.FAILED, 1.0) == ""
    assert roster.in_flight("a") == 1
    with pytest.raises(InputError, match="there already"):
        roster.add("a", 0.0, model="m")
    with pytest.raises(InputError, match="no endpoint c; known: a"):
        roster.drain("c", 0.0)


@dataclass
class _Model:
    """What must be so, counted apart from the roster."""

    open: dict[int, tuple[str, str]] = field(default_factory=dict)
    trials: set[int] = field(default_factory=set)
    """Tickets of endpoints that were closed."""
    waiting: list[tuple[str, int]] = field(default_factory=list)


class RosterMachine(RuleBasedStateMachine):
    """Anything in any order."""

    endpoints = Bundle("endpoints")

    def __init__(self) -> None:
        super().__init__()
        self.roster = Roster()
        self.now = 0.0
        self.model = _Model()
        self.serial = 0
        self.added = 0
        self.told: tuple[int, list[tuple[object, ...]]] = (0, [])

    @rule(target=endpoints, limit=st.none() | st.integers(1, 3), starting=st.booleans())
    def add(self, limit: int | None, starting: bool) -> str:
        self.added += 1
        name = f"e{self.added}"
        self.roster.add(name, self.now, model="m", limit=limit, starting=starting)
        return name

    @rule(holder=st.sampled_from("xyz"), session=st.sampled_from(["", "s", "t"]))
    def ask(self, holder: str, session: str) -> None:
        self.serial += 1
        self.roster.ask(holder, self.serial, session, self.now)
        self.model.waiting.append((holder, self.serial))

    @rule()
    def grant(self) -> None:
        for grant in self.roster.grant(self.now):
            assert (grant.holder, grant.request) == self.model.waiting.pop(0)  # nobody overtakes
            self.model.open[grant.ticket.id] = (grant.holder, grant.ticket.endpoint)
            view = next(each for each in self.roster.view() if each.name == grant.ticket.endpoint)
            assert view.state in (EndpointState.UP, EndpointState.CLOSED)
            assert view.in_flight <= view.limit
            usable = [each for each in self.roster.view() if each.state in (EndpointState.UP, EndpointState.CLOSED)]
            room = [each for each in usable if each.in_flight < each.limit]
            if grant.ticket.scarce:
                assert all(each.state is EndpointState.CLOSED for each in room), "somebody else would wait"
            else:
                assert room, "the last one is scarce"
            if view.state is EndpointState.CLOSED:
                others = [t for t in self.model.trials & set(self.model.open) if self.model.open[t][1] == view.name]
                assert not others, "one at a time"
                self.model.trials.add(grant.ticket.id)

    @rule(outcome=st.sampled_from(Outcome), data=st.data())
    def give_back(self, outcome: Outcome, data: st.DataObject) -> None:
        if self.model.open:
            ticket = data.draw(st.sampled_from(sorted(self.model.open)))
            holder, _ = self.model.open.pop(ticket)
            self.roster.give_back(holder, ticket, outcome, self.now)

    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        if self.model.waiting:
            gone = data.draw(st.sampled_from(self.model.waiting))
            self.model.waiting.remove(gone)
            self.roster.withdraw(*gone)

    @rule(holder=st.sampled_from("xyz"), session=st.sampled_from(["s", "t"]))
    def end_session(self, holder: str, session: str) -> None:
        self.roster.end_session(holder, session)

    @rule()
    def let_time_pass_until_something_can_be_had(self) -> None:
        """Whoever waits is served, unless every endpoint is out of use, full, or being tried."""
        self.now += 31.0
        self.grant()
        if self.model.waiting:
            tried = {self.model.open[ticket][1] for ticket in self.model.trials & set(self.model.open)}
            for view in self.roster.view():
                out = view.state in (EndpointState.STARTING, EndpointState.DRAINING)
                tries = view.state is EndpointState.CLOSED and view.name in tried
                assert out or tries or view.in_flight >= view.limit, view

    @rule(holder=st.sampled_from("xyz"))
    def lose(self, holder: str) -> None:
        self.roster.lose(holder)
        self.model.waiting = [each for each in self.model.waiting if each[0] != holder]
        self.model.open = {ticket: each for ticket, each in self.model.open.items() if each[0] != holder}

    @rule(
        name=endpoints, change=st.sampled_from(["drain", "ready", "restart", "remove", "sick", "well"]),
        waiting=st.integers(0, 50),
    )  # fmt: skip
    def change(self, name: str, change: str, waiting: int) -> None:
        if name not in self.roster.names():
            return
        self.roster.note_queue(name, waiting, 10)
        self.roster.serve(name, str(waiting))
        if change in ("sick", "well"):
            self.roster.note_health(name, self.now, asked=self.now, good=change == "well")
        else:
            getattr(self.roster, change)(name, self.now)

    @rule(seconds=st.floats(0.1, 40))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(wait=st.sampled_from([10.0, 900.0]))
    def expire(self, wait: float) -> None:
        over = self.roster.expire(self.now, wait)
        assert not over or all(each.state is not EndpointState.UP for each in self.roster.view())
        self.model.waiting = [each for each in self.model.waiting if each not in over]

    @invariant()
    def what_changes_is_counted(self) -> None:
        stand = [(each.name, each.state, each.limit, each.queue, each.version) for each in self.roster.view()]
        assert stand == self.told[1] or self.roster.changes > self.told[0]
        self.told = self.roster.changes, stand

    @invariant()
    def every_ticket_is_counted_once(self) -> None:
        assert self.roster.waiting == len(self.model.waiting)
        for view in self.roster.view():
            assert view.in_flight == sum(name == view.name for _, name in self.model.open.values())
            assert view.limit >= 1
        assert {name for _, name in self.model.open.values()} <= set(self.roster.names())


RosterMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestRoster = RosterMachine.TestCase
