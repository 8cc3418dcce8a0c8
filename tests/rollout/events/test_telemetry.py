"""Traces arrive at a collector that speaks OTLP over HTTP; one that does not answer costs the run nothing."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from deskroll.errors import ConfigError
from tests.rollout.conftest import ANSWER, CALCULATE, Runs, questions, script


class Collector:
    """Keeps the spans that it is sent."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.services: set[str] = set()
        self.address = ""

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        assert request.headers["Content-Type"] == "application/x-protobuf"
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.services |= {
                each.value.string_value for each in resource.resource.attributes if each.key == "service.name"
            }
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return web.Response(content_type="application/x-protobuf")

    def children(self, parent: Span) -> list[Span]:
        found = [each for each in self.spans if each.parent_span_id == parent.span_id]
        return sorted(found, key=lambda each: each.start_time_unix_nano)

    def roots(self) -> list[Span]:
        return [each for each in self.spans if not each.parent_span_id]


@pytest_asyncio.fixture
async def collector() -> AsyncIterator[Collector]:
    found = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", found.take)
    async with TestServer(app) as server:
        found.address = str(server.make_url("/")).rstrip("/")
        yield found


@pytest.mark.parametrize("backend", ["inline", "process"])
async def test_an_episode_is_a_trace_with_its_stages_and_calls(runs: Runs, collector: Collector, backend: str) -> None:
    telemetry = {"otlp": collector.address}
    await runs.run(script(CALCULATE, ANSWER), questions(2), backend=backend, workers=1, telemetry=telemetry)
    assert collector.services == {"deskroll"}
    roots = {each.name: each for each in collector.roots()}
    assert set(roots) == {"episode eval/0/task-0/0", "episode eval/0/task-1/0"}
    assert len({each.trace_id for each in collector.spans}) == 2
    for root in roots.values():
        about = {each.key: each.value for each in root.attributes}
        assert (about["deskroll.run"].string_value, about["deskroll.score"].double_value) == ("run", 1.0)
        (attempt,) = collector.children(root)
        assert attempt.name == "attempt 1"
        stages = collector.children(attempt)
        turn = ["model", "act", "store"]
        assert [each.name for each in stages] == ["setup", *turn, *turn, "score", "store"]
        for before, after in itertools.pairwise(stages):
            assert before.end_time_unix_nano == after.start_time_unix_nano, "every moment belongs to one stage"
        calls = [call for stage in stages for call in collector.children(stage)]
        assert [each.name for each in calls] == ["model call"] * 2
        tokens = {each.key: each.value.int_value for each in calls[0].attributes}
        assert tokens["gen_ai.usage.input_tokens"] > 0


async def test_a_failure_is_a_span_with_an_error_and_the_next_attempt_is_in_the_same_trace(
    runs: Runs, collector: Collector
) -> None:
    await runs.run(
        script(ANSWER), questions(1, fails="setup"), env="tests.rollout.parts:FailingEnv",
        retries={"setup": 1, "backoff": 0.0}, telemetry={"otlp": f"{collector.address}/v1/traces"},
    )  # fmt: skip
    (root,) = collector.roots()
    assert root.status.code == Status.STATUS_CODE_ERROR
    attempts = collector.children(root)
    assert [each.name for each in attempts] == ["attempt 1", "attempt 2"]
    assert [each.status.code for each in attempts] == [Status.STATUS_CODE_ERROR] * 2
    assert "the file is not there" in attempts[0].status.message


async def test_a_collector_that_is_not_there_costs_the_run_nothing(
    runs: Runs, unused_tcp_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    episodes = await runs.run(
        script(ANSWER), questions(3), telemetry={"otlp": f"http://me:hunter2@127.0.0.1:{unused_tcp_port}"}
    )
    assert [each.score.value for each in episodes] == [1.0] * 3
    assert caplog.text.count("traces are missing at the collector") == 1
    assert "hunter2" not in caplog.text


async def test_an_address_that_is_none_is_refused_before_anything_runs(runs: Runs) -> None:
    with pytest.raises(ConfigError, match=r"telemetry.otlp is 'collector:4318'; write an address such as http://"):
        await runs.run(script(ANSWER), questions(1), telemetry={"otlp": "collector:4318"})
