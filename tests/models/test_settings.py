"""Settings of a model: from a file, from the environment, from `.env`; never with the key in sight."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from deskroll.config import dump, load
from deskroll.errors import ConfigError, InputError
from deskroll.models.settings import ModelSettings, is_loopback, load_env
from tests.models.servers import QUESTION, canned, client, http, said

KEY = "sk-very-secret"


def test_defaults() -> None:
    endpoint = ModelSettings().resolved({})
    assert (endpoint.shown, endpoint.key) == ("https://api.openai.com/v1", None)
    assert str(endpoint.path("chat/completions")) == "https://api.openai.com/v1/chat/completions"


def test_what_is_given_goes_before_the_environment() -> None:
    env = {"OPENAI_BASE_URL": "http://one.example/v1/", "OPENAI_API_KEY": "sk-env"}
    settings = ModelSettings(base_url="http://two.example/v1?a=b", api_key=KEY)  # type: ignore[arg-type]
    assert ModelSettings().resolved(env).shown == "http://one.example/v1"
    assert str(ModelSettings().resolved(env).path("models")) == "http://one.example/v1/models"
    endpoint = settings.resolved(env)
    assert endpoint.shown == "http://two.example/v1"
    assert str(endpoint.path("models")) == "http://two.example/v1/models?a=b"
    assert endpoint.key is not None
    assert endpoint.key.get_secret_value() == KEY


def test_the_key_stays_out_of_sight(tmp_path: Path) -> None:
    file = tmp_path / "model.yaml"
    file.write_text(f"api_key: {KEY}\n")
    settings = load(ModelSettings, file)
    for shown in (repr(settings), str(settings), dump(settings), repr(settings.resolved({}))):
        assert KEY not in shown
    file.write_text(f"api_key: [{KEY}]\n")
    with pytest.raises(ConfigError) as caught:
        load(ModelSettings, file)
    assert KEY not in str(caught.value)
    with pytest.raises(ConfigError, match="characters that no key has") as caught:
        ModelSettings().resolved({"OPENAI_API_KEY": f"{KEY}\r\nX-Evil: 1"})
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("url", ["http://user:sk-very-secret@h/v1", "ftp://sk-very-secret/v1", "sk-very-secret"])
def test_a_wrong_address_is_refused_without_repeating_it(url: str, tmp_path: Path) -> None:
    file = tmp_path / "model.yaml"
    file.write_text(f"base_url: {url}\n")
    with pytest.raises(ConfigError, match="base_url") as caught:
        load(ModelSettings, file)
    assert KEY not in str(caught.value)
    with pytest.raises(ConfigError, match="OPENAI_BASE_URL") as caught:
        ModelSettings().resolved({"OPENAI_BASE_URL": url})
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"extra": {"messages": []}}, {"extra": {"stream": True}}, {"timeout": 0}, {"retries": -1}, {"name": ""},
        {"max_in_flight": 0}, {"top_p": 1.5}, {"temperature": -1}, {"price": {"input": 1}}, {"tiemout": 3},
    ],
)  # fmt: skip
def test_nonsense_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        ModelSettings.model_validate(fields)


async def test_the_name_of_the_limit_on_tokens_depends_on_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with canned(http(said())) as server:
        monkeypatch.setenv("http_proxy", server.url.removesuffix("/v1"))
        for url in (server.url, "http://api.openai.com/v1"):
            async with client(url, max_tokens=7) as model:
                await model.complete(QUESTION)
        fields = [set(json.loads(body)) - {"model", "messages"} for body in server.bodies]
    assert fields == [{"max_tokens"}, {"max_completion_tokens"}]


def test_env_file_adds_and_overrides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    monkeypatch.setenv("OPENAI_BASE_URL", "")
    monkeypatch.delenv("OPENAI_BASE_URL")
    assert not load_env(tmp_path)
    (tmp_path / ".env").write_text('OPENAI_API_KEY=sk-file\nOPENAI_BASE_URL="http://file.example/v1"\n')
    assert load_env(tmp_path)
    assert (os.environ["OPENAI_API_KEY"], os.environ["OPENAI_BASE_URL"]) == ("sk-mine", "http://file.example/v1")
    (tmp_path / ".env").write_bytes(b"OPENAI_API_KEY=\xff\xfe")
    with pytest.raises(InputError, match=r"\.env: it is not UTF-8"):
        load_env(tmp_path)


def test_loopback() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.9.9.9", "::1", "gpu.localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "10.0.0.1", "example.com", "localhost.example.com", "")))
