"""What a server's answers look like, and what is made of them.

Nothing that a server says is trusted: fields may be missing, null or of another kind, and its words are cut short
before they are shown. Fields that are not listed here are skipped while decoding, so they cost next to nothing.
"""

from __future__ import annotations

import re
import uuid
from typing import Any

import msgspec

from deskroll.errors import plain
from deskroll.models.dialect import Answered
from deskroll.models.prices import TokenCount
from deskroll.types import Completion, ToolRequest

_LONGEST_NAME = 200
_TOO_LONG_CODES = ("context_length_exceeded", "exceed_context_size_error", "string_above_max_length")
_TOO_LONG = re.compile(
    r"maximum (context|model|input) length|max(imum)?[_ ]model[_ ]len|context (length|window|size)|prompt is too long"
    r"|input (is|was) too long|(longer than|exceeds?) the (model's |available )?(maximum |max )?(context|model length)"
    r"|exceeds the maximum number of tokens|max(_completion)?_tokens must be at least 1",
    re.IGNORECASE,
)
_NO_QUOTA_CODES = (
    "insufficient_quota", "exceeded_current_quota_error", "billing_hard_limit_reached", "billing_not_active",
    "billing_error", "insufficient_balance", "insufficient_credits", "arrearage",
)  # fmt: skip
_NO_QUOTA = re.compile(r"your credit balance is too low|^\W*insufficient (balance|credits|funds)", re.IGNORECASE)
"""Not 'exceeded your current quota': some servers say that of requests a minute, too. Nor in the middle of a sentence,
where gateways repeat what they were asked."""


class Unusable(Exception):
    """An answer that nothing can be made of; the text says why."""


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Call(msgspec.Struct):
    id: str | None = None
    function: _Function | None = None


class _Part(msgspec.Struct):
    text: Any = None


class _Message(msgspec.Struct):
    content: str | list[_Part] | None = None
    tool_calls: list[_Call] | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None


class _Logprob(msgspec.Struct):
    logprob: float


class _Logprobs(msgspec.Struct):
    content: list[_Logprob] | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: tuple[int, ...] | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice] | None = None
    model: str | None = None
    usage: _Usage | None = None
    system_fingerprint: str | None = None
    prompt_token_ids: tuple[int, ...] | None = None


class _Error(msgspec.Struct):
    message: Any = None
    code: Any = None
    type: Any = None


class _Refusal(msgspec.Struct):
    """An error as servers send it: OpenAI's object, or what FastAPI and others make of it."""

    error: _Error | str | None = None
    message: Any = None
    code: Any = None
    detail: Any = None


_decode_answer = msgspec.json.Decoder(_Answer).decode
_decode_refusal = msgspec.json.Decoder(_Refusal).decode


def read_answer(body: bytes, known: Answered) -> Completion:
    """The completion in an answer with status 200 of the model that was asked; raises `Unusable`."""
    try:
        answer = _decode_answer(body)
    except msgspec.ValidationError as error:
        raise Unusable(f"the answer is not a chat completion: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unusable(f"the answer is not valid JSON: {error}") from None
    choice = answer.choices[0] if answer.choices else None
    if choice is None or choice.message is None:
        raise Unusable("the answer holds no choices")
    message, used = choice.message, _count(answer.usage)
    return Completion(
        text=_text(message),
        reasoning=_word(message.reasoning_content) or _word(message.reasoning),
        tool_calls=tuple(_request(call) for call in message.tool_calls) if message.tool_calls else (),
        finish_reason=_name(choice.finish_reason),
        prompt_tokens=used.prompt,
        completion_tokens=used.completion,
        prompt_token_ids=answer.prompt_token_ids,
        token_ids=choice.token_ids,
        logprobs=_logprobs(choice.logprobs),
        model=_name(answer.model) or known.asked,
        version=_name(known.version),
        fingerprint=_name(answer.system_fingerprint),
        endpoint=known.endpoint,
        sampling=known.sampling,
        seed=known.sampling.seed,
        cost_usd=None if known.price is None or answer.usage is None else known.price.of(used),
        tries=known.tries,
    )


def _text(message: _Message) -> str:
    content = message.content
    if isinstance(content, list):
        content = "".join(_word(part.text) for part in content)
    # A model that declines says so in a field of its own; to whoever reads the answer it is what the model said.
    return content or _word(message.refusal)


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def _name(text: str | None) -> str:
    if not text:
        return ""
    return text if len(text) <= _LONGEST_NAME and text.isprintable() else plain(text, _LONGEST_NAME)


def _request(call: _Call) -> ToolRequest:
    function = call.function or _Function()
    arguments = function.arguments
    if isinstance(arguments, dict):  # some servers send the object itself
        arguments = msgspec.json.encode(arguments).decode()
    # Without an id, the call could not be answered.
    return ToolRequest(
        id=call.id or f"call_{uuid.uuid4().hex[:16]}", name=function.name or "", arguments=arguments or ""
    )


def _logprobs(logprobs: _Logprobs | None) -> tuple[float, ...] | None:
    if logprobs is None or logprobs.content is None:
        return None
    return tuple([token.logprob for token in logprobs.content])


def _count(usage: _Usage | None) -> TokenCount:
    if usage is None:
        return TokenCount()
    details = usage.prompt_tokens_details
    return TokenCount(
        prompt=_bounded(usage.prompt_tokens),
        completion=_bounded(usage.completion_tokens),
        cached=_bounded(details.cached_tokens) if details is not None else 0,
    )


def _bounded(count: int | None) -> int:
    """A number of tokens that can be one."""
    return min(max(count or 0, 0), 10**12)


class Refusal(msgspec.Struct, frozen=True):
    """What a server says of a request that it did not answer."""

    message: str = ""
    codes: tuple[str, ...] = ()
    """What it calls that: its codes and types."""

    @property
    def too_long(self) -> bool:
        """Whether it is the length of the conversation."""
        return any(code in _TOO_LONG_CODES for code in self.codes) or _TOO_LONG.search(self.message) is not None

    @property
    def no_quota(self) -> bool:
        """Whether it is about money, and not about pace."""
        return any(code.lower() in _NO_QUOTA_CODES for code in self.codes) or _NO_QUOTA.search(self.message) is not None


def refusal(body: bytes) -> Refusal:
    """The words of an error, whatever shape it has, fit to be shown."""
    try:
        read = _decode_refusal(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Refusal(message=plain(body[:2000].decode(errors="replace")))
    inner = read.error if isinstance(read.error, _Error) else _Error(message=read.error)
    message = inner.message or read.message or read.detail or ""
    codes = (inner.code, inner.type, read.code)
    return Refusal(
        message=plain(message if isinstance(message, str) else msgspec.json.encode(message).decode()),
        codes=tuple(plain(code, 100) for code in codes if isinstance(code, str) and code),
    )
