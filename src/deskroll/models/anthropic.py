"""Anthropic's Messages API, or that of a server that speaks it: a `Dialect`.

It takes the same messages and tools as OpenAI's and puts them into the other protocol: system messages become the
`system` field, calls and their results become blocks, neighbours of one role become one message. What an agent says,
what is stored and how a request is built again are therefore the same for both. Tools that are Anthropic's own pass as
they are; the beta header that some of them need follows from their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from pydantic import JsonValue

from deskroll.errors import ConfigError, ModelError
from deskroll.models.client import ModelClient
from deskroll.models.dialect import Answered, Dialect, Request
from deskroll.models.prices import TokenCount
from deskroll.models.settings import Address, ModelSettings, Vendor
from deskroll.models.wire import Unusable
from deskroll.types import Completion, Sampling, ToolRequest

ANTHROPIC = Vendor("https://api.anthropic.com/v1", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY")
VERSION = "2023-06-01"
TOOLSET = "computer_toolset_20260801"
MEMBERS = frozenset((
    "screenshot", "zoom", "cursor_position", "left_click", "right_click", "middle_click", "double_click",
    "triple_click", "left_click_drag", "mouse_move", "left_mouse_down", "left_mouse_up", "scroll", "type", "key",
    "hold_key", "wait",
))  # fmt: skip
"""The tools of the toolset; a call of one of them, and its result, name the set."""
MAX_TOKENS = 8192
"""The most tokens of a completion where the settings name none: the API wants a number."""
_BETA = re.compile(r"computer_(\d{4})(\d{2})(\d{2})")
_DATA_URL = re.compile(r"data:(image/[a-z]+);base64,")
_REASONS = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}
_MOST_TOKENS = 10**12

Block = dict[str, Any]


class AnthropicMessages:
    """Speaks it about one model."""

    vendor: ClassVar[Vendor] = ANTHROPIC
    path: ClassVar[str] = "messages"
    models_query: ClassVar[Mapping[str, str]] = {"limit": "1000"}

    def __init__(self, model: str, address: Address, extra: Mapping[str, JsonValue]) -> None:
        self._model = model
        self._extra = dict(extra)

    @staticmethod
    def headers(key: str | None) -> dict[str, str]:
        """See `Dialect`."""
        return {"anthropic-version": VERSION} | ({} if key is None else {"x-api-key": key})

    def request(self, messages: Sequence[bytes], tools: bytes | None, sampling: Sampling) -> Request:
        """See `Dialect`; it knows neither seeds nor tokens."""
        offered = [_tool(each) for each in msgspec.json.decode(tools)] if tools else []
        system, turns = translated(messages, toolset=any(each.get("type") == TOOLSET for each in offered))
        fields: dict[str, object] = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "stop_sequences": sampling.stop or None,
        }
        given = {name: value for name, value in fields.items() if value is not None}
        body = {"model": self._model, "max_tokens": sampling.max_tokens or MAX_TOKENS, **given, **self._extra}
        if system:
            body["system"] = system
        body["messages"] = turns
        if offered:
            body["tools"] = offered
        betas = sorted(filter(None, map(_beta, offered)))
        headers = {"anthropic-beta": ",".join(betas)} if betas else {}
        return Request(parts=[msgspec.json.encode(body)], headers=headers)

    def read(self, body: bytes, known: Answered) -> Completion:
        """See `Dialect`."""
        return read_message(body, known)


class AnthropicModel(ModelClient):
    """The kind `anthropic`."""

    protocol: ClassVar[str] = "anthropic"
    dialect: ClassVar[type[Dialect]] = AnthropicMessages
    routed: ClassVar[bool] = False

    @classmethod
    def check_settings(cls, settings: ModelSettings, name: str) -> None:
        """See `ModelPlugin`; this API tells no tokens."""
        super().check_settings(settings, name)
        if settings.exact:
            raise ConfigError(f"{name}.exact is true, and Anthropic's API tells no token ids; leave it out")


def _tool(tool: Block) -> Block:
    """A tool as this API describes it: a function is put into its words, its own tools pass."""
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, dict):
        return tool
    schema = function.get("parameters") or {"type": "object"}
    return {"name": function["name"], "description": function.get("description", ""), "input_schema": schema}


def _beta(tool: Block) -> str:
    found = _BETA.fullmatch(str(tool.get("type", "")))
    return f"computer-use-{found[1]}-{found[2]}-{found[3]}" if found else ""


def translated(messages: Sequence[bytes], *, toolset: bool = False) -> tuple[str, list[Block]]:
    """The system prompt and the turns of a conversation; `toolset`: calls of its members name it."""
    system: list[str] = []
    turns: list[Block] = []
    members: set[str] = set()
    """Ids of calls of the toolset."""
    for encoded in messages:
        message = msgspec.json.decode(encoded)
        role = message["role"]
        if role == "system":
            system.append("".join(part.get("text", "") for part in _parts(message)))
            continue
        calls = message.get("tool_calls") or []
        if toolset:
            members |= {call["id"] for call in calls if call["function"]["name"] in MEMBERS}
        blocks = [_result(message, members)] if role == "tool" else list(_blocks(message, members))
        side = "assistant" if role == "assistant" else "user"
        if turns and turns[-1]["role"] == side:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": side, "content": blocks})
    return "\n\n".join(filter(None, system)), turns


def _parts(message: Block) -> list[Block]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else content or []


def _blocks(message: Block, members: set[str]) -> Iterator[Block]:
    yield from _contents(message)
    for call in message.get("tool_calls") or []:
        function = call["function"]
        named = {"toolset_name": "computer"} if call["id"] in members else {}
        yield {"type": "tool_use", "id": call["id"], "name": function["name"], "input": _input(function), **named}


def _contents(message: Block) -> Iterator[Block]:
    for part in _parts(message):
        if part["type"] == "image_url":
            url = part["image_url"]["url"]
            head = _DATA_URL.match(url)
            if head is None:
                raise ModelError("an image of a message is not a data URL")
            yield {"type": "image", "source": {"type": "base64", "media_type": head[1], "data": url[head.end() :]}}
        elif part.get("text", "").strip():  # the API refuses blank texts
            yield {"type": "text", "text": part["text"]}


def _result(message: Block, members: set[str]) -> Block:
    call = message["tool_call_id"]
    named = {"toolset_name": "computer"} if call in members else {}
    failed = {"is_error": True} if any(part.get("text", "").startswith("error: ") for part in _parts(message)) else {}
    return {"type": "tool_result", "tool_use_id": call, "content": list(_contents(message)), **named, **failed}


def _input(function: Mapping[str, str]) -> object:
    try:
        given = msgspec.json.decode(function["arguments"] or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return given if isinstance(given, dict) else {}


class _Block(msgspec.Struct):
    type: str = ""
    text: Any = None
    thinking: Any = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"{}")


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class _Answer(msgspec.Struct):
    content: list[_Block] | None = None
    model: str | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None


_decode = msgspec.json.Decoder(_Answer).decode


def read_message(body: bytes, known: Answered) -> Completion:
    """The completion in an answer with status 200; raises `Unusable`."""
    try:
        return _read(_decode(body), known)
    except msgspec.ValidationError as error:
        raise Unusable(f"the answer is not a message: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unusable(f"the answer is not valid JSON: {error}") from None


def _read(answer: _Answer, known: Answered) -> Completion:
    """Inputs of calls are looked at only here: decoding skips them, whatever bytes they are."""
    if answer.content is None:
        raise Unusable("the answer holds no content")
    used, asked = _count(answer.usage), known.sampling
    reason = answer.stop_reason or ""
    return Completion(
        text="".join(_word(each.text) for each in answer.content if each.type == "text"),
        reasoning="".join(_word(each.thinking) for each in answer.content if each.type == "thinking"),
        tool_calls=tuple(_call(each, n) for n, each in enumerate(answer.content) if each.type == "tool_use"),
        finish_reason=_REASONS.get(reason, reason[:200]),
        prompt_tokens=used.prompt,
        completion_tokens=used.completion,
        model=(answer.model or known.asked)[:200],
        version=known.version,
        endpoint=known.endpoint,
        sampling=Sampling(
            temperature=asked.temperature,
            top_p=asked.top_p,
            top_k=asked.top_k,
            max_tokens=asked.max_tokens or MAX_TOKENS,
            stop=asked.stop,
        ),
        cost_usd=None if known.price is None or answer.usage is None else known.price.of(used),
        tries=known.tries,
    )


def _call(block: _Block, place: int) -> ToolRequest:
    return ToolRequest(id=block.id or f"call_{place}", name=block.name or "", arguments=bytes(block.input).decode())


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(usage: _Usage | None) -> TokenCount:
    if usage is None:
        return TokenCount()
    cached = _bounded(usage.cache_read_input_tokens)
    prompt = _bounded(usage.input_tokens) + _bounded(usage.cache_creation_input_tokens) + cached
    return TokenCount(prompt=prompt, completion=_bounded(usage.output_tokens), cached=cached)


def _bounded(count: int | None) -> int:
    return min(max(count or 0, 0), _MOST_TOKENS)
