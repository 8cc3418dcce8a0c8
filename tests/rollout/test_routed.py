"""Runs whose model has several servers, or a limit on what is open: through the router of the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from deskroll.errors import ConfigError
from deskroll.events import EndpointChanged
from deskroll.models.scripted import ScriptedServer
from deskroll.rollout.config import RunConfig
from deskroll.rollout.models import Models
from deskroll.rollout.session import Session
from tests.models.servers import Noted
from tests.rollout.conftest import ANSWER, CALCULATE, Runs, questions, script, until


@asynccontextmanager
async def watched(servers: list[ScriptedServer]) -> AsyncIterator[list[int]]:
    """The most requests that were open at each server, looked at all the time."""
    most = [0] * len(servers)

    async def look() -> None:
        while True:
            most[:] = [max(one, server.stats.in_flight) for one, server in zip(most, servers, strict=True)]
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    try:
        yield most
    finally:
        looking.cancel()


@pytest.mark.parametrize("backend", ["inline", "process"])
async def test_the_limit_on_open_requests_holds_over_all_workers(runs: Runs, backend: str) -> None:
    async with ScriptedServer(script(CALCULATE, ANSWER, latency=0.02)) as server, watched([server]) as most:
        config = runs.config(server, backend=backend, num_rollouts=32, workers=3, model={"max_in_flight": 5})
        async with Session.open(config, questions(30)) as session:
            episodes = await session.run()
    assert [each.score.value for each in episodes] == [1.0] * 30
    assert most == [5]


def of_servers(runs: Runs, servers: list[ScriptedServer], **fields: object) -> RunConfig:
    endpoints = [{"url": server.url} for server in servers]
    config = runs.config(**fields)
    model = config.model.model_dump(exclude={"api_key"}) | {"base_url": "", "endpoints": endpoints, "server_wait": 90}
    return RunConfig.model_validate(config.model_dump(exclude={"model"}) | {"model": model})


async def test_faults_and_the_loss_of_a_server_cost_no_episode(runs: Runs) -> None:
    faults = {"faults": {"rate": 0.2, "kinds": ["500", "429", "half_body"]}, "latency": 0.005}
    async with AsyncExitStack() as stack:
        servers = [ScriptedServer(script(CALCULATE, ANSWER, seed=n, **faults)) for n in range(3)]
        for server in servers:
            await stack.enter_async_context(server)
        config = of_servers(runs, servers, num_rollouts=24, backend="process", workers=2)
        sink = Noted()
        async with Session.open(config, questions(150), sink=sink) as session:
            running = asyncio.create_task(session.run())
            await until(lambda: servers[0].stats.requests > 40, "the first server has work")
            await servers[0].__aexit__()
            episodes = await running
    assert [each.score.value for each in episodes] == [1.0] * 150
    assert all(server.stats.requests > 60 for server in servers[1:])
    gone = [event for event in sink.events if isinstance(event, EndpointChanged) and event.state == "closed"]
    assert gone, "nobody said that a server was lost"
    steps = [step for each in episodes for step in runs.read().attempt(each.key, each.attempt).steps()]
    answered = {step.completion.endpoint for step in steps if step.completion}
    assert answered == {event.endpoint for event in sink.events if isinstance(event, EndpointChanged)}


async def test_while_all_servers_are_gone_every_episode_waits(runs: Runs) -> None:
    answers = script(CALCULATE, ANSWER, latency=0.02)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(ScriptedServer(answers))
        port = int(first.url.rpartition(":")[2].partition("/")[0])
        config = of_servers(runs, [first], num_rollouts=8, limits={"max_time": 5})
        async with Session.open(config, questions(40)) as session:
            running = asyncio.create_task(session.run())
            await until(lambda: first.stats.requests > 10, "it has begun")
            await first.__aexit__()
            await until(lambda: any(each.state == "closed" for each in session.status().endpoints), "it is missed")
            await asyncio.sleep(1.5)  # longer than the pause after which it is tried again, so that it is in vain
            second = await stack.enter_async_context(ScriptedServer(answers, listen=f"127.0.0.1:{port}"))
            episodes = await running
            assert second.stats.requests
    assert [each.score.value for each in episodes] == [1.0] * 40
    assert all(each.attempt == 1 for each in episodes)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"endpoints": []}, "endpoints is empty"),
        ({"endpoints": [{"url": "http://a/v1"}, {"url": "http://a/v1/"}]}, "http://a/v1 is there twice"),
        ({"endpoints": [{"url": "http://a/v1"}], "base_url": "http://b/v1"}, "base_url and endpoints: only one"),
        ({"endpoints": [{"url": "http://me:secret@a/v1"}]}, "holds a user name or a password"),
        ({"pool": "nowhere"}, "is not an address"),
    ],
)
def test_what_cannot_be_is_refused(model: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        RunConfig(model=model)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"agent": "claude", "model": {"pool": "unix:/tmp/none"}}, "model.pool: this kind of model asks one server"),
        ({"judge": {"endpoints": [{"url": "http://a/v1"}]}}, "judge.endpoints: a judge asks one server directly"),
    ],
)
async def test_who_has_one_server_is_told_so(runs: Runs, fields: dict[str, Any], said: str) -> None:
    async with ScriptedServer(script(ANSWER)) as server, Models() as models:
        model = {"base_url": server.url} | ({"base_url": ""} | fields["model"] if "model" in fields else {})
        config = runs.config(server, **{**fields, "model": model})
        with pytest.raises(ConfigError, match=said):
            await models.answering(config)


async def test_a_key_that_is_not_there_is_named(runs: Runs) -> None:
    config = runs.config(model={"base_url": "", "endpoints": [{"url": "http://127.0.0.1:9/v1", "key_env": "NO_KEY"}]})
    async with Models() as models:
        with pytest.raises(ConfigError, match=r"endpoints.0.key_env names \$NO_KEY"):
            await models.answering(config)
