"""Prices: what a call costs, where that is known.

Prices change, and this table does not follow by itself: it holds the list prices of late 2026 for ordinary calls,
without discounts for batches and without what some vendors charge for writing to their cache. What is given in the
settings (`price`) or in a file of your own (`load_prices`) goes before it, and holds for servers on this machine and in
private networks too, where the table does not. Where no price is known the cost is `None`, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from deskroll.config import Settings, load
from deskroll.types import Record

_MILLION = 1_000_000
_VERSION = re.compile(r"(-(\d{3,4}|\d{6}|\d{8}|\d{4}-\d{2}-\d{2}|\d{2}-\d{2}|latest|preview|exp))*([@:].*)?")
"""What may follow a name in the table: dates, numbers of three digits or more, `latest`. Not `-mini`, not `-6`."""


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
"""By model: a name, which covers its dated versions too, or a beginning with a `*` after it."""


def price_of(model: str, prices: Prices, *, listed: bool = True) -> Price | None:
    """The price of a model, or None: the longest entry that fits its name, those of your own before the table's.

    Without `listed` the table's do not count: no vendor's price holds for a server of your own.
    """
    fitting = [name for name in prices if _fits(name, model)]
    own = [name for name in fitting if prices[name] is not TABLE.get(name)]
    names = own or (fitting if listed else [])
    return prices[max(names, key=len)] if names else None


def cost(model: str, usage: TokenCount, prices: Prices) -> float | None:
    """What a call cost, in USD; None where the price is not known."""
    price = price_of(model, prices)
    return None if price is None else price.of(usage)


def _fits(name: str, model: str) -> bool:
    if name.endswith("*"):
        return model.startswith(name[:-1])
    return model.startswith(name) and _VERSION.fullmatch(model, len(name)) is not None


class _PriceFile(Settings):
    prices: dict[str, Price]


def load_prices(path: Path) -> dict[str, Price]:
    """The table with the entries of a YAML or TOML file laid over it.

    The file holds `prices:` and below it, by model, `{input: …, output: …, cached_input: …}` in USD per million tokens.
    """
    return {**TABLE, **load(_PriceFile, path).prices}


def _price(given: float, written: float, cached: float | None = None, up_to: int | None = None) -> Price:
    return Price(input=given, output=written, cached_input=cached, up_to=up_to)


TABLE: Prices = {
    # OpenAI
    "gpt-5.6-sol": _price(5, 30, 0.5, 272_000),
    "gpt-5.6-terra": _price(2, 12, 0.2, 272_000),
    "gpt-5.6-luna": _price(0.2, 1.2, 0.02, 200_000),
    "gpt-5.5": _price(5, 30, 0.5, 272_000),
    "gpt-5.4": _price(2.5, 15, 0.25, 272_000),
    "gpt-5.4-mini": _price(0.75, 4.5, 0.075),
    "gpt-5.4-nano": _price(0.2, 1.25, 0.02),
    "gpt-5.3-codex": _price(1.75, 14, 0.175),
    "gpt-5.2": _price(1.75, 14, 0.175),
    "gpt-5.2-codex": _price(1.75, 14, 0.175),
    "gpt-5.1": _price(1.25, 10, 0.125),
    "gpt-5.1-codex": _price(1.25, 10, 0.125),
    "gpt-5": _price(1.25, 10, 0.125),
    "gpt-5-codex": _price(1.25, 10, 0.125),
    "gpt-5-mini": _price(0.25, 2, 0.025),
    "gpt-5-nano": _price(0.05, 0.4, 0.005),
    "gpt-5-pro": _price(15, 120),
    "gpt-4.1": _price(2, 8, 0.5),
    "gpt-4.1-mini": _price(0.4, 1.6, 0.1),
    "gpt-4.1-nano": _price(0.1, 0.4, 0.025),
    "gpt-4o": _price(2.5, 10, 1.25),
    "gpt-4o-2024-05-13": _price(5, 15),
    "gpt-4o-mini": _price(0.15, 0.6, 0.075),
    "gpt-4-turbo": _price(10, 30),
    "gpt-4": _price(30, 60),
    "gpt-4-0125-preview": _price(10, 30),
    "gpt-4-1106-preview": _price(10, 30),
    "gpt-3.5-turbo": _price(0.5, 1.5),
    "o1": _price(15, 60, 7.5),
    "o1-pro": _price(150, 600),
    "o3": _price(2, 8, 0.5),
    "o3-pro": _price(20, 80),
    "o3-mini": _price(1.1, 4.4, 0.55),
    "o4-mini": _price(1.1, 4.4, 0.275),
    "computer-use-preview": _price(3, 12),
    # Anthropic
    "claude-fable-5": _price(10, 50, 1),
    "claude-opus-5": _price(5, 25, 0.5),
    "claude-opus-4-8": _price(5, 25, 0.5),
    "claude-opus-4-7": _price(5, 25, 0.5),
    "claude-opus-4-6": _price(5, 25, 0.5),
    "claude-opus-4-5": _price(5, 25, 0.5),
    "claude-opus-4-1": _price(15, 75, 1.5),
    "claude-opus-4": _price(15, 75, 1.5),
    "claude-sonnet-5": _price(2, 10, 0.2),
    "claude-sonnet-4-6": _price(3, 15, 0.3),
    "claude-sonnet-4-5": _price(3, 15, 0.3, 200_000),
    "claude-sonnet-4": _price(3, 15, 0.3, 200_000),
    "claude-haiku-4-5": _price(1, 5, 0.1),
    "claude-3-7-sonnet": _price(3, 15, 0.3),
    "claude-3-5-sonnet": _price(3, 15, 0.3),
    "claude-3-5-haiku": _price(0.8, 4, 0.08),
    # Google
    "gemini-3.5-flash": _price(1.5, 9, 0.15),
    "gemini-3.1-pro": _price(2, 12, 0.2, 200_000),
    "gemini-2.5-pro": _price(1.25, 10, 0.125, 200_000),
    "gemini-2.5-flash": _price(0.3, 2.5, 0.03),
    "gemini-2.5-flash-lite": _price(0.1, 0.4, 0.01),
    # xAI
    "grok-4.6": _price(2, 6, 0.5, 200_000),
    "grok-4.5": _price(2, 6, 0.5, 200_000),
    "grok-4": _price(3, 15, 0.75, 128_000),
}
"""What deskroll knows, in USD per million tokens."""
