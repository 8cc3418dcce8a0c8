"""HandedModel: requests go to whoever expects them, answers come back, and nobody waits for an episode that ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from deskroll.models.base import ContextTooLong, ModelCall, ModelRefused, NoClock, episode_clock
from deskroll.models.handed import HANDED_KIND, HandedEpisode, HandedModel
from deskroll.models.plugin import model_kind
from deskroll.models.settings import ModelSettings
from deskroll.types import Completion, Sampling

TOOLS = msgspec.json.encode(
    [{"type": "function", "function": {"name": "add", "description": "adds", "parameters": {"type": "object"}}}]
)
CALL = ModelCall(session="train/0/a/0", sampling=Sampling(temperature=0.5))


def expected() -> tuple[HandedModel, HandedEpisode]:
    model, episode = HandedModel(ModelSettings(name="policy", kind=HANDED_KIND)), HandedEpisode()
    model.expect(CALL.session, episode)
    return model, episode


async def test_a_request_goes_out_and_its_answer_comes_back() -> None:
    model, episode = expected()
    asked = asyncio.create_task(model.complete([b'{"role":"user"}'], TOOLS, call=CALL))
    request = await episode.request()
    assert request is not None and request.messages == (b'{"role":"user"}',)
    assert [(each.name, each.description) for each in request.tools] == [("add", "adds")]
    assert request.sampling == CALL.sampling
    (load,) = model.loads()
    assert (load.in_flight, load.calls) == (1, 1)
    episode.answer(Completion(text="so", token_ids=(1, 2)))
    assert (await asked).token_ids == (1, 2)
    assert model.loads()[0].in_flight == 0


async def test_the_end_of_an_episode_is_told_as_often_as_somebody_asks() -> None:
    model, episode = expected()
    waiting = asyncio.create_task(episode.request())
    await asyncio.sleep(0)
    model.end_session(CALL.session)
    assert await waiting is None and await episode.request() is None
    with pytest.raises(ModelRefused, match="nobody answers"):
        await model.complete([b"{}"], call=CALL)
    episode.answer(Completion(text="too late"))  # nothing happens


async def test_a_request_that_is_refused_fails_so() -> None:
    model, episode = expected()
    asked = asyncio.create_task(model.complete([b"{}"], call=CALL))
    await episode.request()
    episode.refuse(ContextTooLong("too many tokens", 400))
    with pytest.raises(ContextTooLong, match="too many"):
        await asked


async def test_nobody_but_a_driven_episode_can_ask_it() -> None:
    model, _ = expected()
    with pytest.raises(ModelRefused, match="set judge"):
        await model.complete([b"{}"])


async def test_whoever_gives_up_waiting_takes_no_request_with_it() -> None:
    model, episode = expected()
    waiting = asyncio.create_task(episode.request())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    asked = asyncio.create_task(model.complete([b"{}"], call=CALL))
    assert await episode.request() is not None
    asked.cancel()
    await asyncio.wait((asked,))
    assert model.loads()[0].in_flight == 0


async def test_a_second_request_beside_an_open_one_is_refused_and_the_first_is_answered() -> None:
    model, episode = expected()
    first = asyncio.create_task(model.complete([b"1"], call=CALL))
    assert await episode.request() is not None
    with pytest.raises(ModelRefused, match="one at a time"):
        await model.complete([b"2"], call=CALL)
    assert model.loads()[0].in_flight == 1
    episode.answer(Completion(text="so"))
    assert (await first).text == "so"


@pytest.mark.parametrize("taken", [True, False])
async def test_a_late_answer_does_not_go_to_the_next_request(taken: bool) -> None:
    model, episode = expected()
    first = asyncio.create_task(model.complete([b"{}"], call=CALL))
    await asyncio.sleep(0)
    if taken:
        assert await episode.request() is not None
    first.cancel()
    await asyncio.wait((first,))
    second = asyncio.create_task(model.complete([b"{}"], call=CALL))
    await asyncio.sleep(0)
    episode.answer(Completion(text="too late"))
    episode.refuse(ContextTooLong("too late", 400))
    assert await episode.request() is not None
    episode.answer(Completion(text="so"))
    assert (await second).text == "so"
    third = asyncio.create_task(model.complete([b"3"], call=CALL))
    request = await episode.request()
    assert request is not None and request.messages == (b"3",)
    third.cancel()
    await asyncio.wait((third,))


class Clock(NoClock):
    """Knows whether it stands still."""

    still = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.still = True
        yield
        self.still = False


async def test_waiting_for_the_answer_takes_no_time_of_the_episode() -> None:
    model, episode = expected()
    clock = Clock()
    episode_clock.set(clock)
    asked = asyncio.create_task(model.complete([b"{}"], call=CALL))
    await episode.request()
    assert clock.still
    episode.answer(Completion())
    await asked
    assert not clock.still


def test_it_is_a_kind_of_model_that_is_named_by_its_path() -> None:
    assert model_kind(ModelSettings(name="policy", kind=HANDED_KIND)) is HandedModel
