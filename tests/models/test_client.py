"""ModelClient against the scripted server and against servers that answer with any bytes."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from email.utils import formatdate

import pytest
from yarl import URL

from deskroll.errors import FailureClass, ModelError
from deskroll.models import ContextTooLong, Message, ModelRefused
from deskroll.models.base import ModelForbidden, episode_clock
from deskroll.models.scripted import FaultKind, Faults, Script, ScriptedServer, ToolUse, Turn
from deskroll.types import Failure
from tests.models.servers import QUESTION, TOOLS, Noted, canned, client, http, said
from tests.waiting import eventually

PNG = b"\x89PNG\r\n\x1a\n"
KEY = "sk-very-secret-0123456789"


def faulty(*kinds: FaultKind, rate: float = 1.0, **faults: float) -> Script:
    reply = Script.replying(Turn(text="see", tools=(ToolUse(name="calculator"),))).replies
    return Script(seed=5, faults=Faults(rate=rate, kinds=kinds, **faults), replies=reply)


# --- what is sent, and what comes back -------------------------------------------------------------------


async def test_an_answer_with_everything() -> None:
    turn = Turn(text="let me see", tools=(ToolUse(name="calculator", arguments='{"a": 1}'),), reasoning="hm")
    async with ScriptedServer(Script.replying(turn)) as server, client(server.url, name="m-1") as model:
        completion = await model.complete(QUESTION, TOOLS)
    assert completion.text == "let me see"
    assert completion.reasoning == "hm"
    assert [(call.name, call.arguments) for call in completion.tool_calls] == [("calculator", '{"a": 1}')]
    assert completion.finish_reason == "tool_calls"
    assert (completion.prompt_tokens, completion.completion_tokens) == (2, 3 + 3 + 2)
    assert completion.model == "m-1"
    assert completion.fingerprint.startswith("scripted-")
    assert completion.version == "", "a fingerprint is of the configuration, and no version of weights"
    assert completion.tries == 1
    assert completion.cost_usd is None, "a server of one's own has no list price"
    assert completion.token_ids is None
    assert completion.logprobs is None


async def test_what_is_not_set_is_not_sent() -> None:
    async with ScriptedServer(Script.replying("fine"), keep_requests=True) as server:
        async with client(server.url, name="m") as model:
            await model.complete(QUESTION)
        given = {"temperature": 0, "top_p": 0.5, "max_tokens": 9, "seed": 4, "extra": {"top_k": 3, "seed": 5}}
        async with client(server.url, name="m", **given) as model:
            await model.complete(QUESTION, TOOLS)
        bare, full = map(json.loads, server.requests)
    assert bare == {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    assert full.pop("tools") == json.loads(TOOLS)
    assert full == {**bare, "temperature": 0, "top_p": 0.5, "max_tokens": 9, "seed": 5, "top_k": 3}


async def test_messages_arrive_to_the_byte_however_large() -> None:
    screens = [Message.user(f"look {n}", [(f"screens/{n}.png", PNG + bytes([n]) * 400_000)]) for n in range(5)]
    messages = [Message.system("be brief").sent, *(screen.sent for screen in screens)]
    async with ScriptedServer(Script.replying("fine"), keep_requests=True) as server, client(server.url) as model:
        await model.complete(messages)
        assert len(server.requests[0]) > 2_000_000
        assert b'"messages":[' + b",".join(messages) + b"]}" in server.requests[0]


async def test_token_ids_and_logprobs() -> None:
    turns = Turn(text="first answer", tools=(ToolUse(name="calculator"),)), Turn(text="second")
    async with (
        ScriptedServer(Script.replying(*turns)) as server,
        client(server.url, logprobs=True, return_token_ids=True) as model,
    ):
        first = await model.complete(QUESTION, TOOLS)
        asked = [*QUESTION, Message.assistant(first).sent, Message.tool(first.tool_calls[0].id, "42").sent]
        second = await model.complete(asked, TOOLS)
    for completion in (first, second):
        assert completion.token_ids is not None
        assert completion.prompt_token_ids is not None
        assert completion.logprobs is not None
        assert len(completion.token_ids) == len(completion.logprobs) == completion.completion_tokens
        assert len(completion.prompt_token_ids) == completion.prompt_tokens
        assert all(logprob < 0 for logprob in completion.logprobs)
    assert first.prompt_token_ids is not None
    assert second.prompt_token_ids is not None
    history = (*first.prompt_token_ids, *(first.token_ids or ()))
    assert second.prompt_token_ids[: len(history)] == history


async def test_servers_differ_in_what_they_answer() -> None:
    call = {"function": {"name": "f", "arguments": {"a": [1]}}}
    message = {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "tool_calls": [call]}
    odd = said(
        choices=[{"message": {**message, "reasoning": "because"}, "logprobs": {"content": None}, "unheard": {"of": 1}}],
        usage=None, model=None, service_tier="x",
    )  # fmt: skip
    async with canned(http(odd, x_model_version="step-7")) as server, client(server.url, name="m") as model:
        completion = await model.complete(QUESTION)
    assert completion.text == "ab"
    assert completion.reasoning == "because"
    assert completion.tool_calls[0].arguments == '{"a":[1]}'
    assert completion.tool_calls[0].id, "without an id it could not be answered"
    assert (completion.model, completion.version, completion.prompt_tokens) == ("m", "step-7", 0)


async def test_cost_with_cached_tokens() -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 400}}
    price = {"input": 2, "output": 8, "cached_input": 0.5}
    answers = http(said(usage=usage)), http(said(usage=None))
    async with canned(*answers) as server, client(server.url, price=price) as model:
        assert (await model.complete(QUESTION)).cost_usd == pytest.approx((600 * 2 + 400 * 0.5 + 800) / 1e6)
        assert (await model.complete(QUESTION)).cost_usd is None, "no usage, no cost"


# --- what goes wrong and is tried again ------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [FaultKind.TOO_MANY, FaultKind.BROKEN, FaultKind.HALF_BODY, FaultKind.INVALID_JSON, FaultKind.RESET]
)
async def test_faults_are_overcome(kind: FaultKind) -> None:
    sink = Noted()
    script = faulty(kind, rate=0.5, retry_after=0.001)
    async with ScriptedServer(script) as server, client(server.url, sink, retries=20) as model:
        completions = [await model.complete(QUESTION, TOOLS) for _ in range(10)]
        faults = server.stats.faults[kind]
        assert server.stats.requests == sum(each.tries for each in completions) == 10 + faults
        load = model.loads()[0]
    assert faults > 0
    assert {each.text for each in completions} == {"see"}
    assert sink.kinds() == ["model.retried"] * faults
    assert (load.calls, load.failures, load.in_flight) == (10 + faults, faults, 0)


async def test_a_stall_is_timed_out_and_overcome() -> None:
    script = faulty(FaultKind.STALL, rate=0.5, stall=600)
    async with ScriptedServer(script) as server, client(server.url, timeout=0.3, retries=20) as model:
        for _ in range(3):
            assert (await model.complete(QUESTION, TOOLS)).text == "see"
        assert server.stats.faults[FaultKind.STALL] > 0
        assert model.loads()[0].last_error == "no complete answer within 0.3 s"


async def test_what_the_model_itself_gets_wrong_is_not_tried_again() -> None:
    async with ScriptedServer(faulty(FaultKind.WRONG_TOOL)) as server, client(server.url) as model:
        completion = await model.complete(QUESTION, TOOLS)
        assert completion.tool_calls[0].name.startswith("no_such_tool_")
        assert completion.tries == 1
    async with ScriptedServer(faulty(FaultKind.BAD_ARGUMENTS)) as server, client(server.url) as model:
        call = (await model.complete(QUESTION, TOOLS)).tool_calls[0]
        assert call.name == "calculator"
        with pytest.raises(json.JSONDecodeError):
            json.loads(call.arguments)


GOOD = http(said())
HALF = http(said(), length=1000)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (HALF, "broke off"),
        (b"", "closed the connection without an answer"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "connection failed"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"choices\": [", "not valid JSON"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"cho\r\n", "broke off"),
        (http(b"\xff\xfe{}"), "not valid JSON"),
        (http(b"[]"), "not a chat completion"),
        (http({"choices": []}), "no choices"),
        (http({"choices": [{"message": None}]}), "no choices"),
        (http({"error": {"message": "upstream is down"}}), "upstream is down"),
        (http({"choices": "none"}), "not a chat completion"),
        (http(b"<html>bad gateway</html>", 502), "status 502: <html>bad gateway</html>"),
        (http({"detail": "not yet"}, 503), "status 503: not yet"),
        (http({"error": "slow down"}, 429), "status 429: slow down"),
        (http({}, 408), "status 408"),
        (http({}, 409), "status 409"),
        (http({}, 425), "status 425"),
    ],
)  # fmt: skip
async def test_broken_answers_are_tried_again(bad: bytes, reason: str) -> None:
    sink = Noted()
    async with canned(bad, GOOD) as server, client(server.url, sink) as model:
        completion = await model.complete(QUESTION)
    assert (completion.text, completion.tries) == ("fine", 2)
    assert sink.kinds() == ["model.retried"]
    assert reason in sink.troubles()[0].reason


async def test_when_retries_are_used_up() -> None:
    sink = Noted()
    async with canned(http({"error": {"message": "on\x1b[31m fire"}}, 500)) as server:
        async with client(f"{server.url}?api-version=secret", sink, name="m", retries=2) as model:
            with pytest.raises(ModelError) as caught:
                await model.complete(QUESTION)
        assert server.heads[0].startswith("POST /v1/chat/completions?api-version=secret ")
        assert len(server.heads) == 3
        message = str(caught.value)
        assert f"model m at {server.url}: asked 3 times" in message
        assert "status 500: on [31m fire" in message
        assert "secret" not in message
    assert not isinstance(caught.value, ModelRefused)
    assert Failure.of(caught.value).failure_class is FailureClass.MODEL
    assert sink.kinds() == ["model.retried", "model.retried", "model.failed"]
    assert sink.events[-1].endpoint == server.url


async def test_no_server() -> None:
    async with canned(GOOD) as server:
        url = server.url
    async with client(url, retries=1) as model:
        with pytest.raises(ModelError, match=r"no connection: Connection refused \(is the server up"):
            await model.complete(QUESTION)
        with pytest.raises(ModelError, match="is the server up"):
            await model.check()


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"Retry_After": "2"}, 2, 2.5),
        ({"retry_after_ms": "1500", "Retry_After": "20"}, 1.5, 1.9),
        ({"Retry_After": "3600"}, 1200, 1200),
        ({"Retry_After": "DATE"}, 900, 1200),
        # By the server's clock, where it says what that shows: ours, or its own, may be wrong by years.
        ({"Date": "Thu, 01 Jan 1970 00:00:00 GMT", "Retry_After": "Thu, 01 Jan 1970 00:15:00 GMT"}, 900, 1200),
        ({"Retry_After": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0, 0.001),
        ({"Retry_After": "nan"}, 0, 0.001),
        ({"Retry_After": "soon"}, 0, 0.001),
        ({"Retry_After": "-5"}, 0, 0.001),
        ({}, 0, 0.001),
    ],
)
async def test_retry_after(headers: dict[str, str], least: float, most: float) -> None:
    sink = Noted()
    given = {name: formatdate(time.time() + 1000, usegmt=True) if v == "DATE" else v for name, v in headers.items()}
    async with canned(http({}, 429, **given)) as server, client(server.url, sink, backoff_max=1200) as model:
        call = asyncio.create_task(model.complete(QUESTION))

        async def paused() -> list[float]:
            return sink.pauses()

        first = (await eventually(paused, "it waits"))[0]
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    assert least <= first <= most


# --- what is refused for good ----------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 413, 422])
async def test_a_refusal_is_final(status: int) -> None:
    sink = Noted()
    async with canned(http({"error": {"message": "no, thanks"}}, status)) as server:
        async with client(server.url, sink) as model:
            with pytest.raises(ModelRefused, match=f"refused: status {status}: no, thanks") as caught:
                await model.complete(QUESTION)
        assert len(server.heads) == 1
    assert caught.value.status == status
    assert caught.value.failure is FailureClass.MODEL
    assert sink.kinds() == ["model.failed"]


async def test_an_address_without_a_path_may_lack_one() -> None:
    async with canned(http({"error": {"message": "no such page"}}, 404)) as server:
        bare = str(URL(server.url).origin())
        async with client(bare) as model:
            with pytest.raises(ModelRefused, match=rf"base_url has no path; most servers want one: {bare}/v1\?"):
                await model.complete(QUESTION)
        async with client(f"{bare}/v2") as model:
            with pytest.raises(ModelRefused, match="are the model's name and base_url right"):
                await model.complete(QUESTION)


async def test_a_403_may_be_about_this_request_alone() -> None:
    answers = http({"error": {"message": "it was flagged"}}, 403), GOOD
    async with canned(*answers) as server, client(server.url, api_key=KEY) as model:
        with pytest.raises(ModelRefused, match=r"flagged \(if every request is refused, check the key") as caught:
            await model.complete(QUESTION)
        assert not isinstance(caught.value, ModelForbidden)
        assert (await model.complete(QUESTION)).text == "fine"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (429, {"message": "You exceeded your current quota", "code": "insufficient_quota"}),
        (429, {"message": "You exceeded your current quota", "code": "429", "type": "insufficient_quota"}),
        (429, {"message": "check your account", "type": "exceeded_current_quota_error"}),
        (402, {"message": "Insufficient Balance", "code": "invalid_request_error"}),
        (402, {}),
        (403, {"message": "not now", "code": "billing_not_active"}),
        (400, {"message": "Your credit balance is too low to access the API", "type": "invalid_request_error"}),
    ],
)
async def test_a_refusal_about_money_is_final_for_everybody(status: int, error: dict[str, str]) -> None:
    async with canned(http({"error": error}, status)) as server, client(server.url) as model:
        with pytest.raises(ModelForbidden, match="no quota left: asking again does not help"):
            await model.complete(QUESTION)
        assert len(server.heads) == 1


async def test_a_refusal_about_pace_is_asked_again() -> None:
    """Some servers call their requests a minute a quota, too."""
    error = {"message": "You exceeded your current quota. Please retry in 1 s", "code": "rate_limit_exceeded"}
    async with canned(http({"error": error}, 429), GOOD) as server, client(server.url) as model:
        assert (await model.complete(QUESTION)).text == "fine"


@pytest.mark.parametrize(
    "error",
    [
        {"message": "too much", "code": "context_length_exceeded"},
        {"message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."},
        {"message": "The decoder prompt (length 9000) is longer than the maximum model length of 8192."},
        {"message": "The input (5000 tokens) is longer than the model's context length (4096 tokens)."},
        {"message": "prompt is too long: 210000 tokens > 200000 maximum"},
        {"message": "max_tokens must be at least 1, got -904."},
        {"message": "the request exceeds the available context size", "type": "exceed_context_size_error"},
    ],
)
async def test_too_long_a_context_is_the_agents_doing(error: dict[str, str]) -> None:
    async with canned(http({"error": error}, 400)) as server, client(server.url) as model:
        with pytest.raises(ContextTooLong) as caught:
            await model.complete(QUESTION)
    assert caught.value.failure is FailureClass.AGENT
    assert caught.value.status == 400


async def test_redirects_are_not_followed() -> None:
    async with canned(GOOD) as other, canned(http({}, 307, Location=f"{other.url}/chat/completions")) as server:
        async with client(server.url, api_key=KEY) as model:
            with pytest.raises(ModelRefused, match="redirects are not followed"):
                await model.complete(QUESTION)
        assert other.heads == []


async def test_answers_are_bounded() -> None:
    async with canned(http(said("x" * 300_000))) as server, client(server.url, max_answer_mb=0.1) as model:
        with pytest.raises(ModelError, match=r"more than 0\.1 MB"):
            await model.complete(QUESTION)
        assert len(server.heads) == 1
    bomb = http(b"\x1f\x8b" + bytes(100), Content_Encoding="gzip")
    async with canned(bomb) as server, client(server.url, retries=0) as model:
        with pytest.raises(ModelError, match="not valid JSON"):
            await model.complete(QUESTION)


# --- many at a time, and giving up -----------------------------------------------------------------------


async def test_cancelling_leaves_nothing_behind() -> None:
    script = faulty(FaultKind.STALL, stall=600)
    async with ScriptedServer(script) as server, client(server.url) as model:
        calls = [asyncio.create_task(model.complete(QUESTION, TOOLS)) for _ in range(5)]

        async def arrived() -> bool:
            return server.stats.in_flight == 5

        await eventually(arrived, "all are under way")
        load = model.loads()[0]
        assert load.in_flight == 5
        assert load.oldest_s > 0
        assert load.since_answer_s is None
        for call in calls:
            call.cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        assert model.loads()[0].in_flight == 0

        async def gone() -> bool:
            return server.stats.in_flight == 0

        await eventually(gone, "the server has seen all of them go")


async def test_the_limit_on_requests_holds_and_waiting_costs_no_time() -> None:
    script = Script(latency=(0.2, 0.2), replies=Script.replying("fine").replies)
    peak = 0
    async with ScriptedServer(script) as server, client(server.url, max_in_flight=2, timeout=6, retries=0) as model:
        calls = asyncio.gather(*(model.complete(QUESTION) for _ in range(80)))
        while not calls.done():
            peak = max(peak, server.stats.in_flight)
            await asyncio.wait([calls], timeout=0.01)
        assert [completion.text for completion in await calls] == ["fine"] * 80, "though the last waited for 7.8 s"
        assert model.loads()[0].since_answer_s is not None
    assert peak == 2


async def test_a_client_that_is_not_open_says_so() -> None:
    with pytest.raises(ModelError, match="async with"):
        await client("http://127.0.0.1:9/v1").complete(QUESTION)


# --- looking before a run --------------------------------------------------------------------------------


async def test_check() -> None:
    async with ScriptedServer(Script.replying("fine"), token=KEY) as server:
        async with client(server.url, api_key=KEY) as model:
            assert await model.check() == ("scripted",)
        async with client(server.url, api_key="sk-wrong") as model:
            with pytest.raises(ModelRefused, match="the key is not accepted") as caught:
                await model.check()
            assert caught.value.status == 401
        async with client(server.url) as model:
            with pytest.raises(ModelRefused, match=r"no key is set: set api_key, or \$OPENAI_API_KEY"):
                await model.check()


@pytest.mark.parametrize("answer", [http({}, 404), http({}, 405), http(b"hello"), http({"data": "?"})])
async def test_servers_without_a_list_of_models_are_fine(answer: bytes) -> None:
    async with canned(answer) as server, client(server.url) as model:
        assert await model.check() == ()


async def test_check_finds_a_sick_server() -> None:
    async with canned(http({}, 503)) as server, client(server.url) as model:
        with pytest.raises(ModelError, match="status 503"):
            await model.check()


@dataclass
class Clock:
    """The clock of an episode, which adds up what does not count."""

    waits: int = 0
    uncounted: float = 0.0

    @contextmanager
    def paused(self) -> Iterator[None]:
        begun = time.monotonic()
        self.waits += 1
        try:
            yield
        finally:
            self.uncounted += time.monotonic() - begun

    def asking(self) -> AbstractContextManager[None]:
        return nullcontext()

    def credit(self, seconds: float) -> None:
        self.uncounted += seconds


async def test_no_second_is_left_out_of_an_episodes_time_twice() -> None:
    """Of a try that failed, the wait for a slot is left out once."""
    let_go = asyncio.Event()

    async def fail(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await let_go.wait()
        writer.write(http({}, 500))
        await writer.drain()
        writer.close()

    async def ask(clock: Clock | None) -> float:
        episode_clock.set(clock)
        begun = time.monotonic()
        with pytest.raises(ModelError):
            await model.complete(QUESTION)
        return time.monotonic() - begun

    clock = Clock()

    async def waiting() -> bool:
        return clock.waits == 1

    async with await asyncio.start_server(fail, "127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
        async with client(url, max_in_flight=1, retries=0) as model:
            first = asyncio.create_task(ask(None))
            second = asyncio.create_task(ask(clock))
            await eventually(waiting, "it waits for the slot")
            let_go.set()
            await first
            passed = await second
    assert 0 < clock.uncounted <= passed


# --- where it goes, and what stays secret ----------------------------------------------------------------


async def test_the_key_is_sent_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    sink = Noted()
    parrot = {"error": {"message": "x" * 490 + f"your key {KEY} is bad"}}
    echo = {"error": {"message": f"your key {KEY} is bad"}}
    answers = [http(echo, 500), http(echo), http(f"what is {KEY}".encode(), 502), http(parrot, 500), http(echo, 401)]
    async with canned(*answers) as server, client(server.url, sink, api_key=KEY) as model:
        with pytest.raises(ModelRefused) as caught:
            await model.complete(QUESTION)
        assert f"Authorization: Bearer {KEY}" in server.heads[0]
        shown = [str(caught.value), repr(caught.value), repr(model.loads()[0]), repr(sink.events), caplog.text]
        shown += [repr(model.settings), str(model.settings.model_dump()), model.settings.model_dump_json()]
        shown += [repr(model.settings.resolved({})), repr(vars(model)), repr(vars(model)["_line"])]
    assert len(sink.troubles()) == 5
    assert not any(part in text for text in shown for part in (KEY, KEY[:12]))


async def test_the_environment_gives_address_and_key() -> None:
    async with canned(GOOD) as server:
        env = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": f" {KEY}\n"}
        async with client("", env=env) as model:
            await model.complete(QUESTION)
        assert f"Authorization: Bearer {KEY}\r\n" in server.heads[0]
        async with client(server.url) as model:
            await model.complete(QUESTION)
        assert "Authorization" not in server.heads[1]


async def test_proxies_are_for_other_machines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with canned(GOOD) as proxy, canned(GOOD) as server:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
        async with client(server.url) as model:
            await model.complete(QUESTION)
        assert (len(proxy.heads), len(server.heads)) == (0, 1)
        async with client("http://model.invalid/v1") as model:
            await model.complete(QUESTION)
        assert proxy.heads[0].startswith("POST http://model.invalid/v1/chat/completions ")
        monkeypatch.setenv("no_proxy", "model.invalid")
        async with client("http://model.invalid/v1", retries=0) as model:
            with pytest.raises(ModelError, match="no connection"):
                await model.complete(QUESTION)
