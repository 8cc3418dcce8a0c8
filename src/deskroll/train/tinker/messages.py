"""Tokens: an agent's request as tinker's renderer writes it, and what was sampled as an answer. Pickled by its names.

Guarantee: the ids of an answer are those that were sampled, as they came; what the renderer reads in them is beside
them, and a call that it cannot read goes to the agent as it was written, which answers it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import tinker
from tinker_cookbook.image_processing_utils import get_image_processor
from tinker_cookbook.renderers import ToolCall, get_renderer, get_text_content
from tinker_cookbook.tokenizer_utils import get_tokenizer

from deskroll.models.handed import HandedRequest
from deskroll.types import Completion, ToolRequest


@dataclass(frozen=True)
class Tokens:
    """How conversations of one model become tokens, and tokens answers."""

    model: str
    """Whose tokenizer it is, as tinker calls the model; a folder that holds one."""
    renderer: str
    """The name of tinker's renderer."""
    images: bool = False
    """Whether the model is shown pictures: its own image processor counts their tokens."""

    @cached_property
    def _made(self) -> Any:
        images = get_image_processor(self.model) if self.images else None
        return get_renderer(self.renderer, get_tokenizer(self.model), images, model_name=self.model)

    def __getstate__(self) -> dict[str, object]:
        """Without the renderer, which is made anew where it is needed."""
        return {"model": self.model, "renderer": self.renderer, "images": self.images}

    @property
    def stop(self) -> list[str] | list[int]:
        """What ends an answer."""
        found: list[str] | list[int] = self._made.get_stop_sequences()
        return found

    def prompt(self, request: HandedRequest) -> tinker.ModelInput:
        """What the model is given."""
        messages = read_messages(request.messages)
        if request.tools:
            first = messages.pop(0)["content"] if messages and messages[0]["role"] == "system" else ""
            specs = [
                {"name": each.name, "description": each.description, "parameters": each.parameters}
                for each in request.tools
            ]
            messages = [*self._made.create_conversation_prefix_with_tools(specs, first), *messages]
        return self._made.build_generation_prompt(messages)

    def answer(self, prompt: tinker.ModelInput, sampled: Sequence[int], *, cut_off: bool) -> Completion:
        """What was sampled for that prompt; `cut_off`: at the limit of tokens."""
        message, _ = self._made.parse_response(list(sampled))
        content = message["content"]
        parts = content if isinstance(content, list) else []
        whole = all(isinstance(chunk, tinker.EncodedTextChunk) for chunk in prompt.chunks)
        return Completion(
            text=get_text_content(message),
            reasoning="".join(part["thinking"] for part in parts if part["type"] == "thinking"),
            tool_calls=_calls(message),
            finish_reason="length" if cut_off else "stop",
            prompt_tokens=prompt.length,
            completion_tokens=len(sampled),
            prompt_token_ids=tuple(prompt.to_ints()) if whole else None,
            token_ids=tuple(sampled),
            model=self.model,
        )


def _calls(message: Mapping[str, Any]) -> tuple[ToolRequest, ...]:
    read = [
        ToolRequest(id=call.id or f"call_{number}", name=call.function.name, arguments=call.function.arguments)
        for number, call in enumerate(message.get("tool_calls") or ())
    ]
    wrong = [
        ToolRequest(id=f"call_{number}", name="", arguments=call.raw_text)
        for number, call in enumerate(message.get("unparsed_tool_calls") or (), len(read))
    ]
    return (*read, *wrong)


def read_messages(sent: Sequence[bytes]) -> list[dict[str, Any]]:
    """Messages as OpenAI writes them, in tinker's form."""
    names: dict[str, str] = {}
    made = []
    for each in map(msgspec.json.decode, sent):
        message: dict[str, Any] = {"role": each["role"], "content": _content(each.get("content"))}
        if calls := each.get("tool_calls"):
            names |= {call["id"]: call["function"]["name"] for call in calls}
            _add_calls(message, calls)
        if answered := each.get("tool_call_id"):
            message |= {"tool_call_id": answered, "name": names.get(answered, "")}
        made.append(message)
    return made


def _add_calls(message: dict[str, Any], calls: Sequence[Mapping[str, Any]]) -> None:
    """What is no call to a renderer, for it is no JSON, stands in the text, as the model wrote it."""
    read = []
    for call in calls:
        try:
            msgspec.json.decode(call["function"]["arguments"], type=dict[str, Any])
        except msgspec.MsgspecError:
            message["content"] = f"{message['content']}{call['function']['arguments']}"
        else:
            function = ToolCall.FunctionBody(**call["function"])
            read.append(ToolCall(id=call["id"], function=function))
    if read:
        message["tool_calls"] = read


def _content(content: str | list[dict[str, Any]] | None) -> str | list[dict[str, Any]]:
    """Texts alone are one text, a line each, as servers of chat models join them."""
    if not isinstance(content, list):
        return content or ""
    if all(part["type"] == "text" for part in content):
        return "\n".join(part["text"] for part in content)
    return [
        {"type": "image", "image": part["image_url"]["url"]} if part["type"] == "image_url" else part
        for part in content
    ]
