"""Names of models against the lists of their servers."""

from __future__ import annotations

import pytest

from deskroll.models.listed import is_listed, unlisted


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("gpt-4.1", "gpt-4.1"),
        ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929"),
        ("llama3", "llama3:latest"),
        ("gemini-2.5-pro", "models/gemini-2.5-pro"),
        ("qwen/qwen3:free", "qwen/qwen3"),
        ("openai/gpt-4.1", "openai/*"),
    ],
)
def test_what_a_list_covers(name: str, listed: str) -> None:
    assert is_listed(name, ["another", listed])


@pytest.mark.parametrize(("name", "listed"), [("gpt-4.1", "gpt-4.1-mini"), ("gpt", "gpt-4.1"), ("b", "a")])
def test_what_it_does_not(name: str, listed: str) -> None:
    assert not is_listed(name, ["another", listed])


def test_the_nearest_names_are_told() -> None:
    said = unlisted("gpt-4.1-mnii", "http://m/v1", ["o3", "gpt-4.1-mini", "gpt-4.1"])
    assert said.startswith(
        "http://m/v1 does not list a model 'gpt-4.1-mnii'; the nearest that it has: gpt-4.1-mini, gpt-"
    )
    assert "it has: a, b, c, d, e ..." in unlisted("zzz", "http://m/v1", list("hgfedcba"))
