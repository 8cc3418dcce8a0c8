"""Dialect: how one kind of server is spoken to: what a request looks like, what an answer means, where the key goes.

A dialect knows no connection, and a client knows no dialect's words: a further protocol is one file beside this one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from pydantic import JsonValue

from deskroll.models.prices import Tariff
from deskroll.models.settings import Address, Vendor
from deskroll.types import Completion, Record, Sampling


class Request(Record, frozen=True):
    """One request, as it is sent."""

    parts: list[bytes]
    """The body."""
    headers: dict[str, str] | None = None
    """Those that not every request has."""


class Answered(Record, frozen=True):
    """What is known of an answer beside its body."""

    asked: str
    """The model that was asked for."""
    price: Tariff | None = None
    endpoint: str = ""
    """Who answered, as it may be shown."""
    version: str = ""
    """Of the weights: the router's word, else a header's."""
    sampling: Sampling = Sampling()
    """As it was sent."""
    tries: int = 1


class Dialect(Protocol):
    """What is said to the server of one model, and heard from it."""

    vendor: ClassVar[Vendor]
    path: ClassVar[str]
    """Where it is asked, below its address."""
    models_query: ClassVar[Mapping[str, str]]
    """What the list of models is asked for with, so that it is whole."""

    def __init__(self, model: str, address: Address, extra: Mapping[str, JsonValue]) -> None: ...

    @staticmethod
    def headers(key: str | None) -> dict[str, str]:
        """What every request carries, the key among it."""

    def request(self, messages: Sequence[bytes], tools: bytes | None, sampling: Sampling) -> Request:
        """A request, from messages and tools as `Model.complete` takes them."""

    def read(self, body: bytes, known: Answered) -> Completion:
        """What an answer with status 200 holds; raises `Unusable`."""
