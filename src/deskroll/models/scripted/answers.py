"""What a scripted server answers: messages, made-up tokens and errors, all of it determined by request and script.

Tokens are pieces of four characters, so a text has ceil(characters / 4) of them; an image counts as one. A piece's id
is a checksum of it. A conversation's tokens are those of its messages one after the other (text, then the name and
the arguments of each call), so the prompt of a later turn begins with prompt and completion of the turn before, as it
does with a real model whose history is left alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import msgspec

from deskroll.models.scripted.requests import Call, ChatMessage, ChatRequest
from deskroll.models.scripted.schedule import Generation
from deskroll.models.scripted.script import ToolUse, Turn
from deskroll.models.scripted.weights import plain_logprob

WRONG_TOOL = "no_such_tool_"
BAD_ARGUMENTS = '{"scripted_fault": '
"""How the arguments of a bad call begin: by this, and by the name above, the server knows its own faults again."""
_PIECE = 4
_VOCABULARY = 150_000
_encode = msgspec.json.Encoder().encode


def turn_number(request: ChatRequest) -> int:
    """How many answers the script has given in a conversation; those that were faults do not count."""
    return sum(1 for message in request.messages if message.role == "assistant" and not _is_fault(message))


def _is_fault(message: ChatMessage) -> bool:
    return any(
        call.function.name.startswith(WRONG_TOOL) or call.function.arguments.startswith(BAD_ARGUMENTS)
        for call in message.tool_calls or ()
    )


def wrong_tool(number: int, turn: Turn) -> Turn:
    """A turn that calls a tool which nobody has."""
    arguments = turn.tools[0].arguments if turn.tools else "{}"
    return Turn(tools=(ToolUse(name=f"{WRONG_TOOL}{number}", arguments=arguments),))


def bad_arguments(number: int, turn: Turn, request: ChatRequest) -> Turn:
    """A turn that calls a tool with arguments that are no JSON."""
    names = [tool.name for tool in turn.tools] + [tool.function.name for tool in request.tools or ()]
    return Turn(text=turn.text, tools=(ToolUse(name=names[0], arguments=f"{BAD_ARGUMENTS}{number}"),))


def cut_turn(turn: Turn, most: int | None) -> tuple[Turn, int]:
    """A turn of at most so many tokens, and how many it has; one that calls tools stays whole."""
    count = sum(_count(text) for text in _said(turn))
    if most is None or count <= most or turn.tools:
        return turn, count
    return Turn(text=turn.text[: most * _PIECE]), most


def answer(
    request: ChatRequest, turn: Turn, number: int, fingerprint: str, made: Generation | None = None, cut: bool = False
) -> bytes:
    """The body of an answer; `made` by an engine, which marks each token with its weights and may end it early.

    `cut`: the turn is what the limit on tokens left of it.
    """
    aborted = made is not None and made.aborted
    if made is not None and aborted:
        turn = Turn(text=turn.text[: len(made.shifts) * _PIECE])
    # Unique within the conversation, and the same whenever it is asked for again.
    place = len(request.messages)
    calls = [
        {
            "id": f"call_{place}_{index}",
            "type": "function",
            "function": {"name": tool.name, "arguments": tool.arguments},
        }
        for index, tool in enumerate(turn.tools)
    ]
    message: dict[str, object] = {"role": "assistant", "content": turn.text or (None if calls else "")}
    if calls:
        message["tool_calls"] = calls
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    tokens = [piece for text in _said(turn) for piece in _pieces(text)]
    shifts = [0.0] * len(tokens) if made is None else made.shifts[: len(tokens)]
    choice: dict[str, object] = {
        "index": 0,
        "message": message,
        "finish_reason": "abort" if aborted else "tool_calls" if calls else "length" if cut else "stop",
        "logprobs": {"content": list(map(_logprob, tokens, shifts))} if request.logprobs else None,
    }
    prompt = sum(_length(message) for message in request.messages)
    completion = len(tokens)
    body: dict[str, object] = {
        "id": f"chatcmpl-scripted-{number}",
        "object": "chat.completion",
        "created": 0,
        "model": request.model,
        "system_fingerprint": fingerprint,
        "choices": [choice],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion},
    }
    if request.seed is not None or request.top_k is not None:
        body["scripted"] = {"seed": request.seed, "top_k": request.top_k}  # so that a test sees what has arrived
    if request.return_token_ids:
        choice["token_ids"] = [_id(piece) for piece in tokens]
        body["prompt_token_ids"] = [token for message in request.messages for token in _ids(message)]
    return _encode(body)


def _said(turn: Turn) -> list[str]:
    return [turn.text, *(part for tool in turn.tools for part in (tool.name, tool.arguments))]


def _texts(message: ChatMessage) -> Iterator[str]:
    """The texts of a message, in the order in which its tokens are made."""
    if isinstance(message.content, list):
        for part in message.content:
            yield part.text or ""
    else:
        yield message.content or ""
    calls: list[Call] = message.tool_calls or []
    for call in calls:
        yield call.function.name
        yield call.function.arguments


def _length(message: ChatMessage) -> int:
    return sum(_count(text) for text in _texts(message)) + len(message.images)


def _ids(message: ChatMessage) -> Iterator[int]:
    for text in _texts(message):
        yield from (_id(piece) for piece in _pieces(text))
    yield from (_id(url) for url in message.images)


def _count(text: str) -> int:
    return -(-len(text) // _PIECE)


def _pieces(text: str) -> list[str]:
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


def _id(piece: str) -> int:
    return zlib.crc32(piece.encode()) % _VOCABULARY


def _logprob(piece: str, shift: float) -> dict[str, object]:
    data = piece.encode()
    value = plain_logprob(_id(piece)) - shift
    return {"token": piece, "logprob": value, "bytes": list(data), "top_logprobs": []}


def error(message: str, *, kind: str = "invalid_request_error", code: str = "", param: str = "") -> bytes:
    """An error as OpenAI's servers word it."""
    return _encode({"error": {"message": message, "type": kind, "param": param or None, "code": code or None}})
