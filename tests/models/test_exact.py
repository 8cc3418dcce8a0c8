"""`model.exact`: an answer whose tokens cannot be trained on is asked for again, and then refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from deskroll.errors import ConfigError, FailureClass, FailureKind, ModelError
from deskroll.models import InexactAnswer
from deskroll.models.anthropic import AnthropicModel
from deskroll.models.base import ModelCall
from deskroll.models.exact import inexact
from deskroll.models.scripted import Script, ScriptedServer
from deskroll.models.settings import ModelSettings
from deskroll.types import Completion, Failure, Sampling
from tests.models.servers import QUESTION, Noted, canned, client, http

EXACT = Completion(
    prompt_tokens=3, completion_tokens=2, prompt_token_ids=(1, 2, 3), token_ids=(4, 0), logprobs=(-0.5, 0.0)
)
WRONG = {
    "it has no prompt_token_ids": {"prompt_token_ids": None},
    "it has no token_ids and no logprobs": {"token_ids": None, "logprobs": None},
    "it has 2 token ids and 1 log-probabilities": {"logprobs": (-1.0,)},
    "it has 2 token ids and 3 completion tokens in its usage": {"completion_tokens": 3},
    "it has 3 prompt token ids and 0 prompt tokens in its usage": {"prompt_tokens": 0},
    "it holds the token id -1": {"token_ids": (4, -1)},
    "it holds the token id -7": {"prompt_token_ids": (1, -7, 3)},
    "it holds the log-probability 0.25": {"logprobs": (0.25, -1.0)},
    "it holds the log-probability nan": {"logprobs": (-1.0, float("nan"))},
    "it holds the log-probability -inf": {"logprobs": (float("-inf"), -1.0)},
}


def body(**changed: Any) -> dict[str, object]:
    """An answer with tokens, exact but for what is changed."""
    said = msgspec.structs.replace(EXACT, **changed)
    choice: dict[str, object] = {"message": {"role": "assistant", "content": "fine"}, "token_ids": said.token_ids}
    if said.logprobs is not None:
        choice["logprobs"] = {"content": [{"logprob": each} for each in said.logprobs]}
    usage = {"prompt_tokens": said.prompt_tokens, "completion_tokens": said.completion_tokens}
    return {"choices": [choice], "usage": usage, "prompt_token_ids": said.prompt_token_ids}


def test_tokens_are_exact_or_it_is_said_why_not() -> None:
    assert inexact(EXACT) == ""
    found = {inexact(msgspec.structs.replace(EXACT, **changed)) for changed in WRONG.values()}
    assert found == set(WRONG)


@pytest.mark.parametrize("why", [each for each in WRONG if not each.endswith(("nan", "inf"))])
async def test_an_inexact_answer_is_asked_for_again_and_then_refused(why: str) -> None:
    bad, sink = http(body(**WRONG[why])), Noted()
    async with canned(bad, http(body())) as server, client(server.url, sink, exact=True) as model:
        completion = await model.complete(QUESTION)
        assert (completion.token_ids, completion.tries) == ((4, 0), 2)
        assert sink.kinds() == ["model.retried"]
    async with canned(bad) as server, client(server.url, sink, exact=True, retries=1) as model:
        with pytest.raises(InexactAnswer, match=f"asked 2 times.*not exact: {why}") as refused:
            await model.complete(QUESTION)
        assert model.loads()[0].failures == 2
    failure = Failure.of(refused.value)
    assert (failure.failure_class, failure.kind) == (FailureClass.MODEL, FailureKind.INEXACT_ANSWER)


async def test_exact_answers_are_asked_for_whatever_sampling_a_call_brings() -> None:
    async with canned(http(body())) as server, client(server.url, exact=True) as model:
        completion = await model.complete(QUESTION, call=ModelCall(sampling=Sampling(temperature=0.0)))
        await model.complete(QUESTION)
    for sent in map(json.loads, server.bodies):
        assert (sent["logprobs"], sent["return_token_ids"]) == (True, True)
    assert completion.sampling == Sampling(temperature=0.0, logprobs=True, token_ids=True)


async def test_an_answer_of_another_kind_of_failure_is_no_inexact_one() -> None:
    answers = (http(body(logprobs=None)), http({}, 500))
    async with canned(*answers) as server, client(server.url, exact=True, retries=1) as model:
        with pytest.raises(ModelError, match="status 500") as failed:
            await model.complete(QUESTION)
    assert not isinstance(failed.value, InexactAnswer)


async def test_without_exact_nothing_is_refused() -> None:
    async with canned(http(body(logprobs=None))) as server, client(server.url) as model:
        assert (await model.complete(QUESTION)).logprobs is None


async def test_the_scripted_server_is_exact() -> None:
    async with (
        ScriptedServer(Script.replying("let me see what is there")) as server,
        client(server.url, exact=True, retries=0) as model,
    ):
        assert inexact(await model.complete(QUESTION)) == ""


def test_a_protocol_that_tells_no_tokens_cannot_be_exact() -> None:
    with pytest.raises(ConfigError, match=r"judge.exact is true.*no token ids"):
        AnthropicModel.check_settings(ModelSettings(exact=True), "judge")
