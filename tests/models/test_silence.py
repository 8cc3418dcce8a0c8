"""A server that answers nobody is told of once, and so is that it answers again."""

from __future__ import annotations

import asyncio

from aiohttp import web
from aiohttp.test_utils import TestServer

from deskroll.events import EndpointAnswering, EndpointSilent
from deskroll.models.openai import OpenAIModel
from deskroll.models.settings import ModelSettings
from tests.models.servers import QUESTION, Noted, said
from tests.rollout.conftest import until


class Gate:
    """A server that answers while it is open."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        await self.open.wait()
        return web.json_response(said())


async def test_silence_and_its_end_are_told_once() -> None:
    gate, sink = Gate(), Noted()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", gate.answer)
    async with TestServer(app) as server:
        settings = ModelSettings.model_validate({"base_url": str(server.make_url("/v1")), "timeout": 60})
        async with OpenAIModel(settings, sink=sink, silent_after=0.05, env={}) as model:
            asked = [asyncio.create_task(model.complete(QUESTION)) for _ in range(3)]
            await until(sink.troubles, "the silence is told")
            (silent,) = sink.troubles()
            assert isinstance(silent, EndpointSilent)
            assert silent.requests == 3
            assert silent.silent_s >= 0.05
            more = asyncio.create_task(model.complete(QUESTION))
            await until(lambda: model.loads()[0].in_flight == 4, "one more waits")
            gate.open.set()
            await asyncio.gather(*asked, more)
            gate.open.clear()
            again = asyncio.create_task(model.complete(QUESTION))
            await until(lambda: len(sink.troubles()) == 3, "the next silence is another one")
            gate.open.set()
            await again
            silent, answering, other, last = sink.troubles()
    assert isinstance(answering, EndpointAnswering)
    assert isinstance(silent, EndpointSilent)
    assert answering.silent_s >= silent.silent_s
    assert (type(other), type(last)) == (EndpointSilent, EndpointAnswering)
