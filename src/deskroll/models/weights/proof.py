"""Proof: what a server says of a fixed prompt, by which it shows that its weights are others than before.

Guarantees: an answer without ids or log-probabilities, or with other numbers of them, proves nothing and is an error.
The prompt is asked twice before a refresh: where requests of others run beside it, equal weights give slightly
different numbers, and only what differs by more than that has changed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
from pydantic import JsonValue

from deskroll.errors import ModelError, plain
from deskroll.types import Record

_PROMPT = "The quick brown fox jumps over the lazy dog; 1234567890 apples, and then: click(640, 360)"
_TOKENS = 8


class Control(Protocol):
    """One server, by its HTTP endpoints."""

    async def post(
        self, path: str, *, json: JsonValue = None, params: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Status and body; raises `ModelError`, or OSError, where none comes."""


class Proof(Record, frozen=True):
    """What a server said of the fixed prompt."""

    token_ids: tuple[int, ...]
    """Of the answer."""
    logprobs: tuple[float, ...]
    """Of the prompt's tokens, where the server tells them, then of the answer's."""

    def distance(self, other: Proof) -> float:
        """How far two answers are from each other; infinite where they are of different length."""
        if len(self.logprobs) != len(other.logprobs):
            return math.inf
        return max((abs(a - b) for a, b in zip(self.logprobs, other.logprobs, strict=True)), default=0.0)


class _Choice(msgspec.Struct):
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None


class _Logprobs(msgspec.Struct):
    content: list[_Logprob] | None = None


class _Logprob(msgspec.Struct):
    logprob: float


class _Answer(msgspec.Struct):
    choices: list[_Choice]
    prompt_logprobs: list[dict[str, _Logprob] | None] | None = None


async def ask_proof(server: Control, model: str) -> Proof:
    """Ask a server for the fixed prompt under one of its names; raises `ModelError`."""
    body: JsonValue = {
        "model": model, "messages": [{"role": "user", "content": _PROMPT}], "max_tokens": _TOKENS, "temperature": 0,
        "logprobs": True, "return_token_ids": True, "prompt_logprobs": 0,
    }  # fmt: skip
    status, answer = await server.post("/v1/chat/completions", json=body)
    if status != 200:
        raise ModelError(f"the fixed prompt was answered with {status}: {said(answer)}")
    return read_proof(answer)


def read_proof(body: bytes) -> Proof:
    """What an answer says; raises `ModelError`."""
    try:
        answer = msgspec.json.decode(body, type=_Answer)
        choice = answer.choices[0]
    except (msgspec.MsgspecError, UnicodeDecodeError, IndexError) as error:
        raise ModelError(f"the answer to the fixed prompt cannot be read: {plain(str(error))}") from None
    logprobs = [each.logprob for each in (choice.logprobs.content if choice.logprobs else None) or ()]
    ids = choice.token_ids or []
    if not ids or len(ids) != len(logprobs):
        raise ModelError(
            f"the answer to the fixed prompt has {len(ids)} token ids and {len(logprobs)} log-probabilities: "
            "this server cannot be used where tokens must be exact"
        )
    return Proof(token_ids=tuple(ids), logprobs=(*_of_prompt(answer.prompt_logprobs), *logprobs))


def said(body: bytes) -> str:
    """What a server said, for a message: its own words where it has such."""
    try:
        found = json.loads(body)
    except ValueError:
        return plain(body.decode(errors="replace"))
    error = found.get("error", found) if isinstance(found, dict) else found
    message = error.get("message", error) if isinstance(error, dict) else error
    return plain(str(message))


def _of_prompt(prompt: Sequence[Mapping[str, _Logprob] | None] | None) -> list[float]:
    """The log-probability of each token of the prompt but the first; each comes with its id alone."""
    return [next(iter(each.values())).logprob for each in prompt or () if each]
