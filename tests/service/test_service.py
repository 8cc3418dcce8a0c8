"""The service loop: batches are polled, run in their rounds, finished by a restart; bad ones are set aside."""

from __future__ import annotations

import asyncio
import io
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from deskroll.conduct.view import line, status_view
from deskroll.errors import ConfigError, InputError
from deskroll.events import BatchTaken, Event
from deskroll.host.console import PlainConsole
from deskroll.report.listing import line_of
from deskroll.report.results import Results
from deskroll.rollout.changes import ChangedSince
from deskroll.rollout.service_status import ServiceStatus
from deskroll.service.config import load_service
from deskroll.service.loop import Service
from deskroll.service.stream import GroupStream
from deskroll.store.journal import GroupClosed, Reopened, Sealed
from tests.models.weights.files import one_file
from tests.rollout.conftest import until
from tests.service.conftest import Services
from tests.service.serving import task

SCRIPTED_VLLM = Path(__file__).parents[1] / "models" / "vllm" / "scripted_vllm.py"
SLOW = "latency: 1000\nreplies:\n  - turns: [{text: '42'}]\n"
FAST = "replies:\n  - turns: [{text: '42'}]\n"


def part(service: Service) -> ServiceStatus:
    """What a service says of itself, as `deskroll status` has it."""
    found = service.runtime.status().service
    assert found is not None
    return found


async def test_each_batch_is_a_round_and_it_ends_after_so_many(services: Services) -> None:
    services.drop("one.json", "a", "b")
    services.drop("two.json", "a")
    await services.run(max_batches=2, group_size=2)
    run = services.read()
    assert {(round_, task): each.score.value for (round_, task), each in services.outcomes().items()} == {
        (0, "a"): 1.0, (0, "b"): 1.0, (1, "a"): 1.0,
    }  # fmt: skip
    assert len(run.outcomes()) == 6
    assert len(list(run.records(GroupClosed))) == 3
    ledger = [json.loads(line) for line in (services.folder / "results/service/batches.jsonl").read_text().splitlines()]
    assert [each["id"] for each in ledger if each["type"] == "taken"] == ["one.json", "two.json"]
    services.drop("three.json", "c")
    await services.run(max_batches=2, group_size=2)
    assert len(services.outcomes()) == 3, "it has had its two batches"


async def test_results_say_what_was_asked_in_each_batch(services: Services) -> None:
    for most in (1, 2, 5):
        for number in range(most):
            services.drop(f"{number}.json", "sum", question=f"question {number}")
        await services.run(max_batches=most)
    lines = (services.folder / "results/service/results.jsonl").read_text().splitlines()
    assert [json.loads(line)["question"] for line in lines] == [f"question {number}" for number in range(5)]
    results = Results.read(services.folder / "results")
    assert [results.question(each.key) for each in results.outcomes] == [f"question {number}" for number in range(5)]


async def test_batches_that_come_later_are_run_and_shown(services: Services) -> None:
    async with services.running() as service:
        await until(lambda: part(service).next_poll is not None, "it waits")
        assert service.runtime.status().limit == "the source: no new batch is there"
        services.drop("one.json", "a", "b")
        await until(lambda: part(service).done == 1, "it is done")
        services.drop("two.json", "a", "b")
        await until(lambda: part(service).done == 2, "it is done")
        status = part(service)
        assert (status.running, status.bad, status.draining, status.trouble) == ((), 0, False, "")


async def test_a_batch_that_cannot_be_run_is_set_aside_and_stops_nothing(services: Services) -> None:
    services.drop("odd.json", "a", env="no-such-env")
    (services.inbox / "torn.json").write_text("[")
    services.drop("good.json", "a")
    async with services.running() as service:
        await until(lambda: (part(service).done, part(service).bad) == (1, 2), "all three were seen")
        errors = {each.id: each.error for each in part(service).last_bad}
        assert "batch odd.json: task 'a': env is 'no-such-env'" in errors["odd.json"]
        assert "it is not valid JSON" in errors["torn.json"]
    assert sorted(path.name for path in (services.inbox / "bad").iterdir()) == [
        "odd.json", "odd.json.error", "torn.json", "torn.json.error",
    ]  # fmt: skip
    (services.inbox / "bad" / "odd.json").rename(services.inbox / "odd.json")
    async with services.running() as service:
        await until(lambda: part(service).bad == 3, "what is put back is looked at again")
        assert part(service).done == 1


async def test_it_drains_what_it_has_taken(services: Services) -> None:
    services.script("latency: 0.3\nreplies:\n  - turns: [{text: '42'}]\n")
    services.drop("one.json", *"abcdef")
    async with services.running(num_rollouts=2) as service:
        await until(lambda: service.runtime.status().in_flight, "it runs")
        service.stop()
        services.drop("two.json", "x")
        assert "1 batch with" in await service.farewell()
        await until(lambda: part(service).done == 1, "it is through")
    assert sorted(task for _, task in services.outcomes()) == [*"abcdef"]
    async with services.running() as service:
        await until(lambda: part(service).done == 2, "the other one is found by the next start")


async def test_what_a_start_left_is_finished_by_the_next_one_whatever_became_of_its_file(services: Services) -> None:
    services.script(SLOW)
    services.drop("one.json", "a", "b")
    services.drop("two.json", "c")
    async with services.running(num_rollouts=1) as service:  # so the second batch is not asked for yet
        await until(lambda: service.runtime.status().in_flight == 1, "it runs")
        service.stop(now=True)
    assert services.outcomes() == {}
    for name in ("one.json", "two.json"):
        (services.inbox / name).unlink()
    services.script(FAST)
    async with services.running(num_rollouts=2) as service:
        await until(lambda: part(service).done == 1, "it is finished")
    assert sorted(services.outcomes()) == [(0, "a"), (0, "b")]
    assert list(services.read().records(Reopened)) == []
    stream = GroupStream(services.folder / "results", "trainer", follow=False)
    assert sorted([group.task async for group in stream]) == ["a", "b"]
    await stream.close()


async def test_a_batch_that_cannot_go_on_is_given_up_and_stops_nothing(services: Services) -> None:
    services.script(SLOW)
    (services.inbox / "docs").mkdir()
    (services.inbox / "docs" / "a.txt").write_text("The answer is 42.")
    services.drop("one.json", "a", env="rag", env_config={"corpus": "docs"})
    async with services.running() as service:
        await until(lambda: service.runtime.status().in_flight, "it runs")
        service.stop(now=True)
    services.script(FAST)
    shutil.rmtree(services.inbox / "docs")
    (services.inbox / "one.json").unlink()
    services.drop("good.json", "b")
    for _ in range(2):
        async with Service.open(services.config(max_batches=2)) as service:
            await asyncio.wait_for(service.run(), 90)
            status = part(service)
            assert (status.done, status.running, [each.id for each in status.last_bad]) == (1, (), ["one.json"])
    assert sorted(services.outcomes()) == [(1, "b")]


class Removing:
    """An event sink: a folder is gone once the batch that names it was taken, and before that is begun."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def emit(self, event: Event) -> None:
        if isinstance(event, BatchTaken) and event.batch == "one.json":
            shutil.rmtree(self._folder)


async def test_a_batch_whose_file_goes_after_it_was_checked_is_given_up_in_the_same_start(services: Services) -> None:
    docs = services.inbox / "docs"
    docs.mkdir()
    (docs / "a.txt").write_text("The answer is 42.")
    services.drop("one.json", "a", env="rag", env_config={"corpus": "docs"})
    async with Service.open(services.config(max_batches=2), Removing(docs)) as service:
        work = asyncio.create_task(service.run())
        await until(lambda: part(service).bad == 1, "it was given up")
        (bad,) = part(service).last_bad
        assert (bad.id, part(service).running) == ("one.json", ())
        assert "docs" in bad.error
        services.drop("good.json", "b")
        await asyncio.wait_for(work, 90)
        assert part(service).done == 1
    assert sorted(services.outcomes()) == [(1, "b")]
    assert service.counts == "1 batch done, 1 bad"


async def test_the_query_of_an_address_is_kept_nowhere(services: Services) -> None:
    async def none(_request: web.Request) -> web.Response:
        return web.Response(status=204)

    app = web.Application()
    app.router.add_get("/batches", none)
    async with TestServer(app) as server:
        at = str(server.make_url("/batches"))
        async with services.running(source={"at": f"{at}?who=s3cret-word"}) as service:
            await until(lambda: part(service).next_poll is not None, "it waits")
    kept = json.loads((services.folder / "results/service/run.json").read_text())
    assert kept["config"]["source"]["at"] == at
    for path in (services.folder / "results").rglob("*"):
        assert not path.is_file() or b"s3cret-word" not in path.read_bytes(), path


async def test_one_that_waits_for_a_batch_is_no_run_that_has_finished(services: Services) -> None:
    services.drop("one.json", "a")
    async with services.running() as service:
        await until(lambda: part(service).done == 1, "it is through")
        assert line_of(service.runtime.folder).state == "running"
    assert line_of(service.runtime.folder).state == "finished"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({"at": "tasks.json"}, "there is no file {folder}/tasks.json; write it first, or name a folder"),
        ({"at": "nowhere/tasks.json"}, "there is no folder {folder}/nowhere, in which tasks.json could be"),
        ({"at": "odd.json"}, "{folder}/odd.json is a folder, and its name ends as a file's does"),
        ({"at": "tasks.txt"}, "{folder}/tasks.txt is a file, and its name does not end in .json or .jsonl"),
        ({"at": "suite.json", "root": "nowhere"}, "source.root: there is no folder {folder}/nowhere"),
    ],
)
async def test_a_source_that_is_none_refuses_the_start(services: Services, source: dict[str, str], says: str) -> None:
    folder = services.folder
    (folder / "odd.json").mkdir()
    for name in ("tasks.txt", "suite.json"):
        (folder / name).write_text("{}")
    given = {name: str(folder / value) for name, value in source.items()}
    with pytest.raises(InputError, match=re.escape(says.format(folder=folder))):
        await services.run(source=given)
    assert not (folder / "results").exists()


async def test_a_file_that_was_taken_and_is_gone_refuses_no_restart(services: Services) -> None:
    path = services.folder / "tasks.json"
    path.write_text(json.dumps([task("a")]))
    await services.run(source={"at": str(path), "rest_ms": 0}, max_batches=1)
    path.unlink()
    async with services.running(source={"at": str(path), "rest_ms": 0}) as service:
        await until(lambda: part(service).next_poll is not None, "it waits")
        assert part(service).done == 1


async def test_a_start_that_is_drained_finishes_what_earlier_ones_took(services: Services) -> None:
    services.script(SLOW)
    for name in "abc":
        services.drop(f"{name}.json", name)
    async with services.running() as service:
        await until(lambda: service.runtime.status().in_flight == 3, "all run")
        service.stop(now=True)
    services.script(FAST)
    async with Service.open(services.config()) as service:
        service.stop()
        assert "3 batches with 3 tasks left will finish" in await service.farewell()
        assert [each.left for each in part(service).running] == [1, 1, 1]
        await asyncio.wait_for(service.run(), 90)
        assert (part(service).done, part(service).running) == (3, ())


async def test_a_batch_that_was_begun_keeps_its_settings_unless_forced(services: Services) -> None:
    services.script("latency: 0.5\nreplies:\n  - turns: [{text: '42'}]\n")
    services.drop("one.json", "a", "b")
    async with services.running(num_rollouts=1) as service:
        await until(lambda: service.runtime.status().standing.done == 1, "one of two is done")
        service.stop(now=True)
    services.drop("two.json", "c")
    with pytest.raises(InputError, match=r"limits.max_turns was 50 and is 7"):
        await services.run(limits={"max_turns": 7}, max_batches=2)
    await services.run(limits={"max_turns": 7}, max_batches=2, force=True)
    assert sorted(services.outcomes()) == [(0, "a"), (0, "b"), (1, "c")]


async def test_a_batch_that_was_begun_keeps_its_group_size_unless_forced(services: Services) -> None:
    services.script("latency: 0.5\nreplies:\n  - turns: [{text: '42'}]\n")
    services.drop("one.json", "a")
    async with services.running(num_rollouts=1, group_size=4) as service:
        await until(lambda: service.runtime.status().standing.done == 1, "one of four is done")
        service.stop(now=True)
    services.script(FAST)
    with pytest.raises(
        ChangedSince, match=r"one.json, round 0, cannot go on as it was begun:\n  group_size was 4 and is 3"
    ):
        await services.run(group_size=3, max_batches=1)
    await services.run(group_size=4, max_batches=1)
    assert [each.key.sample for each in services.read().outcomes()] == [0, 1, 2, 3]


async def test_a_batch_goes_on_with_another_group_size_where_that_is_forced(services: Services) -> None:
    services.script(SLOW)
    services.drop("one.json", "a")
    async with services.running(group_size=4) as service:
        await until(lambda: service.runtime.status().in_flight == 4, "they run")
        service.stop(now=True)
    services.script(FAST)
    await services.run(group_size=3, max_batches=1, force=True)
    assert [each.key.sample for each in services.read().outcomes()] == [0, 1, 2]


async def test_a_restart_with_nothing_to_do_waits_for_a_batch(services: Services) -> None:
    services.drop("one.json", "a")
    await services.run(max_batches=1)
    async with Service.open(services.config()) as service:
        assert line(service.runtime.status()).startswith("starting | ")
    async with services.running() as service:
        await until(lambda: part(service).next_poll is not None, "it waits")
        assert line(service.runtime.status()).startswith("waits for a batch | 0 in flight | ")
        out = io.StringIO()
        PlainConsole(file=out, width=120).print(status_view(service.runtime.status()))
        assert re.search(r"waits for a batch +\d+ s\n", out.getvalue())


async def test_a_source_that_cannot_be_polled_is_told_and_polled_again(services: Services) -> None:
    async with services.running() as service:
        await until(lambda: part(service).next_poll is not None, "it waits")
        services.inbox.rename(services.folder / "elsewhere")
        await until(lambda: part(service).trouble, "it is seen")
        assert "cannot be read" in part(service).trouble
        services.inbox.mkdir()
        services.drop("one.json", "a")
        await until(lambda: part(service).done == 1, "it goes on")
        assert part(service).trouble == ""


async def test_a_model_is_asked_once_at_the_start_and_ends_nothing_later(services: Services) -> None:
    asked = 0

    async def say_models(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.json_response({"data": [{"id": "mine"}]}, status=200 if asked == 1 else 500)

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"choices": [{"message": {"content": "42"}, "finish_reason": "stop"}]})

    app = web.Application()
    app.router.add_get("/v1/models", say_models)
    app.router.add_post("/v1/chat/completions", answer)
    async with TestServer(app) as server:
        model = {"name": "mine", "base_url": str(server.make_url("/v1"))}
        async with Service.open(services.config(model=model, max_batches=1)) as service:
            assert asked == 1, "before any batch is there"
            services.drop("one.json", "a")
            await asyncio.wait_for(service.run(), 90)
    assert [each.score.value for each in services.outcomes().values()] == [1.0]


async def test_a_service_goes_on_where_its_model_is_gone_when_a_batch_comes(services: Services) -> None:
    app = web.Application()
    app.router.add_get("/v1/models", _list_models)
    retries = {"backoff": 0.01, "model": 0}
    async with TestServer(app) as server:
        model = {"name": "mine", "base_url": str(server.make_url("/v1")), "retries": 0, "backoff": 0.01}
        async with services.running(model=model, retries=retries) as service:
            await until(lambda: part(service).next_poll is not None, "it waits")
            await server.close()
            services.drop("one.json", "a")
            await until(lambda: part(service).done == 1, "the batch has ended")
    assert [each.score.value for each in services.outcomes().values()] == [None]


async def _list_models(_request: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": "mine"}]})


async def test_it_stops_when_its_budget_is_used_up(services: Services) -> None:
    services.drop("one.json", *(f"t{n}" for n in range(20)))
    price = {"price": {"input": 1e6, "output": 1e6}}
    model = {"name": f"scripted:{services.folder / 'answers.yaml'}", **price}
    async with Service.open(services.config(model=model, limits={"run_cost_usd": 100}, num_rollouts=1)) as service:
        await asyncio.wait_for(service.run(), 90)
        assert "run_cost_usd" in service.runtime.used_up
    assert 0 < len(services.outcomes()) < 20


async def test_only_the_newest_batch(services: Services) -> None:
    for name in ("one.json", "two.json", "three.json"):
        services.drop(name, name)
    async with services.running(source={"at": str(services.inbox), "rest_ms": 0, "newest_only": True}) as service:
        await until(lambda: part(service).done == 1, "the newest is done")
        assert part(service).passed == 2
    assert [task for _, task in services.outcomes()] == ["three.json"]


async def test_its_own_models_have_the_newest_weights_before_each_batch(services: Services) -> None:
    weights = services.folder / "weights"
    first = one_file(weights / "step_1", fill=1)
    models = {
        "ckpt_path": str(first), "vllm_command": [sys.executable, str(SCRIPTED_VLLM)], "gpus": "none",
        "weights": {"source": str(weights), "poll": 3600},
    }  # fmt: skip
    services.drop("one.json", "a")
    async with services.running(models=models, model={}) as service:
        await until(lambda: part(service).done == 1, "the first is done")
        assert part(service).version == "1"
        one_file(weights / "step_2", fill=2)
        (weights / "step_2" / "READY").touch()
        services.drop("two.json", "b")
        await until(lambda: part(service).done == 2, "the second is done")
        assert part(service).version == "2"
    found = services.outcomes()
    assert (found[0, "a"].versions, found[1, "b"].versions) == (("1",), ("2",))


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (("env=math",), "source is empty"),
        (("source=inbox", "tasks=t.jsonl"), "tasks is for a run over one list of tasks"),
        (("source=inbox", "run_id=''"), "a service has a name"),
        (("source=inbox", "output_dir=s3://bucket/x"), "name a folder"),
        (("source=inbox", "backoff_max_ms=10"), "less than backoff_ms"),
        (("source=inbox", "listen=unix:/tmp/x"), "write HOST:PORT"),
        (
            ("source=inbox", "models.ckpt_path=x", "model.base_url=http://h/v1"),
            "only one of them says where the model is",
        ),
        (("source=inbox", "source.rest=1"), "there is no such field"),
    ],
)
def test_what_is_wrong_with_settings_is_said(overrides: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_service(None, overrides)


async def test_two_services_do_not_share_a_folder(services: Services) -> None:
    async with services.running():
        with pytest.raises(InputError, match="is live, in process"):
            async with Service.open(services.config()):
                pass


async def test_a_record_of_every_outcome_is_sealed_once(services: Services) -> None:
    services.drop("one.json", *"abc")
    for _ in range(3):
        await services.run(max_batches=1)
    assert sorted(each.episode.key.task for each in services.read().records(Sealed)) == [*"abc"]
