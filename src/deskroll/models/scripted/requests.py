"""Requests as a strict server reads them.

`read_request` gives a request, or raises `Refused` with the words of OpenAI's servers or near to them: fields that are
missing or of the wrong kind, tools' answers without a call, calls without an answer, contents that are empty, images
that cannot be decoded. An agent whose conversations pass here will not be refused for their form elsewhere.
"""

from __future__ import annotations

import binascii
import re

import msgspec
from msgspec import UNSET, UnsetType

_ROLES = ("system", "developer", "user", "assistant", "tool")
_DATA_URL = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,")


class Refused(Exception):
    """A request is not as it must be."""

    def __init__(self, message: str, param: str = "", status: int = 400) -> None:
        super().__init__(message)
        self.param = param
        self.status = status


class Url(msgspec.Struct):
    """Where an image is."""

    url: str


class Part(msgspec.Struct):
    """A part of a message's content."""

    type: str
    text: str | None = None
    image_url: Url | None = None


class Function(msgspec.Struct):
    """What a call calls."""

    name: str
    arguments: str


class Call(msgspec.Struct):
    """A call that the model made earlier."""

    id: str
    type: str
    function: Function


class ChatMessage(msgspec.Struct):
    """One message of a request."""

    role: str
    content: str | list[Part] | None = None
    tool_calls: list[Call] | UnsetType = UNSET
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """All text in it, without its calls."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if part.text)
        return self.content or ""

    @property
    def images(self) -> list[str]:
        """The addresses of its images."""
        if not isinstance(self.content, list):
            return []
        return [part.image_url.url for part in self.content if part.image_url is not None]


class _Offer(msgspec.Struct):
    name: str


class _Tool(msgspec.Struct):
    type: str
    function: _Offer


class ChatRequest(msgspec.Struct):
    """A request, as far as it matters here."""

    model: str
    messages: list[ChatMessage]
    tools: list[_Tool] | None = None
    stream: bool | None = None
    n: int | None = None
    logprobs: bool | None = None
    return_token_ids: bool | None = None
    max_tokens: int | None = None
    seed: int | None = None
    top_k: int | None = None

    @property
    def opening(self) -> str:
        """The text of the system messages and of the first user message."""
        texts = []
        for message in self.messages:
            if message.role != "assistant":
                texts.append(message.text)
            if message.role in ("user", "assistant"):
                break
        return "\n".join(texts)


_decode = msgspec.json.Decoder(ChatRequest).decode


def read_request(body: bytes) -> ChatRequest:
    """The request in a body, checked."""
    try:
        request = _decode(body)
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid request: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(f"We could not parse the JSON body of your request: {error}") from None
    if not request.model:
        raise Refused("you must provide a model parameter", "model")
    if request.stream:
        raise Refused("This scripted server does not stream: leave out stream=true", "stream")
    if request.n not in (None, 1):
        raise Refused("This scripted server gives one choice: leave out n", "n")
    for place, tool in enumerate(request.tools or ()):
        if tool.type != "function" or not tool.function.name:
            raise Refused(f"Invalid tools[{place}]: expected a function with a name", f"tools[{place}]")
    _check_messages(request.messages)
    return request


def _check_messages(messages: list[ChatMessage]) -> None:
    if not messages:
        raise Refused("Invalid 'messages': empty array. Expected an array with minimum length 1", "messages")
    unanswered: set[str] = set()
    for place, message in enumerate(messages):
        where = f"messages[{place}]"
        if message.role not in _ROLES:
            raise Refused(
                f"Invalid value: {message.role!r}. Supported values are: {', '.join(_ROLES)}", f"{where}.role"
            )
        if message.role == "tool":
            if message.tool_call_id not in unanswered:
                raise Refused(
                    "messages with role 'tool' must be a response to a preceding message with 'tool_calls'", where
                )
            unanswered.discard(message.tool_call_id)
        elif unanswered:
            raise _dangling(unanswered, where)
        elif message.tool_calls is not UNSET:
            unanswered = _check_calls(message, message.tool_calls, where)
        _check_content(message, f"{where}.content")
    if unanswered:
        raise _dangling(unanswered, f"messages[{len(messages) - 1}]")


def _dangling(ids: set[str], where: str) -> Refused:
    return Refused(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(sorted(ids))}",
        where,
    )


def _check_calls(message: ChatMessage, calls: list[Call], where: str) -> set[str]:
    if message.role != "assistant":
        raise Refused(f"Only messages with role 'assistant' have tool_calls, not {message.role!r}", where)
    if not calls:
        raise Refused("Invalid 'tool_calls': empty array. Expected an array with minimum length 1", where)
    for call in calls:
        if call.type != "function" or not call.id or not call.function.name:
            raise Refused("Invalid tool call: expected an id, the type 'function' and a function with a name", where)
    ids = {call.id for call in calls}
    if len(ids) < len(calls):
        raise Refused("Duplicate value for 'tool_call_id'", where)
    return ids


def _check_content(message: ChatMessage, where: str) -> None:
    content = message.content
    if content is None and (message.role != "assistant" or message.tool_calls is UNSET):
        raise Refused("Invalid value for 'content': expected a string, got null", where)
    if not isinstance(content, list):
        return
    if not content:
        raise Refused("Invalid 'content': empty array. Expected an array with minimum length 1", where)
    for place, part in enumerate(content):
        if part.type == "text" and part.text is not None:
            continue
        if part.type != "image_url" or part.image_url is None:
            raise Refused(f"Invalid content part of type {part.type!r}", f"{where}[{place}]")
        if message.role != "user":
            raise Refused(f"Images are only allowed in messages with role 'user', not {message.role!r}", where)
        _check_image(part.image_url.url, f"{where}[{place}].image_url")


def _check_image(url: str, where: str) -> None:
    start = _DATA_URL.match(url)
    if start is None:
        raise Refused("Invalid image URL: expected data:image/png;base64,... (or jpeg, gif, webp)", where)
    try:
        image = binascii.a2b_base64(url[start.end() :], strict_mode=True)
    except ValueError as error:
        raise Refused(f"Invalid base64 image data: {error}", where) from None
    if not image:
        raise Refused("Invalid image: it is empty", where)
