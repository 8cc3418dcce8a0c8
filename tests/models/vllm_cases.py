"""How vLLM behaves when it is paused, given other weights and asked meanwhile: the same cases for any server.

A class made from `VllmCases` has a fixture `vllm`: the scripted server (test_vllm_behaviour.py), or a real vLLM
(tests/vllm). The last case ends the server; the others leave it as it was.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from tests.models.vllm_server import SLOW, Vllm
from tests.waiting import eventually

NEAR = 1e-4


class VllmCases:
    """What is the same for all of them."""

    async def test_what_it_says_of_itself(self, vllm: Vllm) -> None:
        assert (await vllm.get("/health")).status == 200
        (card,) = (await vllm.get("/v1/models")).json["data"]
        assert (card["id"], card["parent"]) == (vllm.name, None)
        assert (await vllm.gauge("running"), await vllm.gauge("waiting")) == (0, 0)
        assert (await vllm.get("/is_paused")).json == {"is_paused": False}
        assert (await vllm.get("/no_such_thing")).status == 404
        assert (await vllm.get("/pause")).status in (404, 405)

    async def test_tokens_and_log_probabilities_fit_each_other(self, vllm: Vllm) -> None:
        answer = await vllm.ask("how are you?", seed=7, top_k=20)
        usage = answer.json["usage"]
        assert len(answer.ids) == len(answer.logprobs) == usage["completion_tokens"] > 0
        assert len(answer.json["prompt_token_ids"]) == usage["prompt_tokens"] > 0
        assert min(answer.ids) >= 0
        assert max(answer.logprobs) <= 0
        assert answer.logprobs == pytest.approx((await vllm.ask("how are you?")).logprobs, abs=NEAR)

    async def test_the_limit_on_tokens_cuts_an_answer(self, vllm: Vllm) -> None:
        answer = await vllm.ask("how are you?", max_tokens=3)
        assert (answer.choice["finish_reason"], len(answer.ids), len(answer.logprobs)) == ("length", 3, 3)
        assert answer.json["usage"]["completion_tokens"] == 3

    async def test_a_model_that_is_not_served(self, vllm: Vllm) -> None:
        assert (await vllm.ask("hello", model="nobody")).status == 404

    async def test_wait_answers_when_all_are_done_and_holds_new_ones(self, vllm: Vllm) -> None:
        slow = asyncio.create_task(vllm.ask(SLOW))
        await vllm.until("running", 1)
        pause = asyncio.create_task(vllm.post("/pause?mode=wait"))
        await vllm.until_paused()
        held = asyncio.create_task(vllm.ask("hello"))
        assert (await pause).json == {"status": "paused"}
        assert (await slow).choice["finish_reason"] in ("stop", "length")
        assert not held.done()
        assert (await vllm.post("/resume")).json == {"status": "resumed"}
        assert (await held).status == 200
        assert (await vllm.get("/is_paused")).json == {"is_paused": False}

    async def test_keep_stops_what_runs_and_goes_on_with_it(self, vllm: Vllm) -> None:
        slow = asyncio.create_task(vllm.ask(SLOW))
        await vllm.until("running", 1)
        # A real one would send requests back to the queue, with caches to be cleared.
        assert (await vllm.post("/pause?mode=keep&clear_cache=false")).json == {"status": "paused"}
        held = asyncio.create_task(vllm.ask("hello"))
        refused = await vllm.post("/reset_prefix_cache")
        assert (refused.status, refused.json) == (200, {"success": False}), "the request that runs holds blocks"
        assert (await vllm.post("/reset_prefix_cache?reset_running_requests=true")).json == {"success": True}
        assert not slow.done()
        assert not held.done()
        await vllm.post("/resume")
        assert (await slow).choice["finish_reason"] in ("stop", "length")
        assert (await held).status == 200
        assert (await vllm.post("/reset_prefix_cache")).json == {"success": True}

    async def test_keep_sends_what_runs_back_to_the_queue_for_its_caches(self, vllm: Vllm) -> None:
        slow = asyncio.create_task(vllm.ask(SLOW))
        await vllm.until("running", 1)
        assert (await vllm.post("/pause?mode=keep")).json == {"status": "paused"}
        assert (await vllm.post("/reset_prefix_cache")).json == {"success": True}, "nothing holds blocks any more"
        await vllm.until("waiting", 1)
        assert await vllm.gauge("running") == 0
        assert not slow.done()
        await vllm.post("/resume")
        assert (await slow).choice["finish_reason"] in ("stop", "length")

    async def test_a_pause_throws_away_what_was_known_of_prompts_and_images(self, vllm: Vllm) -> None:
        first = await vllm.ask("what is this?", image=vllm.sees)
        assert (await vllm.post("/pause?mode=wait")).status == 200
        assert (await vllm.load(2)).status == 200
        assert (await vllm.post("/resume")).status == 200
        second = await vllm.ask("what is this?", image=vllm.sees)
        await vllm.forget()
        again = await vllm.ask("what is this?", image=vllm.sees)
        assert second.logprobs == pytest.approx(again.logprobs, abs=NEAR)
        assert second.logprobs != pytest.approx(first.logprobs, abs=NEAR)
        await vllm.refresh(1)

    async def test_a_client_that_goes_away_ends_its_request(self, vllm: Vllm) -> None:
        lasting = asyncio.create_task(vllm.ask("forever"))
        await vllm.until("running", 1)
        lasting.cancel()
        await vllm.until("running", 0)
        assert (await vllm.ask("hello")).status == 200

    async def test_who_asks_may_be_told(self, vllm: Vllm) -> None:
        vllm.headers["X-Session-ID"] = "train/0/note/2#1"
        assert (await vllm.ask("hello")).status == 200
        del vllm.headers["X-Session-ID"]

    async def test_abort_ends_what_runs(self, vllm: Vllm) -> None:
        lasting = asyncio.create_task(vllm.ask("forever"))
        await vllm.until("running", 1)
        assert (await vllm.post("/pause")).json == {"status": "paused"}, "abort is what it does unless told otherwise"
        answer = await lasting
        assert (answer.status, answer.choice["finish_reason"]) == (200, "abort")
        assert len(answer.ids) == answer.json["usage"]["completion_tokens"]
        held = asyncio.create_task(vllm.ask("hello"))
        await vllm.post("/resume")
        assert (await held).choice["finish_reason"] in ("stop", "length")

    async def test_other_weights_give_other_log_probabilities(self, vllm: Vllm) -> None:
        first = await vllm.ask("how are you?")
        await vllm.refresh(2)
        second = await vllm.ask("how are you?")
        await vllm.refresh(1)
        third = await vllm.ask("how are you?")
        assert first.logprobs == pytest.approx(third.logprobs, abs=NEAR)
        assert first.logprobs != pytest.approx(second.logprobs, abs=NEAR)
        fingerprints = {answer.json["system_fingerprint"] for answer in (first, second, third)}
        assert len(fingerprints) == 1, "it is no version"

    async def test_the_weight_version_is_only_a_name(self, vllm: Vllm) -> None:
        assert (await vllm.get("/weight_info")).json == {"weight_version": "default"}
        before = await vllm.ask("how are you?")
        said = await vllm.post("/update_weight_version", {"new_version": "12"})
        assert said.json == {"success": True, "new_version": "12"}
        assert (await vllm.get("/weight_info")).json == {"weight_version": "12"}
        assert (await vllm.ask("how are you?")).logprobs == pytest.approx(before.logprobs, abs=NEAR)
        await vllm.post("/update_weight_version", {"new_version": "default"})

    async def test_an_image_that_was_seen_before_a_refresh_gives_the_new_weights_values(self, vllm: Vllm) -> None:
        if not vllm.sees:
            pytest.skip("this model takes no images")
        first = await vllm.ask("what is this?", image=True)
        await vllm.refresh(2)
        second = await vllm.ask("what is this?", image=True)
        await vllm.forget()
        again = await vllm.ask("what is this?", image=True)
        assert second.logprobs == pytest.approx(again.logprobs, abs=NEAR)
        assert second.logprobs != pytest.approx(first.logprobs, abs=NEAR)
        await vllm.refresh(1)

    @pytest.mark.parametrize(
        ("path", "body", "status"),
        [
            ("/pause?mode=nicely", None, 400),
            ("/collective_rpc", {"kwargs": {}}, 400),
            ("/collective_rpc", {"method": "no_such_method"}, 500),
            ("/update_weight_version", {}, 400),
            ("/update_weight_version", {"new_version": [1]}, 400),
        ],
    )
    async def test_commands_that_cannot_be_read_change_nothing(
        self, vllm: Vllm, path: str, body: object, status: int
    ) -> None:
        assert (await vllm.post(path, body)).status == status
        assert (await vllm.get("/is_paused")).json == {"is_paused": False}
        assert (await vllm.get("/weight_info")).json == {"weight_version": "default"}

    async def test_adapters_by_name(self, vllm: Vllm) -> None:
        if vllm.adapter is None:
            pytest.skip("there is no adapter for it")
        base = await vllm.ask("how are you?")
        for version in (1, 2):
            body = {"lora_name": f"mine@{version}", "lora_path": str(vllm.adapter(version))}
            assert (await vllm.post("/v1/load_lora_adapter", body)).status == 200
            assert (await vllm.post("/v1/load_lora_adapter", body)).status == 400, "it is there already"
        cards = {card["id"]: card["parent"] for card in (await vllm.get("/v1/models")).json["data"]}
        assert cards == {vllm.name: None, "mine@1": vllm.name, "mine@2": vllm.name}
        answers = [base, *[await vllm.ask("how are you?", model=f"mine@{version}") for version in (1, 2)]]
        assert len({round(sum(answer.logprobs), 4) for answer in answers}) == 3
        for version in (1, 2):
            assert (await vllm.post("/v1/unload_lora_adapter", {"lora_name": f"mine@{version}"})).status == 200
        assert (await vllm.post("/v1/unload_lora_adapter", {"lora_name": "mine@1"})).status == 404
        assert (await vllm.ask("how are you?", model="mine@1")).status == 404
        missing = {"lora_name": "mine@3", "lora_path": "/no/such/folder"}
        assert (await vllm.post("/v1/load_lora_adapter", missing)).status >= 400

    async def test_a_reload_that_fails_is_the_end_of_the_server(self, vllm: Vllm, tmp_path: Path) -> None:
        """Seen with vLLM 0.32: the old tensors are gone by then. The last one, for a real one does not survive it."""
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(tmp_path / "nothing")}}
        assert (await vllm.post("/collective_rpc", body)).status == 500
        assert (await vllm.get("/health")).status == 200, "nothing shows yet"

        async def asked() -> int:
            try:
                return (await vllm.ask("hello")).status
            except aiohttp.ClientError:
                return 0

        async def gone() -> bool:
            return await asked() == 0

        assert await asked() in (0, 500)
        await eventually(gone, "nobody answers any more")
