"""What the scripted server does as a vLLM that no real one would do on request: weights that are known, and trouble."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from deskroll.errors import ConfigError, InputError
from deskroll.models.scripted import Reloading, Script, ScriptedServer, Starting, Trouble, VllmSettings, Weights
from tests.models.vllm_server import SCRIPT, SLOW, Answer, Vllm, scripted_vllm
from tests.waiting import eventually


def version(vllm: Vllm, answer: Answer, among: range = range(1, 5)) -> list[int]:
    """The versions whose weights gave an answer: one, or none where something was stale."""
    return [each for each in among if Weights.read(vllm.weights(each)).fits(answer.ids, answer.logprobs)]


async def test_which_weights_answered_is_seen(tmp_path: Path) -> None:
    async with scripted_vllm(tmp_path) as vllm:
        for number in (1, 3, 2):
            await vllm.refresh(number)
            assert version(vllm, await vllm.ask("hello")) == [number]
            assert version(vllm, await vllm.ask("look", image=True)) == [number]
        assert vllm.scripted
        assert vllm.scripted.commands[:3] == ["/pause?mode=wait", "/collective_rpc", "/reset_prefix_cache"]
        assert [len(vllm.scripted.commands), vllm.scripted.stats.refused] == [18, 0]


async def test_what_a_cache_holds_is_the_old_weights(tmp_path: Path) -> None:
    async with scripted_vllm(tmp_path) as vllm:
        assert version(vllm, await vllm.ask("look", image=True)) == [1]
        await vllm.load(2)
        assert version(vllm, await vllm.ask("hello")) == [2]
        assert version(vllm, await vllm.ask("look", image=True)) == [], "the prompt was read by the old weights"
        await vllm.post("/reset_prefix_cache")
        await vllm.post("/reset_mm_cache")
        assert version(vllm, await vllm.ask("look", image=True)) == [], "the image was seen by the old weights"
        await vllm.post("/reset_encoder_cache")
        await vllm.post("/reset_prefix_cache")
        assert version(vllm, await vllm.ask("look", image=True)) == [2]


async def test_an_answer_that_is_kept_has_tokens_of_both_weights(tmp_path: Path) -> None:
    async with scripted_vllm(tmp_path) as vllm:
        slow = asyncio.create_task(vllm.ask(SLOW))
        await vllm.until("running", 1)
        await vllm.post("/pause?mode=keep")
        await vllm.load(2)
        await vllm.post("/reset_prefix_cache?reset_running_requests=true")
        assert (await vllm.gauge("running"), await vllm.gauge("waiting")) == (0, 1)
        await vllm.post("/resume")
        answer = await slow
        old, new = (Weights.read(vllm.weights(each)) for each in (1, 2))
        given = list(zip(answer.ids, answer.logprobs, strict=True))
        first = sum(old.fits([token], [logprob]) for token, logprob in given)
        assert all(old.fits([token], [logprob]) for token, logprob in given[:first])
        assert all(new.fits([token], [logprob]) for token, logprob in given[first:])
        assert first < len(given)


async def test_more_than_can_run_wait(tmp_path: Path) -> None:
    async with scripted_vllm(tmp_path, max_running=2) as vllm:
        asked = [asyncio.create_task(vllm.ask("forever")) for _ in range(5)]
        await vllm.until("waiting", 3)
        assert await vllm.gauge("running") == 2
        for each in asked[:3]:
            each.cancel()
        await vllm.until("waiting", 0)
        await vllm.post("/pause?mode=abort")
        ended = await asyncio.gather(*asked, return_exceptions=True)
        assert [isinstance(each, Answer) for each in ended] == [False] * 3 + [True] * 2
        assert (await vllm.gauge("running"), await vllm.gauge("waiting")) == (0, 0)


async def test_reloads_that_do_nothing_take_time_or_fail(tmp_path: Path) -> None:
    async with scripted_vllm(tmp_path) as vllm:
        assert vllm.scripted
        vllm.scripted.trouble = Trouble(reload=Reloading.NOTHING)
        assert (await vllm.load(2)).json == {"results": [None]}
        assert version(vllm, await vllm.ask("hello")) == [1]
        vllm.scripted.trouble = Trouble(reload_s=0.01)
        await vllm.refresh(2)
        assert version(vllm, await vllm.ask("hello")) == [2]
        vllm.scripted.trouble = Trouble(reload=Reloading.FAILS)
        assert (await vllm.load(3)).status == 500
        assert (await vllm.get("/health")).status == 200
        assert (await vllm.ask("hello")).status == 500
        with pytest.raises(aiohttp.ClientError):
            await vllm.get("/health")


async def test_a_reset_that_fails(tmp_path: Path) -> None:
    async with scripted_vllm(tmp_path, trouble={"reset_fails": True}) as vllm:
        answer = await vllm.post("/reset_prefix_cache?reset_running_requests=true")
        assert (answer.status, answer.json) == (200, {"success": False})


async def test_silence_and_its_end(tmp_path: Path) -> None:
    async with scripted_vllm(tmp_path) as vllm:
        assert vllm.scripted
        vllm.scripted.trouble = Trouble(silent=True)
        asked = [asyncio.create_task(vllm.ask("hello")), asyncio.create_task(vllm.get("/health"))]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await vllm.get("/is_paused")
        assert not any(each.done() for each in asked)
        vllm.scripted.trouble = Trouble()
        assert [answer.status for answer in await asyncio.gather(*asked)] == [200, 200]


@pytest.mark.parametrize("unix", [False, True])
async def test_a_start_that_takes_time_refuses_connections(tmp_path: Path, unix: bool) -> None:
    async with scripted_vllm(tmp_path, unix=unix, trouble={"start_s": 0.5}) as vllm:
        with pytest.raises(aiohttp.ClientConnectorError):
            await vllm.get("/health")

        async def up() -> bool:
            try:
                return (await vllm.get("/health")).status == 200
            except aiohttp.ClientConnectorError:
                return False

        await eventually(up, "it is up")
        assert version(vllm, await vllm.ask("hello")) == [1]


async def test_a_start_that_takes_time_behind_a_proxy(tmp_path: Path) -> None:
    trouble = Trouble(start_s=0.5, starting=Starting.UNAVAILABLE)
    async with scripted_vllm(tmp_path, trouble=trouble) as vllm:
        assert (await vllm.get("/health")).status == 503
        assert (await vllm.ask("hello")).status == 503

        async def up() -> bool:
            return (await vllm.get("/health")).status == 200

        await eventually(up, "it is up")


async def test_it_may_be_left_before_it_is_up(tmp_path: Path) -> None:
    for unix in (False, True):
        async with scripted_vllm(tmp_path, unix=unix, trouble={"start_s": 3600}):
            pass


async def test_commands_know_no_key(tmp_path: Path) -> None:
    async with scripted_vllm(tmp_path, token="sk-1") as vllm:
        assert (await vllm.ask("hello")).status == 401
        assert (await vllm.get("/v1/models")).json == {"error": "Unauthorized"}
        assert (await vllm.post("/v1/load_lora_adapter", {})).status == 401
        for path in ("/pause", "/resume", "/reset_mm_cache"):
            assert (await vllm.post(path)).status == 200
        vllm.headers["Authorization"] = "Bearer sk-1"
        assert (await vllm.ask("hello")).status == 200
        assert (await vllm.post("/v1/load_lora_adapter", {})).status == 400


async def test_without_vllm_there_is_nothing_to_command() -> None:
    async with ScriptedServer(SCRIPT) as server, aiohttp.ClientSession() as session:
        for path in ("/pause", "/collective_rpc", "/reset_prefix_cache", "/v1/load_lora_adapter"):
            async with session.post(server.url.removesuffix("/v1") + path) as response:
                assert response.status == 404


async def test_where_it_may_be_served(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="control endpoints know no key"):
        ScriptedServer(SCRIPT, listen="0.0.0.0:0", token="sk-1", vllm=VllmSettings())
    with pytest.raises(InputError, match="Cannot find any model weights"):
        async with ScriptedServer(SCRIPT, vllm=VllmSettings(weights=tmp_path)):
            pass
    place = f"unix:{tmp_path}/one.sock"
    async with ScriptedServer(SCRIPT, listen=place, vllm=VllmSettings()) as server:
        assert server.url == place
        with pytest.raises(InputError, match="something is served on"):
            async with ScriptedServer(SCRIPT, listen=place):
                pass
    assert not (tmp_path / "one.sock").exists()


async def test_a_seed_chooses_only_where_the_script_says_so(tmp_path: Path) -> None:
    turns = [{"text": "none", "by_seed": ["zero", "one"]}, {"text": "later"}]
    script = Script.parse({"replies": [{"turns": turns}]})
    async with scripted_vllm(tmp_path, script=script) as vllm:
        said = [(await vllm.ask("hello", seed=seed)).choice["message"]["content"] for seed in (0, 1, 2, 3)]
        assert said == ["zero", "one", "zero", "one"]
        plain = await vllm.ask("hello")
        assert plain.choice["message"]["content"] == "none"
        assert "scripted" not in plain.json
        answer = await vllm.ask("hello", seed=5, top_k=40)
        assert answer.json["scripted"] == {"seed": 5, "top_k": 40}


def test_mistakes_in_its_turns() -> None:
    with pytest.raises(ConfigError, match="a turn needs a text"):
        Script.parse({"replies": [{"turns": [{"latency": 1}]}]})
