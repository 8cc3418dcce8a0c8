"""The scripted server: which answer comes when, what it refuses, what goes wrong on demand."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import aiohttp
import openai
import pytest

from deskroll.errors import ConfigError, InputError, ModelError
from deskroll.models import Message, ModelRefused, ToolResult, tool_results
from deskroll.models.scripted import FaultKind, Faults, Script, ScriptedServer
from deskroll.types import Completion
from tests.models.servers import QUESTION, TOOLS, client

PNG = b"\x89PNG\r\n\x1a\n"
SCRIPT = Script.parse(
    {
        "replies": [
            {
                "when": "compute",
                "turns": [
                    {"text": "let me see", "tools": [{"name": "calculator", "arguments": {"expressions": ["6*7"]}}]},
                    {"text": "42"},
                ],
            },
            {"when": {"regex": "^(translate|say) .* in French$"}, "turns": [{"text": "quarante-deux"}]},
            {"turns": [{"text": "done"}]},
        ]
    }
)


@pytest.mark.parametrize("name", ["s.json", "s.yaml"])
def test_a_wrong_field_is_one_mistake(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text('{"replies": [{"turns": [{"txt": "x"}]}]}')
    with pytest.raises(ConfigError) as caught:
        Script.load(file)
    (line,) = str(caught.value).splitlines()
    assert "replies.0.turns.0.txt: there is no such field; did you mean text?" in line


async def converse(model: object, opening: list[Message], turns: int) -> tuple[list[Completion], list[Message]]:
    """Go on until a turn calls no tool, answering each call."""
    conversation, completions = list(opening), []
    for _ in range(turns):
        completion = await model.complete([message.sent for message in conversation], TOOLS)  # type: ignore[attr-defined]
        completions.append(completion)
        conversation.append(Message.assistant(completion))
        if not completion.tool_calls:
            break
        conversation += tool_results([ToolResult(call_id=call.id, text="ok") for call in completion.tool_calls])
    return completions, conversation


async def test_the_conversation_decides_which_answer_comes() -> None:
    async with ScriptedServer(SCRIPT) as server, client(server.url) as model:

        async def say(*messages: Message) -> str:
            return (await model.complete([message.sent for message in messages])).text

        completions, conversation = await converse(model, [Message.user("please compute 6*7")], 5)
        assert [completion.text for completion in completions] == ["let me see", "42"]
        assert completions[0].tool_calls[0].arguments == '{"expressions":["6*7"]}'
        assert await say(*conversation, Message.user("again")) == "42", "the last turn repeats"
        assert await say(Message.system("you compute"), Message.user("hello")) == "let me see"
        assert await say(Message.user("say it in French")) == "quarante-deux"
        assert await say(Message.user("hello")) == "done"
        hello = [Message.user("hello"), Message.assistant(Completion(text="hi")), Message.user("compute")]
        assert await say(*hello) == "done", "only the first user message counts"


async def test_faults_of_the_injector_are_no_turns() -> None:
    faults = Faults(rate=0.8, kinds=(FaultKind.WRONG_TOOL, FaultKind.BAD_ARGUMENTS))
    script = Script(seed=2, faults=faults, replies=SCRIPT.replies)
    async with ScriptedServer(script) as server, client(server.url) as model:
        completions, _ = await converse(model, [Message.user("compute")], 50)
        made = server.stats.faults
    assert len(made) == 2, "both kinds came up"
    assert len(completions) == 2 + sum(made.values())
    texts = [each.text for each in completions if not each.tool_calls or "expressions" in each.tool_calls[0].arguments]
    assert completions[-1].text == texts[-1] == "42"


async def test_without_tools_no_tool_is_called() -> None:
    script = Script(faults=Faults(rate=1, kinds=(FaultKind.WRONG_TOOL,)), replies=Script.replying("fine").replies)
    async with ScriptedServer(script) as server, client(server.url) as model:
        assert (await model.complete(QUESTION)).tool_calls == ()
        assert server.stats.faults == {}


async def test_faults_may_be_for_some_conversations_alone() -> None:
    faults = {"rate": 1, "kinds": ["500"], "when": "compute"}
    script = Script.parse({"faults": faults, "replies": [{"turns": [{"text": "fine"}]}]})
    async with ScriptedServer(script) as server, client(server.url, retries=0) as model:
        assert (await model.complete([Message.user("hello").sent])).text == "fine"
        with pytest.raises(ModelError, match="500"):
            await model.complete([Message.user("compute").sent])


async def test_the_same_order_gives_the_same_faults() -> None:
    async def played(seed: int) -> list[tuple[str, int]]:
        script = Script(
            seed=seed, faults=Faults(rate=0.4, stall=0, retry_after=0), replies=Script.replying("fine").replies
        )
        async with ScriptedServer(script) as server, client(server.url, retries=50) as model:
            for _ in range(100):
                await model.complete(QUESTION, TOOLS)
            stats = server.stats
        share = sum(stats.faults.values()) / stats.requests
        assert 0.2 < share < 0.6
        assert set(stats.faults) == set(FaultKind)
        return sorted(stats.faults.items())

    assert await played(7) == await played(7)


async def test_a_conversation_that_no_reply_fits_is_refused() -> None:
    script = Script.parse({"replies": [{"when": "x", "turns": [{"text": "y"}]}]})
    async with ScriptedServer(script) as server, client(server.url) as model:
        with pytest.raises(ModelRefused, match="No reply of the script fits"):
            await model.complete(QUESTION)
        assert server.stats.refused == 1


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USER = {"role": "user", "content": "hi"}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWERED = {"role": "tool", "tool_call_id": "c1", "content": "ok"}


def image(url: str, role: str = "user") -> dict[str, object]:
    return {"role": role, "content": [{"type": "image_url", "image_url": {"url": url}}]}


GOOD_IMAGE = "data:image/png;base64," + base64.b64encode(PNG).decode()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "could not parse"),
        ({"messages": [USER]}, "`model`"),
        ({"model": "", "messages": [USER]}, "must provide a model"),
        ({"model": "m"}, "`messages`"),
        ({"model": "m", "messages": []}, "empty array"),
        ({"model": "m", "messages": [USER], "stream": True}, "does not stream"),
        ({"model": "m", "messages": [USER], "n": 2}, "one choice"),
        ({"model": "m", "messages": [USER], "tools": [{"type": "function"}]}, "`function`"),
        ({"model": "m", "messages": [USER], "tools": [{"type": "f", "function": {"name": "f"}}]}, "tools[0]"),
        ([{"role": "king", "content": "hi"}], "Invalid value: 'king'"),
        ([{"content": "hi"}], "`role`"),
        ([{"role": "user", "content": []}], "empty array"),
        ([{"role": "user", "content": None}], "got null"),
        ([{"role": "user"}], "got null"),
        ([{"role": "user", "content": 3}], "content"),
        ([{"role": "user", "content": [{"type": "audio"}]}], "'audio'"),
        ([{"role": "user", "content": [{"type": "text"}]}], "'text'"),
        ([USER, {"role": "assistant", "content": None}], "got null"),
        ([USER, {"role": "assistant", "content": "", "tool_calls": []}], "empty array"),
        ([USER, {"role": "assistant", "tool_calls": [{**CALL, "id": ""}]}], "Invalid tool call"),
        ([USER, {"role": "assistant", "tool_calls": [CALL, CALL]}, ANSWERED], "Duplicate"),
        ([{**USER, "tool_calls": [CALL]}], "Only messages with role 'assistant'"),
        ([USER, ANSWERED], "must be a response to a preceding message"),
        ([USER, CALLED, {**ANSWERED, "tool_call_id": "c2"}], "must be a response to a preceding message"),
        ([USER, CALLED, ANSWERED, ANSWERED], "must be a response to a preceding message"),
        ([USER, CALLED], "did not have response messages: c1"),
        ([USER, CALLED, USER], "did not have response messages: c1"),
        ([USER, CALLED, CALLED, ANSWERED], "did not have response messages: c1"),
        ([image("https://example.com/a.png")], "Invalid image URL"),
        ([image("screens/1.png")], "Invalid image URL"),
        ([image("data:image/png;base64,!!!!")], "Invalid base64"),
        ([image("data:image/png;base64,QUJ")], "Invalid base64"),
        ([image("data:image/png;base64,")], "it is empty"),
        ([image(GOOD_IMAGE, "system")], "only allowed in messages with role 'user'"),
    ],
)
async def test_it_is_as_strict_as_the_strictest(body: object, words: str) -> None:
    if isinstance(body, list):
        body = {"model": "m", "messages": body}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with (
        ScriptedServer(SCRIPT, keep_requests=True) as server,
        aiohttp.ClientSession() as session,
        session.post(f"{server.url}/chat/completions", data=data) as response,
    ):
        answer = await response.json()
        assert response.status == 400
        assert words in answer["error"]["message"]
        assert answer["error"]["type"] == "invalid_request_error"
        assert server.requests == [data]
        assert server.stats.refused == 1


async def test_what_is_right_passes() -> None:
    other = {**CALLED, "tool_calls": [{**CALL, "id": "c2"}, {**CALL, "id": "c3"}]}
    answers = [{**ANSWERED, "tool_call_id": "c3"}, {**ANSWERED, "tool_call_id": "c2"}]
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}]}, image(GOOD_IMAGE)]
    messages = [{"role": "system", "content": "s"}, USER, CALLED, ANSWERED, *parts, other, *answers]
    async with ScriptedServer(SCRIPT) as server, client(server.url) as model:
        assert (await model.complete([json.dumps(message).encode() for message in messages])).text == "done"


async def test_openais_own_client_gets_along_with_it() -> None:
    async with ScriptedServer(SCRIPT, token="sk-1") as server:
        async with openai.AsyncOpenAI(base_url=server.url, api_key="sk-1", max_retries=0) as sdk:
            answer = await sdk.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "compute"}], logprobs=True
            )
            listed = [each.id async for each in await sdk.models.list()]
            with pytest.raises(openai.BadRequestError, match="does not stream"):
                await sdk.chat.completions.create(model="m", messages=[], stream=True)
        async with openai.AsyncOpenAI(base_url=server.url, api_key="sk-2", max_retries=0) as sdk:
            with pytest.raises(openai.AuthenticationError, match="Incorrect API key"):
                await sdk.models.list()
    choice = answer.choices[0]
    assert choice.message.content == "let me see"
    assert choice.message.tool_calls
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert answer.usage is not None
    assert answer.usage.completion_tokens == len(choice.logprobs.content)
    assert "".join(token.token for token in choice.logprobs.content).startswith("let me see")
    assert listed == ["scripted"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/health", 200), ("GET", "/v1/models", 200), ("GET", "/v1/chat/completions", 405), ("POST", "/v1/x", 404)],
)
async def test_other_addresses(method: str, path: str, status: int) -> None:
    async with (
        ScriptedServer(SCRIPT) as server,
        aiohttp.ClientSession() as session,
        session.request(method, server.url.removesuffix("/v1") + path) as response,
    ):
        assert response.status == status
        assert await response.json()


async def test_where_it_serves() -> None:
    with pytest.raises(InputError, match="needs a token"):
        ScriptedServer(SCRIPT, listen="0.0.0.0:0")
    with pytest.raises(InputError, match="async with"):
        _ = ScriptedServer(SCRIPT).url
    async with ScriptedServer(SCRIPT) as server:
        port = int(server.url.removesuffix("/v1").rpartition(":")[2])
        with pytest.raises(InputError, match=f"cannot serve on 127.0.0.1:{port}"):
            async with ScriptedServer(SCRIPT, listen=f"127.0.0.1:{port}"):
                pass


async def test_latency_and_many_at_a_time() -> None:
    script = Script(latency=(0.1, 0.3), replies=Script.replying("fine").replies)
    loop = asyncio.get_running_loop()
    async with ScriptedServer(script) as server, client(server.url) as model:
        began = loop.time()
        completions = await asyncio.gather(*(model.complete(QUESTION) for _ in range(200)))
        took = loop.time() - began
        assert server.stats.requests == 200
        assert server.stats.in_flight == 0
    assert {completion.text for completion in completions} == {"fine"}
    assert 0.1 < took < 20, "side by side: one after the other would take 40 s"
