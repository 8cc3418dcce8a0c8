"""Tokens: which headers carry one, and which files may hold some."""

from __future__ import annotations

from pathlib import Path

import pytest

from deskroll.errors import InputError
from deskroll.host.tokens import bearer_headers, bears_token, read_token_lines


@pytest.mark.parametrize("token", ["sesame", "ümlaut", "half of a character: \udce4"])
def test_a_token_is_known_by_its_header(token: str) -> None:
    sent = bearer_headers(token)["Authorization"]
    assert bears_token(sent, token)
    for wrong in ("", token, f"Bearer {token} ", f"Bearer {token[:-1]}", "Bearer "):
        assert not bears_token(wrong, token)


def test_no_token_is_sent_where_there_is_none() -> None:
    assert bearer_headers("") == {}


def test_a_file_of_tokens_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("# who, and with what\n\nann  one\nbob two x=1\n")
    file.chmod(0o644)
    with pytest.raises(InputError, match="others may read it; run:  chmod 600"):
        list(read_token_lines(file, "clients"))
    file.chmod(0o600)
    assert list(read_token_lines(file, "clients")) == [(3, ["ann", "one"]), (4, ["bob", "two", "x=1"])]
    with pytest.raises(InputError, match="cannot read the clients in"):
        list(read_token_lines(tmp_path / "nowhere", "clients"))
