"""The pool as a service: real sockets, real holder processes, and what happens when either end dies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import stat
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from deskroll.actions import Click
from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.lease import Lease
from deskroll.desktops.pool import Quotas
from deskroll.desktops.service import PoolClient, PoolService
from deskroll.desktops.service.keys import Caller, Client, Keys, read_clients
from deskroll.desktops.service.sessions import Sessions
from deskroll.desktops.service.wire import (
    MOST_KINDS,
    MOST_LEASES,
    SESSION_HEADER,
    Ask,
    Done,
    Expect,
    Granted,
    Kind,
    Return,
)
from deskroll.errors import DesktopError, InputError, LeaseLost, NoDesktop
from deskroll.host.listen import Listen
from tests.desktops.pool.conftest import Open, SimPool, settle
from tests.waiting import eventually, kill_task, tasks_named

ROOT = Path(__file__).parent.parent.parent.parent
TOKEN = "s3cret"
CLIENTS = {"ann": Client(token="a-token"), "bob": Client(token="b-token")}


@pytest_asyncio.fixture
async def service(open_pool: Open, tmp_path: Path) -> AsyncIterator[tuple[SimPool, str]]:
    """A pool of two desktops, served on a unix socket."""
    pool = await open_pool(num_vms=2)
    at = f"unix:{tmp_path / 'pool.sock'}"
    async with PoolService(pool, Listen.parse(at)):
        yield pool, at


@asynccontextmanager
async def holder(at: str, count: int, *args: str) -> AsyncIterator[tuple[Process, list[str]]]:
    """A process that holds desktops."""
    command = [sys.executable, "-m", "tests.desktops.pool.holder", at, str(count), *args]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, cwd=ROOT, start_new_session=True)
    try:
        assert process.stdout is not None
        yield process, json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def test_a_client_has_the_interface_of_a_pool(service: tuple[SimPool, str]) -> None:
    pool, at = service
    async with PoolClient(at, client="ann") as client:
        async with client.lease(DesktopSpec(), group="g") as lease:
            await lease.desktop.step([Click(x=5, y=5)])
            status = await client.status()
            (held,) = (desktop for desktop in status.desktops if desktop.state == "leased")
            assert (held.id, held.client, held.group) == (lease.address.id, "ann", "g")
        await pool.until_ready(2)
        with pytest.raises(LeaseLost, match="given back"):
            await lease.desktop.screenshot()
        await client.resize(1)
        assert (await client.status()).num_vms == 1
        await client.drain()
        with pytest.raises(NoDesktop, match="drained"):
            async with client.lease():
                pass


async def test_a_group_of_a_plan_keeps_its_place_whichever_process_asks(open_pool: Open, tmp_path: Path) -> None:
    pool, at = await open_pool(num_vms=1), f"unix:{tmp_path / 'pool.sock'}"
    served: list[str] = []

    async def hold(client: PoolClient, name: str) -> None:
        async with client.lease(group=name[0]):
            served.append(name)

    async with (
        PoolService(pool, Listen.parse(at)),
        PoolClient(at, client="one", plan="run") as one,
        PoolClient(at, client="two", plan="run") as two,
        pool.lease(),
        asyncio.TaskGroup() as tasks,
    ):
        for client, name in ((one, "a1"), (one, "b1"), (two, "a2"), (two, "b2"), (one, "a3")):
            before = (await pool.status()).waiting
            tasks.create_task(hold(client, name))
            while (await pool.status()).waiting == before:  # one after the other, for their order matters
                await settle()
        tasks.create_task(pool.free(next(iter((await pool.status()).desktops)).id))
    assert served == ["a1", "a2", "a3", "b1", "b2"]


async def test_the_socket_is_ours_alone_and_goes_with_the_service(open_pool: Open, tmp_path: Path) -> None:
    path = tmp_path / "pool.sock"
    path.write_text("precious")
    pool = await open_pool(num_vms=1)
    with pytest.raises(InputError, match="something else"):
        async with PoolService(pool, Listen.parse(f"unix:{path}")):
            pass
    assert path.read_text() == "precious"
    path.unlink()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))  # left behind: nobody listens
    async with PoolService(pool, Listen.parse(f"unix:{path}")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(InputError, match=r"already: run on that one \(--set pool=unix:"):
            async with PoolService(pool, Listen.parse(f"unix:{path}")):
                pass
    assert not path.exists()


async def test_errors_arrive_as_they_were(service: tuple[SimPool, str]) -> None:
    _, at = service
    async with PoolClient(at) as client:
        with pytest.raises(InputError, match="snapshot is 'nonsense'"):
            async with client.lease(DesktopSpec(snapshot="nonsense")):
                pass
        with pytest.raises(InputError, match="no desktop 'sim-0'"):
            await client.free("sim-0")
        async with client.lease(), client.lease():
            with pytest.raises(NoDesktop, match="longer timeout"):
                async with client.lease(timeout=0.05):
                    pass


async def test_a_killed_holder_loses_its_desktops_at_once(service: tuple[SimPool, str]) -> None:
    pool, at = service
    async with holder(at, 2) as (process, held), PoolClient(at) as client:
        assert (await client.status()).states["leased"] == 2
        process.send_signal(signal.SIGKILL)
        async with client.lease() as first, client.lease() as second:  # only the dead one's can be handed out
            assert {first.address.id, second.address.id} == set(held)
    assert [event.reason for event in pool.events.of("lease.lost")] == ["its holder holder is gone"] * 2


async def test_a_child_with_its_sockets_does_not_keep_a_dead_holder_alive(service: tuple[SimPool, str]) -> None:
    pool, at = service
    async with holder(at, 2, "fork") as (process, _):
        process.send_signal(signal.SIGKILL)
        await pool.until_ready(2)


@pytest.mark.parametrize("moment", range(8))
async def test_a_holder_that_is_cancelled_while_it_leaves_gives_its_desktop_back(
    service: tuple[SimPool, str], moment: int
) -> None:
    pool, at = service
    async with PoolClient(at) as client:

        async def use() -> None:
            async with client.lease() as lease:
                await lease.desktop.screenshot()
                leaving.set()

        leaving = asyncio.Event()
        using = asyncio.create_task(use())
        await leaving.wait()
        for _ in range(moment):
            await asyncio.sleep(0)
        using.cancel()
        await asyncio.wait([using])
        await pool.until_ready(2)


async def test_what_got_lost_on_its_way_is_set_right(service: tuple[SimPool, str]) -> None:
    """A release that never arrived, and a grant of which nobody heard: heartbeats tell."""
    pool, at = service
    async with PoolClient(at) as client:
        async with client.lease():
            session = client._session
            assert session is not None
        for name in ("unheard", "forgotten"):
            await client._call("POST", "/lease", Granted, Ask(lease=name), session=session, timeout=10.0)
        client._asking["unheard"] = asyncio.Event()
        seen = await client._compare(session, {"unheard", "forgotten"}, set())
        assert not client._asking["unheard"].is_set(), "its answer may still come"
        await client._compare(session, {"unheard"}, seen)
        assert client._asking.pop("unheard").is_set()
        await pool.until_ready(1)
        await client._compare(session, {"unheard"}, seen)
        await pool.until_ready(2)


async def test_a_holder_that_is_stopped_keeps_its_desktops_until_an_operator_says_so(
    service: tuple[SimPool, str],
) -> None:
    _, at = service
    async with holder(at, 1) as (process, held), PoolClient(at) as client:
        process.send_signal(signal.SIGSTOP)
        async with client.lease() as other:
            assert other.address.id not in held
            await client.free(held[0])
            async with client.lease() as taken:
                assert taken.address.id == held[0]


async def test_a_late_holder_is_told_and_cannot_touch_it(service: tuple[SimPool, str]) -> None:
    _, at = service
    async with PoolClient(at) as client, client.lease() as lease:
        await client.free(lease.address.id, "it was needed elsewhere")

        async def told() -> bool:
            return bool(lease.lost)

        await eventually(told, "the holder hears of it")
        with pytest.raises(LeaseLost, match="needed elsewhere"):
            await lease.desktop.screenshot()


async def test_a_cancelled_request_holds_nothing(service: tuple[SimPool, str]) -> None:
    pool, at = service
    async with PoolClient(at) as client:

        async def ask() -> None:
            async with client.lease():
                await asyncio.Event().wait()

        async with client.lease(), client.lease():
            waiting = asyncio.create_task(ask())

            async def waits() -> bool:
                return (await client.status()).waiting == 1

            await eventually(waits, "it waits")
            waiting.cancel()
            await asyncio.wait([waiting])

            async def nobody() -> bool:
                return (await client.status()).waiting == 0

            await eventually(nobody, "nobody waits any more")
        for turns in range(12):  # at whatever moment it comes
            asking = asyncio.create_task(ask())
            for _ in range(turns):
                await asyncio.sleep(0.0005)
            asking.cancel()
            await asyncio.wait([asking])
        await pool.until_ready(2)


async def test_a_client_that_leaves_gives_everything_back(service: tuple[SimPool, str]) -> None:
    pool, at = service
    async with PoolClient(at) as client:
        stack = AsyncExitStack()
        await stack.enter_async_context(client.lease())
    await pool.until_ready(2)
    await stack.aclose()


async def test_when_the_service_goes_the_leases_go(open_pool: Open, tmp_path: Path) -> None:
    pool = await open_pool(num_vms=1)
    at = f"unix:{tmp_path / 'pool.sock'}"
    async with PoolClient(at) as client, AsyncExitStack() as stack:
        async with PoolService(pool, Listen.parse(at)):
            lease = await stack.enter_async_context(client.lease())

        async def lost() -> bool:
            return bool(lease.lost)

        await eventually(lost, "the holder hears of it")
        with pytest.raises(NoDesktop, match=r"no pool answers at .*pool serve"):
            await client.status()
        async with PoolService(pool, Listen.parse(at)), client.lease() as again:  # started anew: the client goes on
            await again.desktop.screenshot()


@pytest.mark.parametrize("text", ["nonsense", "1.2.3.4", "unix:", "host:99999", ":5", "unix:" + "x" * 200])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="unix:PATH"):
        Listen.parse(text)


@pytest_asyncio.fixture
async def tcp(open_pool: Open) -> AsyncIterator[tuple[SimPool, str]]:
    """A pool of two desktops, served on TCP with a token."""
    pool = await open_pool(num_vms=2)
    async with PoolService(pool, Listen.parse("127.0.0.1:0"), token=TOKEN) as service:
        yield pool, str(service.address)


async def test_tcp_wants_its_token(open_pool: Open, tcp: tuple[SimPool, str]) -> None:
    pool, at = tcp
    with pytest.raises(InputError, match="needs a token"):
        PoolService(pool, Listen.parse("127.0.0.1:0"))
    for token, words in (("", "wants its token"), ("wrong", "the token is wrong")):
        async with PoolClient(at, token=token) as client:
            with pytest.raises(DesktopError, match=words):
                await client.status()
            with pytest.raises(DesktopError, match=words):
                async with client.lease():
                    pass
    async with PoolClient(at, token=TOKEN) as client, client.lease() as lease:
        await lease.desktop.screenshot()


async def test_the_token_of_the_environment_is_used(tcp: tuple[SimPool, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESKROLL_TOKEN", TOKEN)
    async with PoolClient(tcp[1]) as client:
        status = await client.status()
    assert status.desktops[0].spec.client_password == "", "nobody's secret is shown"
    with pytest.raises(NoDesktop, match="not open"):
        await client.status()


async def test_nonsense_is_answered_in_kind(tcp: tuple[SimPool, str]) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(base_url=tcp[1], headers=headers) as http:
        for method, path, body, status, words in (
            ("GET", "/nope", b"", 404, "there are: /drain"),
            ("GET", "/lease", b"", 405, "takes POST"),
            ("POST", "/resize", b'{"num_vms": 1, "nope": 2}', 400, "nope"),
            ("POST", "/resize", b'{"num_vms": 99999999999}', 400, "100,000"),
            ("POST", "/free", b'{"desktop": "' + b"x" * 300 + b'"}', 400, "length"),
            ("POST", "/session", b"{}", 400, "boot is missing"),
        ):
            async with http.request(method, path, data=body) as answer:
                problem = await answer.json()
                assert (answer.status, set(problem)) == (status, {"error", "kind"})
                assert words in problem["error"]


async def test_a_client_with_a_token_of_its_own_is_that_client_and_no_operator(open_pool: Open) -> None:
    pool = await open_pool(num_vms=2, quotas=Quotas(named={"ann": 1}))
    listen = Listen.parse("127.0.0.1:0")
    async with PoolService(pool, listen, token=TOKEN, clients=CLIENTS) as service:
        at = str(service.address)
        async with (
            PoolClient(at, token="a-token", client="bob") as ann,
            PoolClient(at, token=TOKEN) as operator,
            ann.lease() as lease,
        ):
            (held,) = (desktop for desktop in (await ann.status()).desktops if desktop.state == "leased")
            assert held.client == "ann", "whatever it calls itself"
            with pytest.raises(NoDesktop, match="'ann' may hold 1"):
                async with ann.lease(timeout=0.05):
                    pass
            for forbidden in (ann.resize(1), ann.drain(), ann.free(lease.address.id)):
                with pytest.raises(DesktopError, match="for the pool's operator"):
                    await forbidden
            session = ann._session
            assert session is not None
            async with PoolClient(at, token="b-token") as bob:
                with pytest.raises(LeaseLost, match="no such session"):
                    await bob._call("POST", "/release", Done, Return(lease=lease.id), session=session)
            await operator.free(lease.address.id)
    with pytest.raises(InputError, match="token of somebody else"):
        PoolService(pool, listen, token=TOKEN, clients={"ann": Client(token=TOKEN)})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ann one two", "line 1, word 3: after NAME TOKEN write FIELD=VALUE"),
        ("ann x\nann y", "line 2"),
        ("# nobody", "names no client"),
        ("ann", "line 1"),
        ("ann one rights=all", "the fields: width, "),
        ("ann one memory_mb=much", "memory_mb is 'much'; write a number"),
        ("ann one network=perhaps", "network is 'perhaps'; write true or false"),
    ],
)
def test_a_file_of_clients_that_makes_no_sense_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "clients"
    file.write_text(text)
    with pytest.raises(InputError, match="chmod 600"):
        read_clients(file)
    file.chmod(0o600)
    with pytest.raises(InputError, match=words):
        read_clients(file)
    file.write_text("# who\n\nann one\nbob two\n")
    assert read_clients(file) == {"ann": Client(token="one"), "bob": Client(token="two")}
    file.write_text("ann one memory_mb=8192 network=true snapshot=office,1\n")
    allowed = {"memory_mb": 8192, "network": True, "snapshot": "office,1"}
    assert read_clients(file) == {"ann": Client(token="one", allowed=allowed)}
    assert "one" not in repr(read_clients(file))


async def test_a_client_gets_no_more_than_the_pools_own_desktops_have_unless_it_may(open_pool: Open) -> None:
    pool = await open_pool(num_vms=1)
    largest = {"memory_mb": 8192, "network": True}
    clients = {**CLIENTS, "big": Client(token="c-token", allowed=largest)}
    async with PoolService(pool, Listen.parse("127.0.0.1:0"), token=TOKEN, clients=clients) as service:
        at = str(service.address)
        async with (
            PoolClient(at, token="a-token", plan="p") as ann,
            PoolClient(at, token="c-token") as big,
            PoolClient(at, token=TOKEN) as operator,
        ):
            for field, value, most in [
                ("network", True, "at most false"),
                ("memory_mb", 900_000, "at most 4096"),
                ("disk_mb", 500_000, "at most 2048"),
                ("processes", 100_000, "at most 1024"),
                ("width", 3840, "at most 1920"),
                ("fixed_ip", True, "at most false"),
            ]:
                asked = DesktopSpec(**{field: value})
                words = (
                    rf"client ann .*{field} is {str(value).lower()} \({most}\).*ann TOKEN {field}={str(value).lower()}"
                )
                with pytest.raises(InputError, match=words):
                    async with ann.lease(asked):
                        pass
                with pytest.raises(InputError, match=words):
                    await ann.expect({asked: 1})
            async with ann.lease(DesktopSpec(width=800, height=600, memory_mb=512)) as lease:
                assert lease.spec.memory_mb == 512
            async with big.lease(DesktopSpec(**largest)) as lease:
                assert lease.spec.network
            with pytest.raises(InputError, match=r"memory_mb is 8193 \(at most 8192\)"):
                async with big.lease(DesktopSpec(memory_mb=8193)):
                    pass
            async with operator.lease(DesktopSpec(memory_mb=900_000)) as lease:
                assert lease.spec.memory_mb == 900_000


async def test_a_client_gets_the_states_that_it_may_start_from(open_pool: Open) -> None:
    pool = await open_pool(sim={"snapshots": "plain,office,payroll"}, num_vms=1, spec=DesktopSpec(snapshot="plain"))
    clients = {**CLIENTS, "eve": Client(token="e-token", allowed={"snapshot": "office"})}
    async with PoolService(pool, Listen.parse("127.0.0.1:0"), token=TOKEN, clients=clients) as service:
        at = str(service.address)
        async with (
            PoolClient(at, token="a-token", plan="p") as ann,
            PoolClient(at, token="e-token") as eve,
            PoolClient(at, token=TOKEN) as operator,
        ):
            payroll = DesktopSpec(snapshot="payroll")
            for client, name, allowed, more in (
                (ann, "ann", "plain", "snapshot=payroll"),
                (eve, "eve", "office, plain", "snapshot=office,payroll"),
            ):
                words = rf"client {name} .*snapshot is payroll \(allowed: {allowed}\).*{name} TOKEN {more}$"
                with pytest.raises(InputError, match=words):
                    async with client.lease(payroll):
                        pass
            with pytest.raises(InputError, match="payroll"):
                await ann.expect({payroll: 1})
            with pytest.raises(InputError, match="client_password has 201 characters"):
                async with ann.lease(DesktopSpec(client_password="x" * 201)):
                    pass
            for client, state in ((ann, "plain"), (ann, ""), (eve, "office"), (eve, "plain"), (operator, "payroll")):
                async with client.lease(DesktopSpec(snapshot=state)) as lease:
                    assert lease.spec.snapshot == state


def test_the_line_that_would_allow_more_takes_nothing_away(tmp_path: Path) -> None:
    file = tmp_path / "clients"
    states = ",".join(f"state-{number}" for number in range(40))

    def written(line: str) -> Caller:
        file.write_text(f"{line}\n")
        file.chmod(0o600)
        caller = Keys("operator", read_clients(file)).who("Bearer a-token")
        assert caller is not None
        return caller

    caller = written(f"ann a-token network=true memory_mb=8192 snapshot={states}")
    more = DesktopSpec(memory_mb=9000, snapshot="payroll")
    with pytest.raises(InputError) as refused:
        caller.check_spec(more, DesktopSpec())
    told = str(refused.value).rpartition("  ")[2]
    caller = written(told.replace("TOKEN", "a-token"))
    assert caller.allowed == {"network": True, "memory_mb": 9000, "snapshot": f"{states},payroll"}
    caller.check_spec(more, DesktopSpec())


async def test_a_plan_holds_as_long_as_one_of_those_who_told_it(open_pool: Open, tmp_path: Path) -> None:
    pool = await open_pool(num_vms=1, min_vms=0)
    at = f"unix:{tmp_path / 'pool.sock'}"
    async with PoolService(pool, Listen.parse(at)), PoolClient(at, plan="p") as one:
        await one.expect({DesktopSpec(): 2})
        async with PoolClient(at, plan="p") as other:
            await other.expect({DesktopSpec(): 2})
        for _ in range(2):
            async with one.lease():
                pass

        async def gone() -> bool:
            return not (await pool.status()).desktops

        await eventually(gone, "what comes free after the last lease is stopped")
        assert pool.world.resets == 1, "once, for the second lease"


async def test_plans_of_two_clients_are_two_whatever_they_are_called(open_pool: Open) -> None:
    pool = await open_pool(num_vms=1, min_vms=0)
    clients = {"a/b": Client(token="a-token"), "a": Client(token="b-token")}
    async with (
        PoolService(pool, Listen.parse("127.0.0.1:0"), clients=clients) as service,
        PoolClient(str(service.address), token="a-token", plan="c") as teller,
        PoolClient(str(service.address), token="b-token", plan="b/c") as stranger,
    ):
        await teller.expect({DesktopSpec(): 0})
        async with stranger.lease():
            pass
        await pool.until_ready(1)
        assert pool.world.resets == 1, "nobody has told what the stranger's plan comes to"


async def test_nobody_tells_of_more_leases_than_there_can_be(service: tuple[SimPool, str]) -> None:
    _, at = service
    async with PoolClient(at, plan="p") as client:
        await client.expect({DesktopSpec(): 10**18})  # as many as can be told
        session = await client._ready_session()
        for kinds, words in (
            ((Kind(spec=DesktopSpec(), leases=MOST_LEASES + 1),), "leases"),
            (tuple(Kind(spec=DesktopSpec(width=640 + n), leases=1) for n in range(MOST_KINDS + 1)), "kinds"),
        ):
            with pytest.raises(InputError, match=words):
                await client._call("POST", "/expect", Done, Expect(kinds=kinds), session=session)


async def test_a_web_page_gets_nothing(tcp: tuple[SimPool, str]) -> None:
    _, at = tcp
    headers = {"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}
    async with aiohttp.ClientSession() as http, http.get(f"{at}/status", headers=headers) as answer:
        assert answer.status == 403


async def test_over_tcp_a_session_lives_by_its_heartbeats(tcp: tuple[SimPool, str]) -> None:
    """By plain requests, as a program in another language would make them."""
    pool, at = tcp
    async with aiohttp.ClientSession(base_url=at, headers={"Authorization": f"Bearer {TOKEN}"}) as http:
        async with http.post("/session", json={"client": "curl", "boot": boot()}) as answer:
            hello = await answer.json()
        assert hello["ttl_s"] >= 30
        assert hello["watched"] is False
        ours = {SESSION_HEADER: hello["session"]}
        async with http.post("/lease", json={"lease": "mine"}, headers=ours) as answer:
            assert (await answer.json())["address"]["provider"] == "sim"
        async with http.post("/heartbeat", headers=ours) as answer:
            assert await answer.json() == {"leases": ["mine"]}
        async with http.post("/release", json={"lease": "mine"}, headers=ours) as answer:
            assert answer.status == 200
        async with http.post("/heartbeat", headers={SESSION_HEADER: "unknown"}) as answer:
            assert answer.status == 409
            assert "no such session" in (await answer.json())["error"]
        for body in (b"{", b"[]", b'{"lease": 5}', b'{"lease": "x", "spec": {"width": "wide"}}'):
            async with http.post("/lease", data=body, headers=ours) as answer:
                assert answer.status == 400
                assert "error" in await answer.json()
    await pool.until_ready(2)


@pytest.mark.parametrize(
    ("path", "body"),
    [("/expect", {"kinds": [{"spec": {}, "leases": 1}]}), ("/lease", {"lease": "a"}), ("/release", {"lease": "a"})],
)
async def test_a_session_that_ends_while_it_still_speaks_is_refused(
    tcp: tuple[SimPool, str], path: str, body: dict[str, object]
) -> None:
    pool, at = tcp
    async with aiohttp.ClientSession(base_url=at, headers={"Authorization": f"Bearer {TOKEN}"}) as http:
        async with http.post("/session", json={"plan": "p", "boot": boot()}) as answer:
            ours = {SESSION_HEADER: (await answer.json())["session"]}

        async def speak() -> AsyncIterator[bytes]:
            yield b" "
            async with http.post("/leave", headers=ours) as left:
                assert left.status == 200
            yield json.dumps(body).encode()

        async with http.post(path, data=speak(), headers=ours) as answer:
            assert (answer.status, (await answer.json()).get("kind")) == (409, "LeaseLost")
    await pool.until_ready(2)


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


async def test_a_session_without_a_sign_of_life_loses_everything(open_pool: Open) -> None:
    pool = await open_pool(num_vms=1)
    sessions = Sessions(pool, ttl=30.0)
    session = sessions.begin("far", now=100.0)
    lease = await pool.acquire(client="far")
    session.leases[lease.id] = lease
    session.renew(now=120.0)
    sessions.end_expired(now=149.0)
    assert not lease.lost
    sessions.end_expired(now=151.0)
    assert lease.lost == "its holder far gave no sign of life for 30 s"
    assert sessions.find(session.id) is None


async def test_a_far_holder_stops_by_itself_before_its_time_is_over(open_pool: Open) -> None:
    pool = await open_pool({"step_hangs": "1", "fence": "timed"}, num_vms=1)
    granted = await pool.acquire()
    time_left = 0.2
    lease = Lease(granted.id, granted.address, granted.spec, seconds_left=lambda: time_left)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(lease.close)
        with pytest.raises(LeaseLost, match="during a request"):
            await lease.desktop.step([Click(x=1, y=1)])  # it may take 30 s, but not longer than the lease
        time_left = 0.0
        with pytest.raises(LeaseLost, match="could not be reached in time"):
            await lease.desktop.screenshot()


async def test_desktops_of_this_host_go_to_holders_of_this_host(tcp: tuple[SimPool, str]) -> None:
    _, at = tcp
    async with (
        aiohttp.ClientSession(base_url=at, headers={"Authorization": f"Bearer {TOKEN}"}) as http,
        http.post("/session", json={"boot": "another host's"}) as answer,
    ):
        assert answer.status == 400
        assert "own host only" in (await answer.json())["error"]


async def test_a_sign_of_life_gives_nothing_back_in_other_words_than_its_holder(
    open_pool: Open, tmp_path: Path
) -> None:
    """A request was given up, so this desktop must not be used again: also where a heartbeat comes in between."""
    pool = await open_pool({"step_hangs": "1", "fence": "timed"}, num_vms=1)
    at = f"unix:{tmp_path / 'pool.sock'}"
    closing, beaten = asyncio.Event(), asyncio.Event()

    async def hold(client: PoolClient) -> str:
        async with client.lease() as lease:
            close = lease.close

            async def slowly() -> None:
                closing.set()
                await beaten.wait()
                await close()

            lease.close = slowly  # type: ignore[method-assign]
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(lease.desktop.step([Click(x=1, y=1)]), 0.3)
            return lease.address.id

    async with PoolService(pool, Listen.parse(at)), PoolClient(at, beat=0.02) as client:
        holding = asyncio.create_task(hold(client))
        await closing.wait()
        for _ in range(3):
            last = client._renewed_at

            async def beat(last: float = last) -> bool:
                return client._renewed_at > last

            await eventually(beat, "it has shown another sign of life")
        beaten.set()
        held = await holding
        await pool.until_ready(1)
    assert (pool.world.resets, held in pool.world.desktops) == (0, False)


async def test_what_the_pool_no_longer_knows_is_not_owed(service: tuple[SimPool, str]) -> None:
    """The answer to a release was lost: the client does not keep that for ever."""
    pool, at = service
    async with PoolClient(at, beat=0.02) as client:
        async with client.lease() as lease:
            pass
        client._owed[lease.id] = Return(lease=lease.id)

        async def forgotten() -> bool:
            return not client._owed

        await eventually(forgotten, "a sign of life has told")
        await pool.until_ready(2)


async def test_quotas_count_by_client(open_pool: Open, tmp_path: Path) -> None:
    pool = await open_pool(num_vms=3, quotas=Quotas(each=1))
    await pool.until_ready(3)
    at = f"unix:{tmp_path / 'pool.sock'}"
    async with (
        PoolService(pool, Listen.parse(at)),
        PoolClient(at, client="a") as one,
        PoolClient(at, client="b") as two,
        one.lease(),
    ):
        with pytest.raises(NoDesktop, match="client 'a' may hold 1 at a time"):
            async with one.lease(timeout=0.05):
                pass
        async with two.lease():
            pass


async def test_many_holders_at_once(open_pool: Open, tmp_path: Path) -> None:
    pool = await open_pool({"reset": "0", "boot": "0"}, num_vms=10)
    at = f"unix:{tmp_path / 'pool.sock'}"
    async with PoolService(pool, Listen.parse(at)), PoolClient(at) as client:

        async def use() -> None:
            async with client.lease() as lease:
                await lease.desktop.step([Click(x=1, y=1)])

        await asyncio.gather(*(use() for _ in range(200)))
        await settle()
    assert pool.world.resets >= 190
    assert os.listdir(tmp_path) == []


async def test_a_killed_expiry_of_sessions_is_started_again(
    service: tuple[SimPool, str], caplog: pytest.LogCaptureFixture
) -> None:
    name = "the expiry of the pool's sessions"
    (first,) = tasks_named(name)
    with caplog.at_level(logging.WARNING, "deskroll"):
        await kill_task(name)

        async def healed() -> bool:
            return bool(tasks_named(name))

        await eventually(healed, "it is started again", 30)
    assert tasks_named(name) != [first]
    assert caplog.messages == [f"{name} died (CancelledError), and is started again"]


@pytest.mark.parametrize("name", ["the heartbeat to the pool", "what listens to the pool"])
async def test_a_killed_heartbeat_gives_up_its_desktops_and_the_next_request_begins_again(
    service: tuple[SimPool, str], caplog: pytest.LogCaptureFixture, name: str
) -> None:
    _, at = service
    told = f"{name} died (CancelledError), and the desktops that it kept for us are given up"
    async with PoolClient(at) as client:
        async with client.lease() as lease:
            await kill_task(name)

            async def lost() -> bool:
                return bool(lease.lost)

            await eventually(lost, "the lease is lost", 30)
            with pytest.raises(LeaseLost, match="died"):
                await lease.desktop.screenshot()
        assert (lease.lost, [line for line in caplog.messages if "died" in line]) == (told, [told])
        async with client.lease() as another:
            await another.desktop.screenshot()
