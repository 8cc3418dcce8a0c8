"""Tickets over a socket: from the router to the processes that ask."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from yarl import URL

from deskroll.errors import ConfigError, InputError, ModelError
from deskroll.host.listen import Listen
from deskroll.models.router.client import RouterClient
from deskroll.models.router.looking import Looker
from deskroll.models.router.roster import Outcome
from deskroll.models.router.router import Router, Server
from deskroll.models.router.service import serve_router
from tests.waiting import PATIENCE_S

METRICS = 'vllm:num_requests_running{x="1"} 2.0\nvllm:num_requests_waiting 1.0\n'


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that others in this loop bring about."""
    ends = asyncio.get_running_loop().time() + PATIENCE_S
    while not condition():
        assert asyncio.get_running_loop().time() < ends, what
        await asyncio.sleep(0.001)


@asynccontextmanager
async def healthy(port: int = 0) -> AsyncIterator[str]:
    """A server that does well."""
    async with serving(_say_metrics, port) as url:
        yield url


@asynccontextmanager
async def serving(say: Callable[[web.Request], Awaitable[web.StreamResponse]], port: int = 0) -> AsyncIterator[str]:
    """A server that says this."""
    app = web.Application()
    app.router.add_get("/health", say)
    app.router.add_get("/metrics", say)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def _say_metrics(_: web.Request) -> web.Response:
    return web.Response(text=METRICS)


@asynccontextmanager
async def served(folder: Path, url: str, limit: int = 2) -> AsyncIterator[tuple[Router, RouterClient]]:
    async with Router(server_wait=30.0, look_s=0.05) as router:
        router.add(Server(url=url, model="m", key="secret", max_in_flight=limit, version="3"))
        async with serve_router(router, Listen(path=str(folder / "r.sock"))) as listen, RouterClient(listen) as client:
            yield router, client


async def test_a_ticket_says_whom_to_ask_and_goes_back_with_the_block(tmp_path: Path) -> None:
    async with healthy() as url, served(tmp_path, url) as (router, client):
        async with client.ticket("s") as held:
            assert (held.url, held.key, held.ticket.model, held.ticket.version) == (url, "secret", "m", "3")
            assert [view.in_flight for view in router.view()] == [1]
            held.outcome = Outcome.ANSWERED
        await until(lambda: router.view()[0].in_flight == 0, "the ticket is back")


async def test_tickets_go_back_before_the_next_request_of_their_process(tmp_path: Path) -> None:
    async with healthy() as url, served(tmp_path, url, limit=2) as (router, client):
        for _ in range(20):  # far fewer moments than it takes to go back by themselves
            async with client.ticket() as held:
                assert not held.ticket.scarce, "the one before is not back"
                held.outcome = Outcome.ANSWERED
            async with client.ticket() as one, client.ticket() as other:
                assert (one.ticket.scarce, other.ticket.scarce) == (False, True)
                one.outcome = other.outcome = Outcome.ANSWERED
        await until(lambda: router.view()[0].in_flight == 0, "all are back, with nobody to ask again")


async def test_the_limit_holds_over_all_who_ask(tmp_path: Path) -> None:
    most = now = 0

    async def use(client: RouterClient) -> None:
        nonlocal most, now
        async with client.ticket() as held:
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            now -= 1
            held.outcome = Outcome.ANSWERED

    async with (
        healthy() as url,
        served(tmp_path, url, limit=3) as (_, client),
        RouterClient(Listen(path=str(tmp_path / "r.sock"))) as other,
    ):
        await asyncio.gather(*(use(each) for each in (client, other) for _ in range(50)))
    assert most == 3


async def test_whoever_is_cancelled_while_it_waits_leaves_its_place(tmp_path: Path) -> None:
    async with healthy() as url, served(tmp_path, url, limit=1) as (router, client):
        async with client.ticket():

            async def wait() -> None:
                async with client.ticket():
                    raise AssertionError("there is none")

            waiting = asyncio.create_task(wait())
            await until(lambda: router.waiting == 1, "it waits")
            waiting.cancel()
            await until(lambda: router.waiting == 0, "it has left")
        async with client.ticket():
            pass


async def test_a_change_of_weights_under_a_request_is_told(tmp_path: Path) -> None:
    async with healthy() as url, served(tmp_path, url) as (router, client):
        async with client.ticket(tell=True) as held:
            router.serve(url, "4")
        assert held.version_end == "4"


async def test_draining_waits_for_what_is_open(tmp_path: Path) -> None:
    async with healthy() as url, served(tmp_path, url) as (router, client):
        async with client.ticket():
            drained = asyncio.create_task(router.drain(url))
            await until(lambda: router.view()[0].state == "draining", "it drains")
            assert not drained.done()
        await asyncio.wait_for(drained, 30)
        router.ready(url, version="4")
        async with client.ticket() as held:
            assert held.ticket.version == "4"


async def test_nobody_can_be_asked_for_long_is_told_with_every_endpoint(tmp_path: Path) -> None:
    async with Router(server_wait=0.2, look_s=0.05) as router:
        router.add(Server(url="http://127.0.0.1:9/v1", model="m"), starting=True)
        async with (
            serve_router(router, Listen(path=str(tmp_path / "r.sock"))) as listen,
            RouterClient(listen) as client,
        ):
            with pytest.raises(ModelError, match=r"could be asked for 0.2 s: http://127.0.0.1:9/v1: starting"):
                async with client.ticket():
                    pass


@asynccontextmanager
async def to_come(folder: Path, wait: float = 30.0) -> AsyncIterator[tuple[Router, RouterClient]]:
    """No server yet; those that come up have version 4."""
    async with (
        Router(server_wait=wait, look_s=0.05, coming=lambda: {"m@4": "4"}) as router,
        serve_router(router, Listen(path=str(folder / "r.sock"))) as listen,
        RouterClient(listen) as client,
    ):
        yield router, client


async def test_a_pin_of_what_servers_are_to_have_waits_for_one(tmp_path: Path) -> None:
    async with healthy() as url, to_come(tmp_path) as (router, client):
        pin = client.pinned("4")
        waiting = asyncio.ensure_future(pin.__aenter__())
        await until(lambda: router.waiting == 1, "it waits")
        with pytest.raises(ModelError, match="no server can be asked for version 5"):
            await client.pinned("5").__aenter__()
        router.add(Server(url=url, model="m"))
        assert router.waiting == 1, "that one does not have it yet"
        router.offer(url, {"m": "0", "m@4": "4"})
        assert await asyncio.wait_for(waiting, PATIENCE_S) == "m@4"
        assert router.models_asked(url) == {"m@4"}
        assert router.view()[0].in_flight == 0, "nothing is held there"
        await pin.__aexit__(None, None, None)
        await until(lambda: router.models_asked(url) == set(), "it is not pinned any more")


async def test_a_pin_that_waits_ends_with_whoever_wants_it_and_after_the_usual_time(tmp_path: Path) -> None:
    async with to_come(tmp_path) as (router, client):
        waiting = asyncio.ensure_future(client.pinned("4").__aenter__())
        await until(lambda: router.waiting == 1, "it waits")
        waiting.cancel()
        await until(lambda: router.waiting == 0 and router.models_asked("") == set(), "it has left")
    async with to_come(tmp_path, wait=0.1) as (router, client):
        with pytest.raises(ModelError, match=r"could be asked for 0.1 s: there is none"):
            await client.pinned("4").__aenter__()
        assert router.models_asked("") == set()


async def test_a_server_that_is_down_is_found_out_and_one_that_is_back_too(tmp_path: Path) -> None:
    async with Router(look_s=0.05) as router:
        async with healthy() as url:
            router.add(Server(url=url, model="m"))
            await until(lambda: router.view()[0].queue == 1, "it was looked at")
        await until(lambda: router.view()[0].state == "closed", "it is closed")
        assert "/health" in router.view()[0].last_error
        async with healthy(URL(url).port or 0), serve_router(router, Listen(path=str(tmp_path / "r.sock"))) as listen:
            async with RouterClient(listen) as client, client.ticket() as held:
                held.outcome = Outcome.ANSWERED
            await until(lambda: router.view()[0].state == "up", "it is back")


async def test_one_that_is_removed_and_added_again_is_looked_at_and_has_its_new_key(tmp_path: Path) -> None:
    async with healthy() as url, served(tmp_path, url) as (router, client):
        async with client.ticket() as held:
            assert held.key == "secret"
        await until(lambda: router.view()[0].in_flight == 0, "the ticket is back")
        router.remove(url)
        router.add(Server(url=url, model="m", key="new"))
        await until(lambda: router.view()[0].queue == 1, "it is looked at")
        async with client.ticket() as held:
            assert held.key == "new"
    assert "new" not in repr(Server(url=url, model="m", key="new"))


async def test_engines_behind_one_address_are_added_up_and_long_answers_read_whole(tmp_path: Path) -> None:
    lines = [f'vllm:num_requests_waiting{{engine="{n}"}} 2.0' for n in range(3)] + ["vllm:num_requests_running 1.0"]

    async def say(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for line in lines:
            await answer.write(f"{line}\n".encode())
            await asyncio.sleep(0)
        return answer

    async with serving(say) as url, Looker(url) as looker:
        seen = await looker.look()
    assert (seen.error, seen.running, seen.waiting) == ("", 1, 6)


async def test_metrics_that_fail_are_no_bad_health() -> None:
    async def fall(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        if request.path == "/metrics":
            request.transport.close()
        return web.Response()

    async with serving(fall) as url, Looker(url) as looker:
        assert (await looker.look()).error == ""


async def test_closing_a_router_ends_every_wait(tmp_path: Path) -> None:
    async with healthy() as url:
        async with served(tmp_path, url) as (router, client):
            held = client.ticket(tell=True)
            await held.__aenter__()
            drained = asyncio.create_task(router.drain(url))
            await until(lambda: router.view()[0].state == "draining", "it drains")
        await asyncio.wait_for(drained, PATIENCE_S)  # with its connection, the ticket was lost
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(ModelError, match="is gone"):
                await held.__aexit__(None, None, None)


async def test_what_is_no_address_is_refused() -> None:
    async with Router() as router:
        with pytest.raises(ConfigError, match="not an HTTP address"):
            router.add(Server(url="nowhere", model="m"))


async def test_a_router_that_is_gone_is_told_to_all_who_wait(tmp_path: Path) -> None:
    client = RouterClient(Listen(path=str(tmp_path / "r.sock")))
    with pytest.raises(ModelError, match="no router of models answers"):
        await client.__aenter__()
    async with healthy() as url:
        async with served(tmp_path, url, limit=1) as (router, client):
            held = client.ticket()
            await held.__aenter__()
            waiting = asyncio.ensure_future(client.ticket().__aenter__())
            await until(lambda: router.waiting == 1, "it waits")
        with pytest.raises(ModelError, match="is gone"):
            await waiting


_HOLDER = """
import asyncio, sys
from deskroll.host.listen import Listen
from deskroll.models.router.client import RouterClient
async def main():
    async with RouterClient(Listen(path=sys.argv[1])) as client, client.ticket():
        print("held", flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


async def test_a_killed_process_loses_its_ticket(tmp_path: Path) -> None:
    async with healthy() as url, served(tmp_path, url, limit=1) as (router, client):
        with subprocess.Popen(
            [sys.executable, "-c", _HOLDER, str(tmp_path / "r.sock")], stdout=subprocess.PIPE
        ) as holder:
            assert holder.stdout is not None
            await asyncio.to_thread(holder.stdout.readline)
            assert router.view()[0].in_flight == 1
            holder.kill()
            async with asyncio.timeout(30), client.ticket():
                pass


async def test_over_tcp_a_token_is_wanted(tmp_path: Path) -> None:
    async with Router() as router:
        with pytest.raises(InputError, match="needs a token"):
            async with serve_router(router, Listen(host="127.0.0.1")):
                pass
        async with serve_router(router, Listen(host="127.0.0.1"), "right") as listen:
            async with RouterClient(listen, "right") as client:
                assert await client.endpoints() == ()
            with pytest.raises(ModelError, match="the token is not the right one"):
                await RouterClient(listen, "wrong").__aenter__()
