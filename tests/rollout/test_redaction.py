"""What a run keeps of its settings and of its command line: no secret, whatever way it was given."""

from __future__ import annotations

from typing import Any

import pytest

from deskroll.rollout.redaction import (
    MASK,
    masked_command,
    masked_settings,
    masked_text,
    redacted,
    secrets_of,
    without_masked,
)

SECRET = "SEKRET"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["--set", f"provider_options.token={SECRET}"], ["--set", f"provider_options.token={MASK}"]),
        (["--set", f"provider_options.token={SECRET}=="], ["--set", f"provider_options.token={MASK}"]),
        (["--set", f"env_options.client_password=pa={SECRET}"], ["--set", f"env_options.client_password={MASK}"]),
        (["--set", f"env_options.auth={SECRET}"], ["--set", f"env_options.auth={MASK}"]),
        (["--cookie", SECRET], ["--cookie", MASK]),
        (["--set", f" env_options.token = {SECRET}"], ["--set", f" env_options.token ={MASK}"]),
        ([f"--set=provider_options.token={SECRET}=="], [f"--set=provider_options.token={MASK}"]),
        (["--set", f"env_options.credentials.user={SECRET}"], ["--set", f"env_options.credentials.user={MASK}"]),
        (["--set", f"provider_options.accessKeyId={SECRET}"], ["--set", f"provider_options.accessKeyId={MASK}"]),
        (["--set", f'provider_options={{"token": "{SECRET}"}}'], ["--set", f"provider_options={MASK}"]),
        ([f'--set=provider_options={{"a": {{"token": "{SECRET}"}}}}'], [f"--set=provider_options={MASK}"]),
        (["--set", f"env_options.sites=[{{password: {SECRET}}}]"], ["--set", f"env_options.sites={MASK}"]),
        (["--set", f"provider_options=token: {SECRET}"], ["--set", f"provider_options={MASK}"]),
        (["--base-url", f"https://h.example.com/v1?key={SECRET}"], ["--base-url", f"https://h.example.com/v1?{MASK}"]),
        ([f"--base-url=https://h.example.com/v1?k={SECRET}"], [f"--base-url=https://h.example.com/v1?{MASK}"]),
        (["--set", f"model.base_url=http://h/v1?token={SECRET}"], ["--set", f"model.base_url=http://h/v1?{MASK}"]),
        (["--set", f"a.proxy=http://me:{SECRET}@h:80/"], ["--set", f"a.proxy=http://{MASK}@h:80/"]),
        (["--options", f'{{"token": "{SECRET}=x"}}'], ["--options", MASK]),
        (["--client_password", SECRET], ["--client_password", MASK]),
        (["--client-password", SECRET, "t.jsonl"], ["--client-password", MASK, "t.jsonl"]),
        ([f"--client_password={SECRET}=x"], [f"--client_password={MASK}"]),
        # what is none stays as it is
        (["run", "t.jsonl", "--model", "m"], ["run", "t.jsonl", "--model", "m"]),
        (["--set", "limits.max_turns=5", "--dry-run"], ["--set", "limits.max_turns=5", "--dry-run"]),
        (["--set", 'env_options={"x": [1]}'], ["--set", 'env_options={"x": [1]}']),
        (["--base-url", "http://127.0.0.1:8000/v1"], ["--base-url", "http://127.0.0.1:8000/v1"]),
        (["--set", "agent_options.prompt=Monkeys: a=b"], ["--set", "agent_options.prompt=Monkeys: a=b"]),
    ],
)
def test_a_command_line_is_kept_without_its_secrets(given: list[str], kept: list[str]) -> None:
    assert masked_command(["deskroll", *given]) == ["deskroll", *kept]


@pytest.mark.parametrize(
    ("given", "kept", "masked"),
    [
        ({"token": SECRET}, {"token": MASK}, ["token"]),
        *(
            ({name: SECRET}, {name: MASK}, [name])
            for name in (
                "auth",
                "proxy_auth",
                "bearer",
                "bearerToken",
                "cookie",
                "session-cookies",
                "pwd",
                "DB_PWD",
                "jwt",
            )
        ),
        ({"author": "me", "bearing": "n", "cwd": "/"}, {"author": "me", "bearing": "n", "cwd": "/"}, []),
        ({"token": "", "max_tokens": 5}, {"token": "", "max_tokens": 5}, []),
        ({"a": {"client_password": SECRET, "b": 1}}, {"a": {"client_password": MASK, "b": 1}}, ["a.client_password"]),
        ({"a": [{"api_key": SECRET, "b": 1}]}, {"a": [{"api_key": MASK, "b": 1}]}, ["a"]),
        ({"a": {"b": [[{"token": SECRET}], 2]}}, {"a": {"b": [[{"token": MASK}], 2]}}, ["a.b"]),
        ({"api_keys": [SECRET, SECRET]}, {"api_keys": [MASK, MASK]}, ["api_keys"]),
        ({"credentials": {"user": SECRET}}, {"credentials": {"user": MASK}}, ["credentials.user"]),
        (
            {"base_url": f"https://h/v1?api-version=2&token={SECRET}"},
            {"base_url": f"https://h/v1?api-version=2&token={MASK}"},
            ["base_url"],
        ),
        ({"sites": [f"https://h/?key={SECRET}"]}, {"sites": [f"https://h/?key={MASK}"]}, ["sites"]),
        ({"proxy": f"http://me:{SECRET}@h:80"}, {"proxy": f"http://{MASK}@h:80"}, ["proxy"]),
        ({"base_url": "https://h/v1?api-version=2"}, {"base_url": "https://h/v1?api-version=2"}, []),
        ({"hosts": ["a", "b"]}, {"hosts": ["a", "b"]}, []),
    ],
)
def test_settings_are_kept_without_their_secrets(
    given: dict[str, Any], kept: dict[str, Any], masked: list[str]
) -> None:
    assert redacted(given) == kept
    assert masked_settings(kept) == masked
    assert MASK not in str(without_masked(kept))
    assert (without_masked(kept) == kept) == (not masked)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (f"it said {SECRET}, twice: {SECRET}", f"it said {MASK}, twice: {MASK}"),
        ("API_KEY=abc DEBUG=1", f"API_KEY={MASK} DEBUG=1"),
        ('{"token": "abc", "n": 1}', f'{{"token": "{MASK}", "n": 1}}'),
        ("Authorization: Bearer abc.def\nHost: h", f"Authorization: {MASK}\nHost: h"),
        ("http://me:abc@h/?token=abc&n=1", f"http://{MASK}@h/?token={MASK}&n=1"),
        # what is none stays as it is
        ("The key: C major, signature: 4/4", "The key: C major, signature: 4/4"),
        ("see https://example.com/?page=2 at 12:30", "see https://example.com/?page=2 at 12:30"),
        ("password", "password"),
    ],
)
def test_a_text_is_kept_without_its_secrets(given: str, kept: str) -> None:
    options = {"client_password": SECRET, "accounts": {"password": "password"}, "pin_token": "12"}
    assert secrets_of(options, "") == {SECRET}
    assert masked_text(given, secrets_of(options)) == kept
