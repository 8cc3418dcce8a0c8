"""What belongs to one call: its sampling, its session, its deadline; the client and its connections are shared."""

from __future__ import annotations

import asyncio
import json

import pytest

from deskroll.clocks import running_time
from deskroll.errors import ModelError
from deskroll.events import kind_of
from deskroll.models.anthropic import AnthropicModel
from deskroll.models.base import ModelCall, Sampling
from deskroll.models.settings import ModelSettings
from tests.models.servers import QUESTION, TOOLS, Noted, canned, client, http, said

GOOD = http(said("fine"))
SAMPLINGS = [
    (None, {"temperature": 0.5, "seed": 7}),
    (Sampling(), {}),
    (Sampling(temperature=0.0, top_p=0.9, max_tokens=12), {"temperature": 0.0, "top_p": 0.9, "max_tokens": 12}),
    (Sampling(stop=("\n", "</s>"), seed=3), {"stop": ["\n", "</s>"], "seed": 3}),
    (Sampling(logprobs=True, token_ids=True), {"logprobs": True, "return_token_ids": True}),
]


async def test_calls_of_one_client_differ_in_their_sampling() -> None:
    async with canned(GOOD) as server, client(server.url, name="m", temperature=0.5, seed=7) as model:
        for sampling, sent in SAMPLINGS:
            completion = await model.complete(QUESTION, TOOLS, call=ModelCall(sampling=sampling))
            body = json.loads(server.bodies[-1])
            assert body.pop("messages") == [{"role": "user", "content": "hello"}]
            assert body.pop("tools")
            assert body == {"model": "m", **sent}
            assert completion.seed == sent.get("seed")


async def test_what_is_set_for_every_request_counts_over_a_call() -> None:
    extra = {"seed": 1, "temperature": 2}
    async with canned(GOOD) as server, client(server.url, name="m", extra=extra) as model:
        await model.complete(QUESTION, call=ModelCall(sampling=Sampling(seed=5, temperature=0.1)))
        assert json.loads(server.bodies[-1]) == {"model": "m", **extra, "messages": json.loads(b"[%b]" % QUESTION[0])}
        assert server.bodies[-1].count(b"seed") == 1


async def test_anthropics_messages_are_sampled_by_the_call_too() -> None:
    answer = http({"content": [{"type": "text", "text": "fine"}]})
    async with canned(answer) as server:
        settings = ModelSettings(name="m", base_url=server.url)
        async with AnthropicModel(settings, env={}) as model:
            completion = await model.complete(QUESTION, call=ModelCall(sampling=Sampling(stop=("x",), seed=3)))
        body = json.loads(server.bodies[-1])
        assert (body["stop_sequences"], body["max_tokens"]) == (["x"], 8192)
        assert "seed" not in body
        assert completion.seed is None, "it was not asked with one"


async def test_nobody_waits_past_the_deadline_of_a_call() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    sink = Noted()
    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        async with client(url, sink, retries=1000, backoff=0, timeout=600) as model, asyncio.timeout(60):
            with pytest.raises(ModelError, match="without a usable answer"):
                await model.complete(QUESTION, call=ModelCall(deadline=running_time() + 0.2))
    assert sink.kinds()[-1] == "model.failed"


async def test_no_pause_lasts_past_the_deadline_of_a_call() -> None:
    sink = Noted()
    async with canned(http({}, 503, Retry_After="600")) as server, client(server.url, sink, backoff_max=600) as model:
        with pytest.raises(ModelError, match="asked once"):
            await model.complete(QUESTION, call=ModelCall(deadline=running_time() + 60))
    assert sink.kinds() == ["model.failed"]


async def test_events_name_the_session() -> None:
    sink = Noted()
    async with canned(http({}, 500), GOOD) as server, client(server.url, sink) as model:
        await model.complete(QUESTION, call=ModelCall(session="eval/0/a/1"))
        await model.complete(QUESTION)
    assert [(kind_of(each), each.session) for each in sink.troubles()] == [("model.retried", "eval/0/a/1")]
