"""An agent's request as chat templates take it: texts, pictures that are open, arguments of calls as objects."""

from __future__ import annotations

import binascii
import io
from collections.abc import Sequence
from typing import Any

import msgspec

from deskroll.types import Tool


def read_messages(sent: Sequence[bytes]) -> list[dict[str, Any]]:
    """Messages as OpenAI writes them, as templates of models read them."""
    made = []
    for each in map(msgspec.json.decode, sent):
        message: dict[str, Any] = {"role": each["role"], "content": _content(each.get("content"))}
        if calls := each.get("tool_calls"):
            message["tool_calls"] = [
                {**call, "function": {**call["function"], "arguments": _arguments(call["function"]["arguments"])}}
                for call in calls
            ]
        if answered := each.get("tool_call_id"):
            message["tool_call_id"] = answered
        made.append(message)
    return made


def tool_schemas(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """What may be called, as OpenAI writes it."""
    return [
        {
            "type": "function",
            "function": {"name": each.name, "description": each.description, "parameters": each.parameters},
        }
        for each in tools
    ]


def decode_image(data: bytes) -> Any:
    """A picture, opened."""
    from PIL import Image  # noqa: PLC0415  (text models need none)

    image = Image.open(io.BytesIO(data))
    return image.convert("RGB")


def _content(content: str | list[dict[str, Any]] | None) -> str | list[dict[str, Any]]:
    """Texts alone are one text, a line each, as servers of chat models join them."""
    if not isinstance(content, list):
        return content or ""
    if all(part["type"] == "text" for part in content):
        return "\n".join(part["text"] for part in content)
    return [
        {"type": "image", "image": _open(part["image_url"]["url"])} if part["type"] == "image_url" else part
        for part in content
    ]


def _open(url: str) -> Any:
    return decode_image(binascii.a2b_base64(url.partition(",")[2]))


def _arguments(text: str) -> object:
    """As an object, which templates encode themselves; what is none stays as it was written."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return text
