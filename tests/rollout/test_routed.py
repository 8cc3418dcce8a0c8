"""Runs whose model has several servers, or a limit on what is open: through the router of the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from deskroll.errors import ConfigError
from deskroll.models.scripted import ScriptedServer
from deskroll.rollout.config import RunConfig
from deskroll.rollout.models import Models
from deskroll.rollout.session import Session
from tests.rollout.conftest import ANSWER, CALCULATE, Runs, questions, script


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
