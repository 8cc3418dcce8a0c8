"""What every kind of model must do. Its settings with `--plugin-options`: name, base_url. It is asked some 20 times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from deskroll.clocks import running_time
from deskroll.config import check as check_settings
from deskroll.errors import ConfigError, ModelError
from deskroll.models.base import EndpointLoad, ModelCall
from deskroll.models.messages import Message
from deskroll.models.plugin import ModelPlugin
from deskroll.models.settings import ModelSettings
from deskroll.testing import Chosen, awaited
from deskroll.types import Completion, Sampling

QUESTION = [Message.user("Say a word.").sent]
TOOLS = b'[{"type":"function","function":{"name":"look","description":"Look.","parameters":{"type":"object"}}}]'


def settings_of(chosen: Chosen) -> ModelSettings:
    """The settings that were given."""
    return check_settings(ModelSettings, {"kind": chosen.name, **chosen.options}, "--plugin-options")


@asynccontextmanager
async def answering(chosen: Chosen) -> AsyncIterator[ModelPlugin]:
    """The model, served and open as in a run."""
    kind = chosen.load()
    async with kind.serve(settings_of(chosen), "model") as settings:
        assert isinstance(settings, ModelSettings)
        async with kind(settings) as model:
            yield model


@awaited
async def test_it_answers(chosen: Chosen) -> None:
    """With and without tools; who answered is said."""
    async with answering(chosen) as model:
        assert all(isinstance(name, str) for name in await model.check())
        for tools in (None, TOOLS):
            said = await model.complete(QUESTION, tools)
            assert isinstance(said, Completion)
            assert said.text or said.tool_calls
            assert said.tries >= 1


@awaited
async def test_a_call_has_its_own_sampling_and_seed(chosen: Chosen) -> None:
    """What does not fit a server is left out, never refused."""
    async with answering(chosen) as model:
        sampling = Sampling(temperature=0.5, top_p=0.9, max_tokens=64, stop=("END",), seed=7)
        said = await model.complete(QUESTION, call=ModelCall(sampling=sampling, session="contract"))
        assert said.seed in (None, 7)


@awaited
async def test_many_ask_at_a_time_and_nothing_is_left_open(chosen: Chosen) -> None:
    """All are answered, and it says so."""
    async with answering(chosen) as model:
        said = await asyncio.gather(*(model.complete(QUESTION) for _ in range(8)))
        assert len(said) == 8
        assert all(isinstance(load, EndpointLoad) for load in model.loads())
        assert not any(load.in_flight for load in model.loads())


@awaited
async def test_a_call_that_nobody_wants_any_more_ends(chosen: Chosen) -> None:
    """By its deadline, or cancelled; the next one is answered."""
    async with answering(chosen) as model:
        with pytest.raises(ModelError):
            await model.complete(QUESTION, call=ModelCall(deadline=running_time() - 1))
        asking = asyncio.ensure_future(model.complete(QUESTION))
        await asyncio.sleep(0)
        if not asking.done():  # one that never waits has answered already
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        assert isinstance(await model.complete(QUESTION), Completion)


@awaited
async def test_a_server_that_is_not_there_is_the_models_failure(chosen: Chosen) -> None:
    """Not a plain exception; and it is said what to set."""
    gone = settings_of(chosen).model_copy(update={"base_url": "http://127.0.0.1:9/v1", "retries": 0})
    kind = chosen.load()
    async with kind(gone) as model:
        try:
            assert isinstance(await model.complete(QUESTION), Completion)  # one that needs no server
        except ModelError as error:
            assert str(error)
    assert kind.how_to_reach("model")


def test_an_option_that_it_does_not_have_is_refused(chosen: Chosen) -> None:
    """Before anything is asked."""
    odd = settings_of(chosen).model_copy(update={"options": {"no_such_option_at_all": 1}})
    with pytest.raises(ConfigError, match="no_such_option_at_all"):
        chosen.load().check_settings(odd, "model")
