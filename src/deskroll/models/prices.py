"""Prices: what a call costs, where that is known.

List prices are those of `genai-prices`, a library that follows the vendors with its releases; nothing is fetched. They
hold where such a vendor is asked itself. What is given in the settings (`price`) or in a file of your own
(`load_prices`) goes before them, and holds for any server. Where no price is known the cost is `None`, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import Field
from yarl import URL

from deskroll.config import Settings, load
from deskroll.types import Record

_MILLION = 1_000_000
_VERSION = re.compile(r"(-(\d{3,4}|\d{6}|\d{8}|\d{4}-\d{2}-\d{2}|\d{2}-\d{2}|latest|preview|exp))*([@:].*)?")
"""What may follow a name of a price of your own: dates, numbers of three digits or more, `latest`. Not `-mini`."""


class Tariff(Protocol):
    """Whatever knows what tokens cost."""

    def of(self, used: TokenCount) -> float | None:
        """What so many tokens cost, in USD; None where that is not known."""


class Price(Settings):
    """What tokens cost, in USD per million."""

    input: float = Field(ge=0, allow_inf_nan=False)
    """Tokens of the prompt."""
    output: float = Field(ge=0, allow_inf_nan=False)
    """Tokens of the completion, reasoning included."""
    cached_input: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Tokens of the prompt that came from the server's cache; None: as any other."""
    up_to: int | None = Field(default=None, ge=1)
    """The longest prompt, in tokens, for which this holds; beyond it the cost is not known."""

    def of(self, used: TokenCount) -> float | None:
        """What so many tokens cost, in USD."""
        if self.up_to is not None and used.prompt > self.up_to:
            return None
        cached = min(used.cached, used.prompt)
        cheap = self.input if self.cached_input is None else self.cached_input
        return ((used.prompt - cached) * self.input + cached * cheap + used.completion * self.output) / _MILLION


class TokenCount(Record, frozen=True):
    """The tokens of one call."""

    prompt: int = 0
    """All of the prompt, cached or not."""
    completion: int = 0
    cached: int = 0
    """Of the prompt, what came from the server's cache."""


Prices = Mapping[str, Price]
"""Of your own, by model: a name, which covers its dated versions too, or a beginning with a `*` after it."""
NO_PRICES: Prices = {}


@dataclass(frozen=True)
class ListPrice:
    """What a vendor's list says of a model, at the moment of the call; longer prompts may cost more by the token."""

    model: str
    server: str

    def of(self, used: TokenCount) -> float | None:
        """What so many tokens cost, in USD."""
        from genai_prices import Usage, calc_price  # noqa: PLC0415  (it takes a fifth of a second to import)

        cached = min(used.cached, used.prompt)
        usage = Usage(input_tokens=used.prompt, cache_read_tokens=cached, output_tokens=used.completion)
        try:
            return float(calc_price(usage, self.model, provider_api_url=self.server).total_price)
        except LookupError:
            return None


def price_of(model: str, own: Prices = NO_PRICES, server: URL | None = None) -> Tariff | None:
    """The price of a model, or None: your own (the longest entry that fits), or that of the vendor who is asked."""
    if fitting := [name for name in own if _fits(name, model)]:
        return own[max(fitting, key=len)]
    if not model or server is None:
        return None
    listed = ListPrice(model, str(server.with_scheme("https").with_query(None)))
    return None if listed.of(TokenCount()) is None else listed


def _fits(name: str, model: str) -> bool:
    if name.endswith("*"):
        return model.startswith(name[:-1])
    return model.startswith(name) and _VERSION.fullmatch(model, len(name)) is not None


class _PriceFile(Settings):
    prices: dict[str, Price]


def load_prices(path: Path) -> dict[str, Price]:
    """Prices of your own, from a YAML or TOML file.

    The file holds `prices:` and below it, by model, `{input: …, output: …, cached_input: …}` in USD per million tokens.
    """
    return load(_PriceFile, path).prices
