"""Consumers over HTTP: on the service's own socket, and on TCP with a token."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from deskroll.errors import InputError
from deskroll.rollout.asking import find_live
from deskroll.service.loop import Service
from deskroll.service.routes import GroupRoutes
from deskroll.service.stream import GroupStream
from tests.rollout.conftest import until
from tests.service.conftest import Services
from tests.waiting import eventually


@asynccontextmanager
async def asking(service: Service) -> AsyncIterator[aiohttp.ClientSession]:
    """Somebody on this machine, who knows the run's folder."""
    path = await find_live(service.runtime.folder)
    async with aiohttp.ClientSession("http://run", connector=aiohttp.UnixConnector(str(path))) as http:
        yield http


async def get(http: aiohttp.ClientSession, **query: object) -> list[dict[str, Any]]:
    async with http.get("/groups", params={name: str(value) for name, value in query.items()}) as response:
        assert response.status == 200, await response.text()
        groups: list[dict[str, Any]] = (await response.json())["groups"]
        return groups


async def done(http: aiohttp.ClientSession, consumer: str, *groups: dict[str, Any]) -> Any:
    names = [{name: each[name] for name in ("phase", "round", "task")} for each in groups]
    async with http.post("/groups/done", json={"consumer": consumer, "groups": names}) as response:
        return response.status, await response.json()


async def test_groups_come_until_they_are_done(services: Services) -> None:
    services.drop("one.json", "a", "b")
    async with services.running(group_size=2) as service, asking(service) as http:
        first = (await get(http, consumer="trainer", wait=60))[0]
        assert (first["phase"], first["round"], first["end"]) == ("service", 0, "complete")
        assert [each["key"]["sample"] for each in first["episodes"]] == [0, 1]
        assert all(folder.startswith(str(services.folder)) for folder in first["folders"])
        assert (await get(http, consumer="trainer"))[0] == first, "it is not done"
        await until(lambda: (s := service.status()).done == 1 and not s.running, "both are closed")
        both = await get(http, consumer="trainer", max=10, wait=60)
        assert {each["task"] for each in both} == {"a", "b"}
        assert await done(http, "trainer", both[1]) == (200, {"consumer": "trainer", "done": 1})
        assert [each["task"] for each in await get(http, consumer="trainer", max=10)] == [both[0]["task"]]
        assert len(await get(http, consumer="another", max=10)) == 2
        assert {each.name: each.done for each in service.status().consumers} == {"trainer": 1, "another": 0}
        with pytest.raises(InputError, match="is in use"):
            await GroupStream(service.runtime.folder, "trainer").open()
    async with services.running(group_size=2) as service, asking(service) as http:
        assert await done(http, "trainer", both[0]) == (200, {"consumer": "trainer", "done": 2}), (
            "read from another start"
        )
        assert await get(http, consumer="trainer") == []


async def test_a_group_that_is_named_twice_is_noted_once(services: Services) -> None:
    services.drop("one.json", "a")
    async with services.running() as service, asking(service) as http:
        (group,) = await get(http, consumer="trainer", wait=60)
        assert await done(http, "trainer", group, group) == (200, {"consumer": "trainer", "done": 1})
    noted = (services.folder / "results" / "service" / "consumers" / "trainer.jsonl").read_text()
    assert noted.count('{"type":"done"') == 1


async def test_a_consumer_that_asks_no_more_is_let_go(services: Services) -> None:
    services.drop("one.json", "a")
    await services.run(max_batches=1)
    async with Service.open(services.config()) as service:
        routes = GroupRoutes(service.runtime.store, idle_s=0.05)
        app = web.Application()
        app.router.add_routes(routes.routes())
        async with TestClient(TestServer(app)) as http:
            for _ in range(2):
                answer = await http.get("/groups", params={"consumer": "trainer"})
                assert [each["task"] for each in (await answer.json())["groups"]] == ["a"]
            await until(lambda: routes.consumers() == (), "its time is over")

            async def found() -> GroupStream | None:
                stream = GroupStream(service.runtime.folder, "trainer")
                with contextlib.suppress(InputError):  # it is being closed
                    await stream.open()
                    return stream
                return None

            await (await eventually(found, "the name is free")).close()
            answer = await http.get("/groups", params={"consumer": "trainer"})
            assert [each["task"] for each in (await answer.json())["groups"]] == ["a"], "it may ask again"
        await routes.close()


async def test_a_wait_ends_with_the_first_group_and_with_the_service(services: Services) -> None:
    async with services.running() as service, asking(service) as http:
        waiting = asyncio.ensure_future(get(http, consumer="trainer", wait=300))
        services.drop("one.json", "a")
        assert [each["task"] for each in await asyncio.wait_for(waiting, 60)] == ["a"]
        assert (await done(http, "trainer", {"phase": "service", "round": 0, "task": "a"}))[0] == 200
        waiting = asyncio.ensure_future(get(http, consumer="trainer", wait=300))
        await until(lambda: service.status().consumers, "somebody waits")
        service.stop()
        assert await asyncio.wait_for(waiting, 60) == []


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({}, "a name has letters"),
        ({"consumer": "../x"}, "a name has letters"),
        ({"consumer": "x", "wait": "soon"}, "wait is 'soon'"),
        ({"consumer": "x", "wait": "301"}, "a number from 0 to 300"),
        ({"consumer": "x", "max": "101"}, "a number from 1 to 100"),
        ({"consumer": "x", "max": "0"}, "a number from 1 to 100"),
    ],
)
async def test_what_is_wrong_is_said(services: Services, query: dict[str, str], says: str) -> None:
    async with services.running() as service, asking(service) as http, http.get("/groups", params=query) as response:
        assert response.status == 400
        assert says in (await response.json())["error"]


async def test_nobody_is_done_with_what_is_not_closed(services: Services) -> None:
    async with services.running() as service, asking(service) as http:
        status, said = await done(http, "trainer", {"phase": "service", "round": 7, "task": "a"})
        assert (status, said) == (400, {"error": "there is no closed group service/7/a"})


async def test_stop_over_the_socket_drains(services: Services) -> None:
    services.drop("one.json", *"abc")
    async with Service.open(services.config(num_rollouts=1)) as service, asking(service) as http:
        work = asyncio.create_task(service.run())
        await until(lambda: service.status().running, "it runs")
        async with http.post("/stop", json={}) as response:
            assert (await response.json())["service"]["draining"]
        await asyncio.wait_for(work, 60)
    assert len(services.outcomes()) == 3


async def test_over_tcp_only_with_the_token(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.delenv("DESKROLL_TOKEN", raising=False)
    with pytest.raises(InputError, match="listen needs a token"):
        await services.run(listen=address)
    monkeypatch.setenv("DESKROLL_TOKEN", "secret")
    services.drop("one.json", "a")
    async with services.running(listen=address), aiohttp.ClientSession(f"http://{address}") as http:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            async with http.get("/groups", params={"consumer": "trainer"}, headers=headers) as response:
                assert response.status == 401
        http.headers["Authorization"] = "Bearer secret"
        (group,) = await get(http, consumer="trainer", wait=60)
        assert (await done(http, "trainer", group))[0] == 200
        async with http.post("/stop", json={}) as response:
            assert response.status == 404, "consumers steer nothing"
