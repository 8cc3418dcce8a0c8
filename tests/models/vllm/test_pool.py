"""A pool of model servers: refreshed, killed, restarted, added and removed, while requests go on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from deskroll.errors import InputError, ModelError
from deskroll.host.listen import Listen
from deskroll.models.base import ModelCall
from deskroll.models.messages import Message
from deskroll.models.openai import OpenAIModel
from deskroll.models.router.client import RouterClient
from deskroll.models.router.roster import EndpointState
from deskroll.models.scripted import Reloading, Trouble, Weights
from deskroll.models.settings import ModelSettings
from deskroll.models.vllm.control import ServerControl
from deskroll.models.vllm.gpus import Gpu, read_gpus
from deskroll.models.vllm.pool import ModelServicePool
from deskroll.models.vllm.status import Reloaded
from deskroll.models.weights.refusal import CheckpointRefused
from deskroll.types import Completion
from tests.models.vllm.askers import Askers, ask, fits
from tests.models.vllm.scripted_pool import ScriptedReplica, ScriptedServers, scripted_pool
from tests.models.weights.files import one_file, safetensors
from tests.waiting import PATIENCE_S, eventually


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return one_file(tmp_path / "w" / "step_0", fill=0.5, marker="READY")


@pytest.fixture
def servers(short_path: Path) -> ScriptedServers:
    return ScriptedServers(short_path)


@pytest.fixture
def short_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s")


def version(base: Path, number: int) -> Path:
    return one_file(base.parent / f"step_{number}", fill=0.5 + number / 100, marker="READY")


@pytest.mark.parametrize("rolling", [1, 0])
async def test_ten_refreshes_under_32_requests_lose_none_and_each_answer_is_of_its_version(
    base: Path, short_path: Path, rolling: int
) -> None:
    servers = ScriptedServers(short_path, latency=0.02)
    told: list[str] = []
    weights = {"source": str(base.parent), "poll": 3600}
    async with scripted_pool(servers, base, told, replicas=2, weights=weights, rolling=rolling) as pool:
        await pool.ready()
        askers = Askers(pool, 32)
        for number in range(1, 11):
            await askers.more(10)
            version(base, number)
            moved = await pool.load_latest_model()
            assert (moved.changed, moved.checkpoint.version) == (True, str(number))
            assert [view.version for view in pool.endpoints()] == [str(number)] * 2
        await askers.more(10)
        await askers.stop()
        assert not (await pool.load_latest_model()).changed, "nothing newer"
    assert {answer.version for answer in askers.answers} >= {str(number) for number in range(1, 11)}
    assert all(fits(base, answer) for answer in askers.answers)
    assert told == []
    assert len(servers.started) == 2, "no server was started again"
    assert servers.open == []


async def test_newer_weights_come_by_themselves_one_server_at_a_time(base: Path, servers: ScriptedServers) -> None:
    states: list[set[EndpointState]] = []
    async with scripted_pool(servers, base, [], replicas=2, weights={"source": str(base.parent), "poll": 0.05}) as pool:
        await pool.ready()
        for server in servers.started:
            server.scripted.trouble = Trouble(reload_s=0.2)
        version(base, 3)

        async def all_new() -> bool:
            views = pool.endpoints()
            states.append({view.state for view in views})
            return all(view.version == "3" and view.state is EndpointState.UP for view in views)

        await eventually(all_new, "both have version 3")
    assert {EndpointState.UP, EndpointState.DRAINING} in states
    assert all(EndpointState.UP in each for each in states), "one can be asked at any time"


async def test_a_killed_server_is_started_again_on_what_is_served(base: Path, servers: ScriptedServers) -> None:
    told: list[str] = []
    async with scripted_pool(
        servers, base, told, replicas=2, weights={"source": str(base.parent), "poll": 3600}
    ) as pool:
        await pool.ready()
        version(base, 1)
        await pool.load_latest_model()
        askers = Askers(pool, 8)
        await askers.more(8)
        await servers.started[0].kill()

        async def is_back() -> bool:
            return [view.state for view in pool.endpoints()] == [EndpointState.UP] * 2 and len(servers.started) == 3

        await eventually(is_back, "it is back")
        await askers.more(40)
        await askers.stop()
        assert servers.started[2].folder == base.parent / "step_1"
        assert {view.version for view in pool.endpoints()} == {"1"}
        assert all(fits(base, answer) for answer in askers.answers)
        assert "signal 9" in told[0]
        assert sum(each.deaths for each in (await pool.status()).replicas) == 1


async def test_a_server_that_is_killed_while_it_loads_comes_back_with_the_new_weights(
    base: Path, servers: ScriptedServers
) -> None:
    async with scripted_pool(servers, base, [], replicas=2, weights={"source": str(base.parent), "poll": 3600}) as pool:
        await pool.ready()
        first = servers.started[0]
        first.scripted.trouble = Trouble(reload_s=3600)
        version(base, 1)
        moving = await _loading(pool, first)
        await first.kill()
        assert (await moving).changed
        assert [(view.state, view.version) for view in pool.endpoints()] == [(EndpointState.UP, "1")] * 2
        assert fits(base, await ask(pool))


async def test_a_change_of_weights_goes_on_where_whoever_asked_for_it_is_cancelled(
    base: Path, servers: ScriptedServers
) -> None:
    async with scripted_pool(servers, base, [], replicas=2, weights={"source": str(base.parent), "poll": 3600}) as pool:
        await pool.ready()
        first = servers.started[0]
        first.scripted.trouble = Trouble(reload_s=0.2)
        version(base, 1)
        moving = await _loading(pool, first)
        moving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await moving
        assert not (await pool.load_latest_model()).changed, "it waits for the change that has begun"
        assert [(view.state, view.version) for view in pool.endpoints()] == [(EndpointState.UP, "1")] * 2
        assert len(servers.started) == 2, "no server was started again"
        assert fits(base, await ask(pool))


async def test_a_change_of_weights_ends_with_the_pool_and_says_so(base: Path, servers: ScriptedServers) -> None:
    told: list[str] = []
    async with scripted_pool(servers, base, told, weights={"source": str(base.parent), "poll": 3600}) as pool:
        await pool.ready()
        servers.started[0].scripted.trouble = Trouble(reload_s=3600)
        version(base, 1)
        moving = await _loading(pool, servers.started[0])
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(ModelError, match="the pool was ended before that was done"):
            await moving
    assert (servers.open, told) == ([], [])


async def _loading(pool: ModelServicePool, server: ScriptedReplica) -> asyncio.Task[Reloaded]:
    """A change of weights that has come to that server's reload."""
    moving = asyncio.create_task(pool.load_latest_model())

    async def loads() -> bool:
        return "/collective_rpc" in server.scripted.commands

    await eventually(loads, "it loads")
    return moving


class FaultyControl(ServerControl):
    """Has a bug in it."""

    async def post(self, *args: object, **fields: object) -> tuple[int, bytes]:
        raise RuntimeError("a bug of ours")


async def test_a_refresh_that_dies_of_a_bug_means_a_restart_and_the_other_servers_are_refreshed(
    base: Path, servers: ScriptedServers
) -> None:
    told: list[str] = []
    weights = {"source": str(base.parent), "poll": 3600}
    async with scripted_pool(servers, base, told, replicas=2, weights=weights) as pool:
        await pool.ready()
        first = servers.started[0]
        await first.control.__aexit__()
        first.control = FaultyControl(first.socket)
        version(base, 1)
        assert (await pool.load_latest_model()).changed
        assert [(view.state, view.version) for view in pool.endpoints()] == [(EndpointState.UP, "1")] * 2
    assert told == ["server 0: a refresh died: RuntimeError: a bug of ours\nit is started again"]


async def test_a_server_that_dies_too_often_is_given_up_and_says_why(base: Path, short_path: Path) -> None:
    servers, told = ScriptedServers(short_path, fail_starts=3), []
    async with scripted_pool(servers, base, told, restarts={"most": 2, "within": 600}) as pool:
        with pytest.raises(ModelError, match="no server of the pool is up:\nout of memory"):
            await pool.ready()
        (replica,) = (await pool.status()).replicas
        assert (replica.state, replica.deaths, replica.last_error) == ("given up", 3, "out of memory")
        assert pool.endpoints() == ()
        assert "given up after 3 deaths" in told[-1]


@pytest.mark.parametrize("trouble", [Reloading.NOTHING, Reloading.FAILS])
async def test_a_reload_that_does_nothing_or_fails_means_a_restart_on_the_new_folder(
    base: Path, servers: ScriptedServers, trouble: Reloading
) -> None:
    told: list[str] = []
    async with scripted_pool(
        servers, base, told, replicas=2, weights={"source": str(base.parent), "poll": 3600}
    ) as pool:
        await pool.ready()
        servers.started[0].scripted.trouble = Trouble(reload=trouble)
        version(base, 1)
        assert (await pool.load_latest_model()).changed
        assert [view.version for view in pool.endpoints()] == ["1", "1"]
        assert len(servers.started) == 3
        answers = [await ask(pool) for _ in range(4)]
        assert all(answer.version == "1" and fits(base, answer) for answer in answers)
    assert len(told) == 1
    assert "it is started again" in told[0]


@pytest.mark.parametrize(("replicas", "rolling"), [(1, 1), (2, 1), (2, 0)])
async def test_weights_with_which_no_server_starts_are_taken_back_and_the_last_good_ones_go_on(
    base: Path, servers: ScriptedServers, replicas: int, rolling: int
) -> None:
    told: list[str] = []
    weights = {"source": str(base.parent), "poll": 3600}
    fields = {"replicas": replicas, "rolling": rolling, "weights": weights, "restarts": {"most": 0, "within": 600}}
    async with scripted_pool(servers, base, told, **fields) as pool:
        await pool.ready()
        version(base, 1)
        await pool.load_latest_model()
        for server in servers.started:
            server.scripted.trouble = Trouble(reload=Reloading.FAILS)
        servers.unfit.add("step_2")
        version(base, 2)
        askers = Askers(pool, 4)
        with pytest.raises(CheckpointRefused, match=r"version 2 in .*step_2: no server takes it: out of memory"):
            await pool.load_latest_model()
        await pool.ready()
        await askers.more(20)
        await askers.stop()
        assert [(view.state, view.version) for view in pool.endpoints()] == [(EndpointState.UP, "1")] * replicas
        assert {answer.version for answer in askers.answers} == {"1"}
        assert all(fits(base, answer) for answer in askers.answers)
        assert "no server takes it" in pool.checkpoint_info().refused
        assert {each.deaths for each in (await pool.status()).replicas} == {0}, "it is the weights' fault"
        assert sum("refused, and version 1 goes on" in line for line in told) == 1
        assert not (await pool.load_latest_model()).changed, "it is not tried again"
        version(base, 3)
        assert (await pool.load_latest_model()).checkpoint.version == "3"


async def test_weights_that_one_server_has_are_not_taken_back_for_another_that_dies(
    base: Path, servers: ScriptedServers
) -> None:
    told: list[str] = []
    weights = {"source": str(base.parent), "poll": 3600}
    async with scripted_pool(
        servers, base, told, replicas=2, weights=weights, restarts={"most": 1, "within": 600}
    ) as pool:
        await pool.ready()
        servers.started[1].scripted.trouble = Trouble(reload=Reloading.FAILS)
        version(base, 1)
        servers.unfit.add("step_1")
        assert (await pool.load_latest_model()).changed
        assert [(view.state, view.version) for view in pool.endpoints()] == [(EndpointState.UP, "1")]
        assert [each.state for each in (await pool.status()).replicas] == ["up", "given up"]


async def test_the_newest_weights_at_the_start_may_be_unfit(base: Path, servers: ScriptedServers) -> None:
    told: list[str] = []
    version(base, 4)
    servers.unfit.add("step_4")
    async with scripted_pool(servers, base, told, weights={"source": str(base.parent), "poll": 3600}) as pool:
        await pool.ready()
        answer = await ask(pool)
        assert (answer.version, fits(base, answer)) == ("0", True)
    assert [each.folder.name for each in servers.started] == ["step_4", "step_4", "step_0"]


async def test_a_reload_may_go_back_and_says_so(base: Path, servers: ScriptedServers) -> None:
    told: list[str] = []
    newer = version(base, 7)
    async with scripted_pool(servers, newer, told) as pool:
        await pool.ready()
        moved = await pool.reload(base)
        assert (moved.went_back, moved.checkpoint.version) == (True, "0")
        answer = await ask(pool)
        assert (answer.version, fits(base, answer)) == ("0", True)
    assert told == ["went back from version 7 to 0"]


async def test_the_newest_weights_are_there_from_the_start(base: Path, servers: ScriptedServers) -> None:
    version(base, 4)
    async with scripted_pool(servers, base, [], weights={"source": str(base.parent), "poll": 3600}) as pool:
        await pool.ready()
        assert servers.started[0].folder.name == "step_4"
        assert (await ask(pool)).version == "4"


@pytest.mark.parametrize("mode", ["keep", "abort"])
async def test_open_requests_are_answered_whatever_becomes_of_them(base: Path, short_path: Path, mode: str) -> None:
    servers = ScriptedServers(short_path, latency=(0.1, 0.5))  # not all of them end in the same moment
    weights = {"source": str(base.parent), "poll": 3600}
    async with scripted_pool(servers, base, [], replicas=2, weights=weights, refresh=mode) as pool:
        await pool.ready()
        askers = Askers(pool, 8)
        await askers.more(8)
        version(base, 1)
        await pool.load_latest_model()
        await askers.more(16)
        await askers.stop()
    assert {answer.finish_reason for answer in askers.answers} == {"stop"}
    assert {answer.version for answer in askers.answers} == {"0", "1"}
    changed = [answer for answer in askers.answers if answer.version_end]
    assert {(answer.version, answer.version_end) for answer in changed} == ({("0", "1")} if mode == "keep" else set())
    assert all(fits(base, answer) for answer in askers.answers if not answer.version_end)
    # One that was on its way when the weights changed may say so, too.
    assert not changed or not all(fits(base, answer) for answer in changed)


async def test_servers_are_told_who_asks(base: Path, servers: ScriptedServers) -> None:
    async with scripted_pool(servers, base, []) as pool:
        await pool.ready()
        call = ModelCall(session="train/0/töne/2#1")
        await pool.generate([Message.user("hello").sent], call=call)
        await pool.generate([Message.user("hello").sent])
        assert servers.started[0].scripted.sessions == ["", "train/0/t%C3%B6ne/2#1", ""], "the first was the warm-up"


async def test_servers_come_and_go(base: Path, servers: ScriptedServers) -> None:
    async with scripted_pool(servers, base, [], replicas=2) as pool:
        await pool.ready()
        first, second = (view.name for view in pool.endpoints())
        await pool.remove_service(first)
        assert [view.name for view in pool.endpoints()] == [second]
        assert [each.url for each in servers.open] == [second]
        with pytest.raises(InputError, match="last server"):
            await pool.remove_service(second)
        with pytest.raises(InputError, match="there is no endpoint"):
            await pool.remove_service("unix:/nowhere")
        pool.add_service("http://127.0.0.1:9/v1", "guest")
        assert [view.model for view in pool.endpoints()] == ["policy", "guest"]
        with pytest.raises(InputError, match="there already"):
            pool.add_service("http://127.0.0.1:9/v1")
        await pool.remove_service("http://127.0.0.1:9/v1")
        assert len(pool.endpoints()) == 1
        assert [each.state for each in (await pool.status()).replicas] == ["removed", "up"]


def adapter(base: Path, number: int) -> Weights:
    """One of a version, in a folder beside the base; what answers with it."""
    folder = base.parent / "adapters" / str(number)
    folder.mkdir(parents=True)
    (folder / "adapter_model.safetensors").write_bytes(safetensors({"a": (4,)}, fill=number))
    (folder / "READY").touch()
    return Weights.read(base).mixed(Weights.read(folder))


async def test_a_removal_goes_on_where_whoever_asked_for_it_is_cancelled(base: Path, short_path: Path) -> None:
    servers = ScriptedServers(short_path, latency=1.0)
    async with scripted_pool(servers, base, [], replicas=2) as pool:
        await pool.ready()
        asking = [asyncio.create_task(ask(pool)) for _ in range(2)]
        first = servers.started[0].url

        async def is_asked() -> bool:
            return [view.in_flight for view in pool.endpoints()] == [1, 1]

        await eventually(is_asked, "each is asked")
        removing = asyncio.create_task(pool.remove_service(first))

        async def drains() -> bool:
            return EndpointState.DRAINING in [view.state for view in pool.endpoints()]

        await eventually(drains, "it drains")
        removing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await removing
        assert all(await asyncio.gather(*asking))

        async def is_gone() -> bool:
            return [each.state for each in (await pool.status()).replicas] == ["removed", "up"]

        await eventually(is_gone, "it went all the same")
        assert [view.state for view in pool.endpoints()] == [EndpointState.UP]


async def test_adapters_are_asked_for_by_name_and_old_ones_are_unloaded(base: Path, servers: ScriptedServers) -> None:
    source = base.parent / "adapters"
    source.mkdir()
    weights = {"source": str(source), "poll": 3600}
    async with scripted_pool(servers, base, [], replicas=2, weights=weights, enable_lora=True) as pool:
        await pool.ready()
        assert (await ask(pool)).version == "0", "of what adapters are on"
        for number in range(1, 5):
            mixed = adapter(base, number)
            assert (await pool.load_latest_model()).changed
            answer = await ask(pool)
            assert answer.version == str(number)
            assert mixed.fits(answer.token_ids or (), answer.logprobs or ())
        commands = servers.started[0].scripted.commands
        assert commands.count("/v1/load_lora_adapter") == 4
        assert commands.count("/v1/unload_lora_adapter") == 2
        assert "/pause" not in "".join(commands)
        await servers.started[0].kill()

        async def is_back() -> bool:
            return [view.model for view in pool.endpoints() if view.state is EndpointState.UP] == ["policy@4"] * 2

        await eventually(is_back, "it is back with its adapter")


async def test_a_pinned_version_answers_on_however_many_newer_ones_come(base: Path, servers: ScriptedServers) -> None:
    mixed = {number: adapter(base, number) for number in range(1, 6)}
    told: list[str] = []

    async def asked_for(pool: ModelServicePool, name: str) -> Completion:
        settings = ModelSettings(name="policy", pool=pool.address, served_as=name, exact=True)
        async with OpenAIModel(settings) as model:
            return await model.complete([Message.user("how are you?").sent])

    async with scripted_pool(servers, base, told, replicas=2, enable_lora=True) as pool:
        await pool.ready()
        async with RouterClient(Listen.parse(pool.address)) as router, router.pinned("0") as plain:
            assert plain == "policy"
            await pool.reload(base.parent / "adapters/1")
            async with router.pinned("1") as name:
                assert name == "policy@1"
                for number in (2, 3, 4):
                    await pool.reload(base.parent / f"adapters/{number}")
                await servers.started[0].kill()
                await eventually(lambda: all_up(pool), "another one is there")
                answers = [await asked_for(pool, name) for _ in range(4)]
                assert {each.version for each in answers} == {"1"}
                assert all(mixed[1].fits(each.token_ids or (), each.logprobs or ()) for each in answers)
                assert ((await asked_for(pool, plain)).version, (await ask(pool)).version) == ("0", "4")
            await pool.reload(base.parent / "adapters/5")
            with pytest.raises(ModelError, match="no server has policy@1 any more"):
                await asked_for(pool, name)
            with pytest.raises(ModelError, match="no server can be asked for version 1 by name"):
                async with router.pinned("1"):
                    pass
    assert servers.started[2].scripted.commands.count("/v1/load_lora_adapter") == 3, "what is pinned, too"


async def test_another_run_s_adapter_of_the_same_version_takes_the_place_of_the_first(
    base: Path, servers: ScriptedServers
) -> None:
    def mixed(run: str, fill: float) -> Weights:
        folder = base.parent / run / "1"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "adapter_model.safetensors").write_bytes(safetensors({"a": (4,)}, fill=fill))
        return Weights.read(base).mixed(Weights.read(folder))

    async with scripted_pool(servers, base, [], replicas=2, enable_lora=True) as pool:
        await pool.ready()
        for run, fill, loads in (("first", 1, 1), ("second", 2, 2), ("copy", 2, 2), ("second", 3, 3)):
            weights = mixed(run, fill)
            assert (await pool.reload(base.parent / run / "1")).up == 2
            answers = [await ask(pool) for _ in range(4)]
            assert {each.version for each in answers} == {"1"}
            assert all(weights.fits(each.token_ids or (), each.logprobs or ()) for each in answers), run
            assert [view.state for view in pool.endpoints()] == [EndpointState.UP] * 2
            commands = [each.scripted.commands.count("/v1/load_lora_adapter") for each in servers.started]
            assert commands == [loads] * 2, run
    assert len(servers.started) == 2, "no server was started again"


async def test_a_pin_of_what_is_served_waits_for_the_only_server_to_come_back(
    base: Path, servers: ScriptedServers
) -> None:
    adapter(base, 1)
    async with scripted_pool(servers, base, [], enable_lora=True) as pool:
        await pool.ready()
        await pool.reload(base.parent / "adapters/1")
        servers.are_held = True
        await servers.started[0].kill()

        async def is_restarting() -> bool:
            return len(servers.started) == 2 and [view.state for view in pool.endpoints()] == [EndpointState.STARTING]

        await eventually(is_restarting, "another one is being started")
        async with RouterClient(Listen.parse(pool.address)) as router:
            pin = router.pinned("1")
            waiting = asyncio.ensure_future(pin.__aenter__())
            with pytest.raises(ModelError, match="no server can be asked for version 2 by name"):
                async with router.pinned("2"):
                    pass
            assert not waiting.done()
            servers.started[1].may_start.set()
            assert await asyncio.wait_for(waiting, PATIENCE_S) == "policy@1"
            await pin.__aexit__(None, None, None)


async def test_whole_weights_cannot_be_pinned(base: Path, servers: ScriptedServers) -> None:
    async with scripted_pool(servers, base, []) as pool:
        await pool.ready()
        async with RouterClient(Listen.parse(pool.address)) as router:
            with pytest.raises(ModelError, match="only adapters"):
                async with router.pinned("0"):
                    pass


async def all_up(pool: ModelServicePool) -> bool:
    return [view.state for view in pool.endpoints()] == [EndpointState.UP] * 2


def test_gpus_are_read() -> None:
    assert read_gpus("0, 512, 81559\nNVIDIA-SMI has failed, x\n") == (Gpu(index="0", used_mb=512, total_mb=81559),)
