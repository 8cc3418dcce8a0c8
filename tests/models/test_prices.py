"""Prices: known, given, or None; never made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from deskroll.errors import ConfigError
from deskroll.models.client import ChatClient
from deskroll.models.prices import TABLE, Price, TokenCount, cost, load_prices, price_of
from deskroll.models.settings import ModelSettings
from tests.models.servers import QUESTION, canned, http, said

USED = TokenCount(prompt=1_000_000, completion=100_000)


@pytest.mark.parametrize(
    ("model", "entry"),
    [
        ("gpt-4.1", "gpt-4.1"),
        ("gpt-4.1-2025-04-14", "gpt-4.1"),
        ("gpt-4.1-mini-2025-04-14", "gpt-4.1-mini"),
        ("gpt-4o-2024-05-13", "gpt-4o-2024-05-13"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("gpt-4-0613", "gpt-4"),
        ("claude-sonnet-4-20250514", "claude-sonnet-4"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("gemini-3.1-pro-preview", "gemini-3.1-pro"),
        ("gpt-4.1-enormous", None),
        ("gpt-4.15", None),
        ("claude-sonnet-4-9", None),
        ("my-gpt-4.1", None),
        ("Qwen/Qwen2.5-VL-7B-Instruct", None),
        ("", None),
    ],
)
def test_the_longest_entry_that_fits(model: str, entry: str | None) -> None:
    assert price_of(model, TABLE) is (None if entry is None else TABLE[entry])


def test_cost() -> None:
    assert cost("gpt-4.1-2025-04-14", USED, TABLE) == pytest.approx(2 + 0.8)
    assert cost("unheard-of", USED, TABLE) is None
    cached = TokenCount(prompt=1_000_000, completion=0, cached=900_000)
    assert cost("gpt-4.1", cached, TABLE) == pytest.approx(0.1 * 2 + 0.9 * 0.5)
    assert Price(input=1, output=1).of(cached) == pytest.approx(1), "no word on the cache: as any other"
    assert Price(input=1, output=1, up_to=999_999).of(USED) is None, "another price holds, and it is not known"
    assert Price(input=0, output=0).of(USED) == 0, "free of charge is a price too"


def test_the_table_is_sane() -> None:
    assert len(TABLE) >= 40
    for name, price in TABLE.items():
        assert 0 < price.input < price.output, name
        assert price.cached_input is None or 0 < price.cached_input < price.input, name


def test_a_file_extends_and_overrides(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("prices:\n  gpt-4.1: {input: 1, output: 2}\n  my-lora-*: {input: 3, output: 4}\n")
    prices = load_prices(file)
    assert cost("gpt-4.1-2025-04-14", USED, prices) == pytest.approx(1.2)
    assert cost("my-lora-step-7", USED, prices) == pytest.approx(3.4)
    assert price_of("gpt-4o", prices) is TABLE["gpt-4o"]
    file.write_text("prices:\n  mine: {input: -1, output: 2}\n")
    with pytest.raises(ConfigError, match=r"prices.yaml:2: prices.mine.input: .*greater than or equal to 0"):
        load_prices(file)


def test_prices_of_your_own_go_before_the_table(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("prices:\n  gpt-*: {input: 1, output: 2}\n")
    prices = load_prices(file)
    assert cost("gpt-4.1", USED, prices) == pytest.approx(1.2)
    assert price_of("o3", prices) is TABLE["o3"]
    assert price_of("o3", prices, listed=False) is None


async def test_prices_of_your_own_hold_for_a_server_of_your_own(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("prices:\n  mine: {input: 3, output: 4}\n  gpt-4.1: {input: 2, output: 8}\n")
    costs = {}
    async with canned(http(said())) as server:
        for name in ("mine", "gpt-4.1", "gpt-4o"):
            settings = ModelSettings(base_url=server.url, name=name)
            async with ChatClient(settings, prices=load_prices(file), env={}) as model:
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
            async with ChatClient(ModelSettings(base_url=url, name="gpt-4.1"), env={}) as model:
                costs.append((await model.complete(QUESTION)).cost_usd)
    assert costs == [None, None, pytest.approx((100 * 2 + 10 * 8) / 1e6)]
