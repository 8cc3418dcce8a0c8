"""What belongs to one call: its sampling, its session, its deadline; the client and its connections are shared."""

from __future__ import annotations

import asyncio
import json

import pytest

from deskroll.clocks import running_time
from deskroll.errors import ModelError
from deskroll.events import kind_of
from deskroll.models.anthropic import AnthropicModel
from deskroll.models.base import ModelCall
from deskroll.models.settings import ModelSettings
from deskroll.types import LogprobsMode, Sampling
from tests.models.servers import QUESTION, TOOLS, Noted, canned, client, http, said

GOOD = http(said("fine"))
SAMPLINGS = [
    (None, {"temperature": 0.5, "seed": 7}),
    (Sampling(), {}),
    (Sampling(temperature=0.0, top_p=0.9, max_tokens=12), {"temperature": 0.0, "top_p": 0.9, "max_tokens": 12}),
    (Sampling(top_k=20, logprobs_mode=LogprobsMode.PROCESSED), {"top_k": 20}),
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
            assert completion.sampling == (sampling or Sampling(temperature=0.5, seed=7))


async def test_what_is_set_for_every_request_counts_over_a_call() -> None:
    extra = {"seed": 1, "temperature": 2}
    async with canned(GOOD) as server, client(server.url, name="m", extra=extra) as model:
        completion = await model.complete(QUESTION, call=ModelCall(sampling=Sampling(seed=5, temperature=0.1)))
        assert json.loads(server.bodies[-1]) == {"model": "m", **extra, "messages": json.loads(b"[%b]" % QUESTION[0])}
        assert server.bodies[-1].count(b"seed") == 1
    assert completion.sampling == Sampling(seed=1, temperature=2), "it is kept as it was sent"
    assert completion.seed == 1


@pytest.mark.parametrize(
    ("extra", "kept"),
    [
        ({"max_completion_tokens": 9, "stop": "x"}, Sampling(max_tokens=9, stop=("x",), top_p=0.5)),
        ({"top_k": 4, "top_p": None, "min_p": 0.1}, Sampling(top_k=4)),
        ({"temperature": "hot"}, Sampling(top_p=0.5)),
    ],
)
async def test_what_further_fields_say_of_sampling_is_kept_with_the_answer(
    extra: dict[str, object], kept: Sampling
) -> None:
    async with canned(GOOD) as server, client(server.url, top_p=0.5, extra=extra) as model:
        assert (await model.complete(QUESTION)).sampling == kept


async def test_an_answer_says_who_gave_it_and_with_which_weights() -> None:
    answer = http(said("fine", system_fingerprint="vllm-abc"), x_model_version="7")
    async with canned(answer) as server, client(f"{server.url}?key=secret") as model:
        direct = await model.complete(QUESTION)
        led = await model.complete(QUESTION, call=ModelCall(endpoint="unix:/a/b.sock", version="8"))
    assert (direct.endpoint, direct.version, direct.fingerprint) == (server.url, "7", "vllm-abc")
    assert (led.endpoint, led.version, led.fingerprint) == ("unix:/a/b.sock", "8", "vllm-abc")
    assert (direct.version_end, led.version_end) == ("", "")


async def test_a_fingerprint_is_no_version() -> None:
    async with canned(http(said("fine", system_fingerprint="vllm-abc"))) as server, client(server.url) as model:
        completion = await model.complete(QUESTION)
    assert (completion.version, completion.fingerprint) == ("", "vllm-abc")


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
        assert completion.sampling == Sampling(stop=("x",), max_tokens=8192), "as it was sent"
        assert completion.endpoint == server.url


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
