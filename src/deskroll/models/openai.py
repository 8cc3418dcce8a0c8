"""OpenAI's chat completions, as most servers speak them: a `Dialect`.

Nothing that was encoded before is decoded or encoded again here: a request is put together from its parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import ClassVar

import msgspec
from pydantic import JsonValue

from deskroll.models.client import ModelClient
from deskroll.models.dialect import Answered, Dialect, Request
from deskroll.models.settings import OPENAI, Address, Vendor
from deskroll.models.wire import read_answer
from deskroll.types import Completion, Sampling

_HOST = ".openai.com"


class OpenAIChat:
    """Speaks it about one model."""

    vendor: ClassVar[Vendor] = OPENAI
    path: ClassVar[str] = "chat/completions"
    models_query: ClassVar[Mapping[str, str]] = {}

    def __init__(self, model: str, address: Address, extra: Mapping[str, JsonValue]) -> None:
        self._model = model
        self._extra = dict(extra)
        # OpenAI's newer models know the newer name alone, many other servers the older one alone.
        newer = f".{address.url.host}".endswith(_HOST)
        self._max_tokens = "max_completion_tokens" if newer else "max_tokens"
        self._head = lru_cache(maxsize=64)(self._encode_head)

    @staticmethod
    def headers(key: str | None) -> dict[str, str]:
        """See `Dialect`."""
        return {} if key is None else {"Authorization": f"Bearer {key}"}

    def request(self, messages: Sequence[bytes], tools: bytes | None, sampling: Sampling) -> Request:
        """See `Dialect`."""
        parts = [self._head(msgspec.structs.replace(sampling, seed=None))]
        if sampling.seed is not None and "seed" not in self._extra:
            parts.append(b',"seed":%d' % sampling.seed)  # each sample has its own: not worth keeping
        parts.append(b',"messages":[')
        for message in messages:
            parts += (message, b",")
        if messages:
            parts.pop()
        parts.append(b"]}" if tools is None else b'],"tools":%b}' % tools)
        return Request(parts=parts)

    def read(self, body: bytes, known: Answered) -> Completion:
        """See `Dialect`."""
        return read_answer(body, known)

    def _encode_head(self, sampling: Sampling) -> bytes:
        """The fields that all requests with this sampling have, without the closing brace."""
        fields: dict[str, object] = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            self._max_tokens: sampling.max_tokens,
            "stop": sampling.stop or None,
            "logprobs": sampling.logprobs or None,
            "return_token_ids": sampling.token_ids or None,
        }
        given = {name: value for name, value in fields.items() if value is not None}
        return msgspec.json.encode({"model": self._model, **given, **self._extra})[:-1]


class OpenAIModel(ModelClient):
    """The kind `openai`."""

    dialect: ClassVar[type[Dialect]] = OpenAIChat
