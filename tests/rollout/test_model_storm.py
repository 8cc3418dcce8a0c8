"""Servers of a model fail, die, are refreshed, come and go under a run: no episode is lost, and every version is right.

`make soak` leaves a run without any server for a minute (DESKROLL_SOAK).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from deskroll.events import EndpointChanged
from deskroll.models.router.roster import EndpointState
from deskroll.models.scripted import ScriptedServer, VllmSettings, Weights
from deskroll.models.vllm.pool import ModelServicePool
from deskroll.rollout.session import Session
from deskroll.types import Completion, Episode
from tests.models.servers import Noted
from tests.models.vllm.scripted_pool import ScriptedServers, scripted_pool
from tests.models.weights.files import one_file
from tests.rollout.conftest import ANSWER, CALCULATE, Runs, questions, script, until
from tests.rollout.storm import SOAK

EPISODES = 1000
IN_FLIGHT = 48
FAULTS = {
    "rate": 0.2, "kinds": ["429", "500", "503", "half_body", "invalid_json", "reset"], "when": "What is 6*7",
    "retry_after": 0.01,
}  # fmt: skip
GONE_S = 60.0 if SOAK else 5.0
"""For how long there is no server at all."""
MAX_TIME_S = 3.0
"""What an episode may take meanwhile."""


class Storm:
    """What happens to a pool of three while a run goes on: ten refreshes, and between them one of everything."""

    def __init__(self, session: Session, pool: ModelServicePool, servers: ScriptedServers, weights: Path) -> None:
        self._session, self._pool, self._servers, self._weights = session, pool, servers, weights

    async def rage(self, guest: str) -> None:
        for number in range(1, 11):
            await self._let_some_end()
            one_file(self._weights / f"step_{number}", fill=0.5 + number / 100, marker="READY")
            assert (await self._pool.load_latest_model()).checkpoint.version == str(number)
            if number == 3:
                await self._servers.open[0].kill()
            elif number == 5:
                self._pool.add_service(guest, "guest")
            elif number == 7:
                await self._pool.remove_service(self._servers.open[-1].url)

    async def _let_some_end(self) -> None:
        """More than run at a time: so some of them have asked all of their questions since."""
        wanted = self._session.status().standing.done + IN_FLIGHT + 2
        await until(lambda: self._session.status().standing.done >= wanted, "the run goes on")


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    one_file(tmp_path / "weights" / "step_0", fill=0.5, marker="READY")
    return tmp_path / "weights"


def said(runs: Runs, episodes: list[Episode]) -> list[Completion]:
    """Every answer that became a step."""
    steps = (step for each in episodes for step in runs.read().attempt(each.key, each.attempt).steps())
    return [step.completion for step in steps if step.completion is not None]


@pytest.mark.timeout(600)
async def test_a_thousand_episodes_survive_all_that_can_happen_to_three_servers(
    runs: Runs, weights: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    answers, told = script(CALCULATE, ANSWER, latency=0.01, faults=FAULTS), list[str]()
    servers = ScriptedServers(tmp_path_factory.mktemp("s"), script=answers)
    own = one_file(weights.parent / "guest", fill=0.25)
    async with (
        ScriptedServer(answers, vllm=VllmSettings(name="guest", weights=own)) as guest,
        scripted_pool(
            servers, weights / "step_0", told, replicas=3, weights={"source": str(weights), "poll": 3600}
        ) as pool,
    ):
        await pool.ready()
        model = {"name": "policy", "base_url": "", "pool": pool.address, "exact": True, "retries": 20}
        config = runs.config(model=model, num_rollouts=IN_FLIGHT, backend="process", workers=2)
        async with Session.open(config, questions(EPISODES)) as session:
            running = asyncio.create_task(session.run())
            await Storm(session, pool, servers, weights).rage(guest.url)
            episodes = await running
        assert [view.in_flight for view in pool.endpoints()] == [0] * 3, "every ticket is back"
        assert (await pool.status()).waiting == 0
        assert [view.state for view in pool.endpoints()].count(EndpointState.STARTING) == 0
        of_version = {str(number): Weights.read(weights / f"step_{number}") for number in range(11)}
        of_version[""] = Weights.read(own)
        guests = {guest.url}
    assert [each.score.value for each in episodes] == [1.0] * EPISODES
    answered = said(runs, episodes)
    assert len(answered) == 2 * EPISODES
    assert all(of_version[each.version].fits(each.token_ids or (), each.logprobs or ()) for each in answered)
    assert {each.version for each in answered} >= {str(number) for number in range(10)}
    assert {each.endpoint for each in answered if not each.version} == guests
    assert len(told) == 1, "one was killed, and no other had to be started again"
    assert sum(sum(each.scripted.stats.faults.values()) for each in servers.started) > EPISODES // 5


@asynccontextmanager
async def listening(places: list[str]) -> AsyncIterator[list[ScriptedServer]]:
    """Servers there."""
    async with AsyncExitStack() as stack:
        answers = script(CALCULATE, ANSWER, latency=0.02)
        yield [await stack.enter_async_context(ScriptedServer(answers, listen=place)) for place in places]


async def test_while_all_servers_are_gone_every_episode_waits_and_its_clock_stands_still(runs: Runs) -> None:
    sink = Noted()
    async with AsyncExitStack() as stack, AsyncExitStack() as before:
        first = await before.enter_async_context(listening(["127.0.0.1:0"] * 2))
        urls = [server.url for server in first]
        model = {"base_url": "", "endpoints": [{"url": url} for url in urls], "server_wait": GONE_S + 60}
        config = runs.config(model=model, num_rollouts=8, limits={"max_time": MAX_TIME_S})
        session = await stack.enter_async_context(Session.open(config, questions(40), sink=sink))
        running = asyncio.create_task(session.run())
        await until(lambda: sum(server.stats.requests for server in first) > 10, "it has begun")
        await before.aclose()
        await until(lambda: {each.state for each in session.status().endpoints} == {"closed"}, "both are missed")
        await asyncio.sleep(GONE_S)  # longer than an episode may take
        assert not running.done()
        places = [url.removeprefix("http://").removesuffix("/v1") for url in urls]
        async with listening(places) as second:
            episodes = await running
            assert all(server.stats.requests for server in second)
    assert [each.score.value for each in episodes] == [1.0] * 40
    assert all(each.attempt == 1 for each in episodes), "nobody had to begin again"
    told = [event for event in sink.events if isinstance(event, EndpointChanged) and event.state == "closed"]
    assert {event.endpoint for event in told} == set(urls)
    assert {each.endpoint for each in said(runs, episodes)} == set(urls)
