"""Prices: known, given, or None; never made up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from yarl import URL

from deskroll.errors import ConfigError
from deskroll.models.openai import OpenAIModel
from deskroll.models.prices import ListPrice, Price, TokenCount, load_prices, price_of
from deskroll.models.settings import ModelSettings
from tests.models.servers import QUESTION, canned, http, said

USED = TokenCount(prompt=1_000_000, completion=100_000)


OPENAI = URL("https://api.openai.com/v1")
ANTHROPIC = URL("https://api.anthropic.com/v1")


@pytest.mark.parametrize(
    ("model", "server", "usd"),
    [
        ("gpt-4.1", OPENAI, 2.8),
        ("gpt-4.1-2025-04-14", OPENAI, 2.8),
        ("gpt-4.1-mini-2025-04-14", OPENAI, 0.56),
        ("gpt-4o-2024-05-13", OPENAI, 6.5),
        ("claude-opus-4-1", ANTHROPIC, 22.5),
        ("openai/gpt-4.1", URL("https://openrouter.ai/api/v1"), 2.8),
        ("gpt-4.1", ANTHROPIC, None),
        ("gpt-4.1", URL("https://gateway.example/v1"), None),
        ("gpt-4.1-enormous", OPENAI, None),
        ("gpt-4.15", OPENAI, None),
        ("my-gpt-4.1", OPENAI, None),
        ("Qwen/Qwen2.5-VL-7B-Instruct", OPENAI, None),
        ("", OPENAI, None),
    ],
)
def test_list_prices_hold_where_the_vendor_is_asked(model: str, server: URL, usd: float | None) -> None:
    price = price_of(model, server=server)
    assert (None if price is None else price.of(USED)) == (None if usd is None else pytest.approx(usd))


def test_cost() -> None:
    cached = TokenCount(prompt=1_000_000, completion=0, cached=900_000)
    listed = price_of("gpt-4.1", server=OPENAI)
    assert listed is not None
    assert listed.of(cached) == pytest.approx(0.1 * 2 + 0.9 * 0.5)
    assert listed.of(TokenCount(prompt=1, cached=5)) == pytest.approx(0.5 / 1e6), "a server that cannot count"
    assert Price(input=1, output=1).of(cached) == pytest.approx(1), "no word on the cache: as any other"
    assert Price(input=1, output=1, up_to=999_999).of(USED) is None, "another price holds, and it is not known"
    assert Price(input=0, output=0).of(USED) == 0, "free of charge is a price too"


def test_nothing_is_fetched_and_the_list_is_imported_when_it_is_needed() -> None:
    """Where no socket can be made, and by whoever only imports the client."""
    code = """
import socket, sys
import deskroll.models.client
from deskroll.models.prices import TokenCount, price_of
from yarl import URL
assert "genai_prices" not in sys.modules
def refuse(*_): raise AssertionError("a socket")
socket.socket.connect = refuse
price = price_of("gpt-4.1", server=URL("https://api.openai.com/v1"))
assert price.of(TokenCount(prompt=10)) > 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_prices_of_your_own_go_first(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("prices:\n  gpt-4.1: {input: 1, output: 2}\n  my-lora-*: {input: 3, output: 4}\n")
    own = load_prices(file)
    assert price_of("gpt-4.1-2025-04-14", own, OPENAI) is own["gpt-4.1"]
    assert price_of("my-lora-step-7", own) is own["my-lora-*"]
    assert price_of("gpt-4.1-mini", own) is None
    assert isinstance(price_of("gpt-4.1-mini", own, OPENAI), ListPrice)
    file.write_text("prices:\n  gpt-*: {input: 1, output: 2}\n  gpt-4.1: {input: 3, output: 4}\n")
    own = load_prices(file)
    assert price_of("gpt-4.1", own, OPENAI) is own["gpt-4.1"], "the longest that fits"
    assert price_of("gpt-4.1-mini", own, OPENAI) is own["gpt-*"]
    file.write_text("prices:\n  mine: {input: -1, output: 2}\n")
    with pytest.raises(ConfigError, match=r"prices.yaml:2: prices.mine.input: .*greater than or equal to 0"):
        load_prices(file)


async def test_prices_of_your_own_hold_for_a_server_of_your_own(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("prices:\n  mine: {input: 3, output: 4}\n  gpt-4.1: {input: 2, output: 8}\n")
    costs = {}
    async with canned(http(said())) as server:
        for name in ("mine", "gpt-4.1", "gpt-4o"):
            settings = ModelSettings(base_url=server.url, name=name)
            async with OpenAIModel(settings, prices=load_prices(file), env={}) as model:
                costs[name] = (await model.complete(QUESTION)).cost_usd
    assert costs == {
        "mine": pytest.approx((100 * 3 + 10 * 4) / 1e6),
        "gpt-4.1": pytest.approx((100 * 2 + 10 * 8) / 1e6),  # as in the table, but somebody said so
        "gpt-4o": None,
    }


async def test_no_list_price_holds_for_a_server_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with canned(http(said(model="gpt-4.1"))) as server:
        monkeypatch.setenv("http_proxy", server.url.removesuffix("/v1"))
        costs = []
        for url in (server.url, "http://10.255.255.1/v1", "http://api.openai.com/v1"):
            async with OpenAIModel(ModelSettings(base_url=url, name="gpt-4.1"), env={}) as model:
                costs.append((await model.complete(QUESTION)).cost_usd)
    assert costs == [None, None, pytest.approx((100 * 2 + 10 * 8) / 1e6)]
