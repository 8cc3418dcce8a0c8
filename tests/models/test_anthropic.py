"""The Messages API: what is asked, what is made of the answers, and how it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deskroll.errors import ConfigError, ModelError
from deskroll.models.anthropic import ANTHROPIC, AnthropicModel, translated
from deskroll.models.base import ContextTooLong, ModelForbidden
from deskroll.models.messages import Message
from deskroll.models.settings import ModelSettings
from deskroll.types import Completion, ToolRequest
from tests.agents.talk import png
from tests.models.servers import Noted, canned, http

KEY = "sk-ant-test-1234"
QUESTION = [Message.system("Be brief.").sent, Message.user("hello").sent]
FUNCTION = b'[{"type":"function","function":{"name":"tap","description":"Tap.","parameters":{"type":"object"}}}]'
TOOLSET = b'[{"type":"computer_toolset_20260801"}]'


def said(*blocks: dict[str, Any], stop: str = "end_turn", **fields: Any) -> bytes:
    usage = {"input_tokens": 100, "output_tokens": 10}
    return http({
        "type": "message", "role": "assistant", "content": list(blocks), "stop_reason": stop, "usage": usage,
        "model": "claude-test-1", **fields,
    })  # fmt: skip


def refused(status: int, kind: str, message: str, **headers: str) -> bytes:
    return http({"type": "error", "error": {"type": kind, "message": message}}, status, **headers)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


FINE = said(text("fine"))


def client(url: str, sink: Noted | None = None, **fields: Any) -> AnthropicModel:
    settings = {"name": "claude-test", "base_url": url, "backoff": 0.001, "timeout": 30, **fields}
    return AnthropicModel(ModelSettings.model_validate(settings), sink=sink, env={"ANTHROPIC_API_KEY": KEY})


async def test_a_request_is_as_the_api_wants_it() -> None:
    async with canned(FINE) as server, client(server.url, temperature=0.5, extra={"top_k": 3}) as model:
        completion = await model.complete(QUESTION, FUNCTION)
        assert completion.text == "fine"
        head, body = server.heads[0], json.loads(server.bodies[0])
    assert head.startswith("POST /v1/messages HTTP/1.1")
    assert f"x-api-key: {KEY}" in head
    assert "anthropic-version: 2023-06-01" in head
    assert "Authorization" not in head
    assert "anthropic-beta" not in head
    assert body == {
        "model": "claude-test",
        "max_tokens": 8192,
        "temperature": 0.5,
        "top_k": 3,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": [text("hello")]}],
        "tools": [{"name": "tap", "description": "Tap.", "input_schema": {"type": "object"}}],
    }


@pytest.mark.parametrize(
    ("tool", "beta"),
    [
        ("computer_20251124", "computer-use-2025-11-24"),
        ("computer_20250124", "computer-use-2025-01-24"),
        ("computer_toolset_20260801", None),
    ],
)
async def test_the_beta_header_follows_from_the_tool(tool: str, beta: str | None) -> None:
    async with canned(FINE) as server, client(server.url) as model:
        await model.complete(QUESTION, json.dumps([{"type": tool}]).encode())
        assert (f"anthropic-beta: {beta}\r\n" in server.heads[0]) is (beta is not None)
        assert ("anthropic-beta" in server.heads[0]) is (beta is not None)


async def test_an_answer_is_read() -> None:
    answer = said(
        {"type": "thinking", "thinking": "let me see", "signature": "x"},
        text("I click. "),
        {
            "type": "tool_use",
            "id": "toolu_1",
            "name": "computer",
            "input": {"action": "left_click", "coordinate": [1, 2]},
        },
        {"type": "something_new", "text": 5},
        stop="tool_use",
        usage={"input_tokens": 5, "output_tokens": 7, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 5},
    )
    price = {"input": 10, "output": 100, "cached_input": 1}
    async with canned(answer) as server, client(server.url, price=price) as model:
        completion = await model.complete(QUESTION)
    assert completion.text == "I click. "
    assert completion.reasoning == "let me see"
    (call,) = completion.tool_calls
    assert (call.id, call.name, json.loads(call.arguments)) == (
        "toolu_1",
        "computer",
        {"action": "left_click", "coordinate": [1, 2]},
    )
    assert (completion.finish_reason, completion.model) == ("tool_calls", "claude-test-1")
    assert (completion.prompt_tokens, completion.completion_tokens) == (100, 7)
    assert completion.cost_usd == pytest.approx((10 * 10 + 90 * 1 + 7 * 100) / 1e6)


@pytest.mark.parametrize(("stop", "reason"), [("end_turn", "stop"), ("max_tokens", "length"), ("refusal", "refusal")])
async def test_why_it_stopped_is_said_in_our_words(stop: str, reason: str) -> None:
    async with canned(said(text("x"), stop=stop)) as server, client(server.url) as model:
        assert (await model.complete(QUESTION)).finish_reason == reason


@pytest.mark.parametrize(
    "answer",
    [
        refused(529, "overloaded_error", "Overloaded"),
        refused(429, "rate_limit_error", "slow down", retry_after="0"),
        refused(500, "api_error", "Internal server error"),
        http(b"<html>"),
        http({"type": "message"}),
        http({"content": 5}),
        http(b'{"content":[{"type":"tool_use","id":"a","name":"computer","input":{"text":"\xff"}}]}'),
    ],
    ids=["overloaded", "rate limit", "internal", "no JSON", "no content", "content of another kind", "a bad byte"],
)
async def test_what_may_pass_is_asked_again(answer: bytes) -> None:
    sink = Noted()
    async with canned(answer, FINE) as server, client(server.url, sink) as model:
        assert (await model.complete(QUESTION)).tries == 2
    assert sink.kinds() == ["model.retried"]


async def test_what_is_refused_for_good_is_not() -> None:
    wrong_key = refused(401, "authentication_error", f"invalid x-api-key {KEY}")
    async with canned(wrong_key) as server, client(server.url) as model:
        with pytest.raises(
            ModelForbidden, match=r"the key is not accepted: set api_key, or \$ANTHROPIC_API_KEY"
        ) as caught:
            await model.complete(QUESTION)
        assert KEY not in str(caught.value)
        assert len(server.heads) == 1
    long = refused(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")
    async with canned(long) as server, client(server.url) as model:
        with pytest.raises(ContextTooLong):
            await model.complete(QUESTION)


async def test_who_is_not_there_is_named_with_its_own_variable() -> None:
    async with client("http://127.0.0.1:9/v1", retries=0) as model:
        with pytest.raises(ModelError, match="is the server up"):
            await model.complete(QUESTION)
    assert "set ANTHROPIC_BASE_URL (or model.base_url, --base-url)" in AnthropicModel.how_to_reach("model")


def test_address_and_key_come_from_variables_of_its_own() -> None:
    env = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": "other", "OPENAI_BASE_URL": "http://elsewhere/v1"}
    assert AnthropicModel(ModelSettings(), env=env).shown == "https://api.anthropic.com/v1"
    endpoint = ModelSettings().resolved(env, ANTHROPIC)
    assert endpoint.key is not None
    assert endpoint.key.get_secret_value() == KEY
    with pytest.raises(ConfigError, match=r"\$ANTHROPIC_API_KEY"):
        ModelSettings().resolved({"ANTHROPIC_API_KEY": "k\u00e9y"}, ANTHROPIC)


# --- conversations ---------------------------------------------------------------------------------------


def call(call_id: str, name: str, arguments: str = "{}") -> ToolRequest:
    return ToolRequest(id=call_id, name=name, arguments=arguments)


def test_a_conversation_is_put_into_blocks() -> None:
    calls = (call("a", "left_click", '{"coordinate": [1, 2]}'), call("b", "tap", '{"n": '))
    messages = [
        Message.system("One."), Message.system("Two."),
        Message.user("Do it.", [("screens/1.png", png(1))]),
        Message.assistant(Completion(text="", tool_calls=calls)),
        Message.tool("a", "done"),
        Message.tool("b", "error: no JSON", [("screens/2.png", png(2))]),
        Message.user("and now?"),
        Message.assistant(Completion(text="done")),
    ]  # fmt: skip
    system, turns = translated([each.sent for each in messages], toolset=True)
    assert system == "One.\n\nTwo."
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user", "assistant"]
    image = turns[0]["content"][1]
    assert image["source"]["media_type"] == "image/png"
    assert turns[1]["content"] == [
        {
            "type": "tool_use",
            "id": "a",
            "name": "left_click",
            "input": {"coordinate": [1, 2]},
            "toolset_name": "computer",
        },
        {"type": "tool_use", "id": "b", "name": "tap", "input": {}},
    ]
    first, second, words = turns[2]["content"]
    assert first == {"type": "tool_result", "tool_use_id": "a", "content": [text("done")], "toolset_name": "computer"}
    assert second["is_error"] is True
    assert [each["type"] for each in second["content"]] == ["text", "image"]
    assert words == text("and now?")


def test_blank_texts_are_left_out() -> None:
    messages = [Message.user("hi"), Message.assistant(Completion(text=" \n")), Message.user("hello?")]
    _, turns = translated([each.sent for each in messages])
    assert turns == [{"role": "user", "content": [text("hi"), text("hello?")]}]


def test_withheld_images_are_words() -> None:
    _, (turn,) = translated([Message.user("see", [("screens/1.png", png(1))]).lean])
    assert turn["content"] == [text("see"), text("[image withheld]")]


async def test_members_of_the_toolset_name_it_only_where_it_is_offered() -> None:
    talk = [Message.user("x").sent, Message.assistant(Completion(tool_calls=(call("a", "wait"),))).sent,
            Message.tool("a", "ok").sent]  # fmt: skip
    async with canned(FINE) as server, client(server.url) as model:
        await model.complete(talk, TOOLSET)
        await model.complete(talk, FUNCTION)
        with_it, without = (body.decode().count('"toolset_name":"computer"') for body in server.bodies)
    assert (with_it, without) == (2, 0)


async def test_the_list_of_models_is_checked_like_any_other() -> None:
    async with canned(http({"data": [{"id": "claude-test"}]})) as server, client(server.url) as model:
        assert await model.check() == ("claude-test",)
        assert f"x-api-key: {KEY}" in server.heads[0]
