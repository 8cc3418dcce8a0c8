"""What workers and the router say to each other: small records, as msgpack, each in a frame."""

from __future__ import annotations

import msgspec

from deskroll.models.router.roster import EndpointView, Outcome, Ticket
from deskroll.types import Record


class Hello(Record, frozen=True, tag="hello"):
    """The first word of whoever asks; over TCP with the token."""

    token: str = ""


class Ask(Record, frozen=True, tag="ask"):
    """A ticket is wanted."""

    request: int
    session: str = ""
    answered: tuple[int, ...] = ()
    """Tickets that go back with it, first: their requests were answered."""
    model: str = ""
    """For that one alone; empty: whatever is served."""


class Withdraw(Record, frozen=True, tag="withdraw"):
    """It is not wanted any more."""

    request: int


class Pin(Record, frozen=True, tag="pin"):
    """A version is to be served on, under a name of its own, until `Unpin`."""

    request: int
    version: str


class Unpin(Record, frozen=True, tag="unpin"):
    """It is not wanted any more."""

    request: int


class GiveBack(Record, frozen=True, tag="give_back"):
    """A request is over."""

    ticket: int
    outcome: Outcome
    error: str = ""
    tell: bool = False
    """Whether to say which version is served by now: `Returned`."""


class Answered(Record, frozen=True, tag="answered"):
    """Requests that were answered: their tickets."""

    tickets: tuple[int, ...]


class EndSession(Record, frozen=True, tag="end_session"):
    """An attempt is over."""

    session: str


class Known(Record, frozen=True, tag="known"):
    """Where an endpoint is, told before the first ticket for it."""

    endpoint: str
    url: str
    key: str = ""
    keeps: bool = False
    """See `Server`."""
    takes_sessions: bool = False

    def __repr__(self) -> str:
        return f"Known({self.url!r})"  # the key is in no message


class Granted(Record, frozen=True, tag="granted"):
    """Here is a ticket."""

    request: int
    ticket: Ticket


class Pinned(Record, frozen=True, tag="pinned"):
    """A version is pinned."""

    request: int
    model: str
    """The name to ask for it by."""


class Denied(Record, frozen=True, tag="denied"):
    """There is none, and why."""

    request: int
    message: str


class Returned(Record, frozen=True, tag="returned"):
    """What the endpoint of a ticket that was given back serves by now."""

    ticket: int
    version: str


class Unwelcome(Record, frozen=True, tag="unwelcome"):
    """The last word of the router to somebody whom it does not serve."""

    message: str


class Welcome(Record, frozen=True, tag="welcome"):
    """The first word of the router."""

    endpoints: tuple[EndpointView, ...] = ()


Upward = Hello | Ask | Withdraw | Pin | Unpin | GiveBack | Answered | EndSession
Downward = Welcome | Unwelcome | Known | Granted | Pinned | Denied | Returned

encode = msgspec.msgpack.Encoder().encode
decode_upward = msgspec.msgpack.Decoder(Upward).decode
decode_downward = msgspec.msgpack.Decoder(Downward).decode
