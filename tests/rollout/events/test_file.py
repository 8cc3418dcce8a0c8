"""events.jsonl: bounded, appended to by a later start, without secrets; whatever its disk does, the run goes on."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from deskroll.events import AttemptEnded, AttemptRetried, Event, JobEnded, ModelFailed, RunOpened, kind_of
from deskroll.rollout.events.file import EventFile, read_lines
from deskroll.rollout.events.hub import EventHub
from deskroll.rollout.redaction import MASK
from deskroll.store import Storage
from tests.rollout.conftest import ANSWER, Runs, questions, script

SECRET = "hunter-two-and-a-half"


def kept(root: str | Path) -> list[Event]:
    return [msgspec.json.decode(line, type=Event) for line in read_lines(Storage.at(root))]


def line(n: int) -> bytes:
    return msgspec.json.encode(JobEnded(phase="x" * 50, round=n, at=0.0)) + b"\n"


async def test_a_run_leaves_its_events_and_a_resume_appends(runs: Runs) -> None:
    async with runs.open(script(ANSWER), questions(3)) as session:
        session.engine.on_ended = lambda episode: session.stop()
        await session.run()
    first = kept(f"{runs.folder}/run")
    assert [each.epoch for each in first if isinstance(each, RunOpened)] == [1]
    with Path(runs.folder, "run", "events.jsonl").open("ab") as file:
        file.write(b'{"kind":"run.op')  # its writer was killed there
    await runs.run(script(ANSWER), questions(3), resume=True)
    lines = Path(runs.folder, "run", "events.jsonl").read_bytes().splitlines()
    assert lines.count(b'{"kind":"run.op') == 1
    both = [msgspec.json.decode(each, type=Event) for each in lines if each != b'{"kind":"run.op']
    assert both[: len(first)] == first
    assert [each.epoch for each in both if isinstance(each, RunOpened)] == [1, 2]
    assert sum(kind_of(each) == "episode.sealed" for each in both) == 3


async def test_it_keeps_the_newest_within_its_bound(tmp_path: Path) -> None:
    file = EventFile(Storage.at(tmp_path), 10_000)
    for n in range(1000):
        file.put(line(n))
        if n % 10 == 0:
            await file.close()
    await file.close()
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert set(sizes) == {"events.jsonl", "events.jsonl.1"}
    assert sum(sizes.values()) < 12_000, "what is written at once may come on top"
    rounds = [each.round for each in kept(tmp_path) if isinstance(each, JobEnded)]
    assert rounds == list(range(1000 - len(rounds), 1000)), "the newest, and none of them missing"
    assert len(rounds) > 40


async def test_a_file_that_cannot_be_written_costs_events_and_not_the_run(
    runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    async with runs.open(script(ANSWER), questions(4)) as session:
        Path(session.folder, "events.jsonl").unlink(missing_ok=True)
        Path(session.folder, "events.jsonl").mkdir()
        episodes = await session.run()
    assert [each.score.value for each in episodes] == [1.0] * 4
    assert caplog.text.count("events are missing from") == 1


async def test_none_is_kept_where_none_is_wanted(runs: Runs) -> None:
    await runs.run(script(ANSWER), questions(1), events={"file_mb": 0})
    assert "events.jsonl" not in runs.read().storage.list()


async def test_on_an_object_store_they_are_written_at_the_end_behind_those_of_earlier_starts(bucket: str) -> None:
    runs = Runs(bucket)
    await runs.run(script(ANSWER), questions(2))
    first = kept(f"{bucket}/run")
    assert sum(kind_of(each) == "episode.sealed" for each in first) == 2
    await runs.run(script(ANSWER), questions(2), resume=True)
    both = kept(f"{bucket}/run")
    assert both[: len(first)] == first
    assert [each.epoch for each in both if isinstance(each, RunOpened)] == [1, 2]


@pytest.mark.parametrize("backend", ["inline", "process"])
async def test_no_secret_is_in_them(runs: Runs, backend: str) -> None:
    await runs.run(
        script(ANSWER), questions(1), backend=backend, workers=1, agent="tests.rollout.test_traces:BrokenAgent",
        agent_options={"service_token": SECRET}, model={"api_key": f"{SECRET}-of-the-model"},
    )  # fmt: skip
    (ended,) = [each for each in kept(f"{runs.folder}/run") if isinstance(each, AttemptEnded)]
    assert "no entry for" in ended.reason, "the message is there, without the secret"
    assert SECRET not in Path(runs.folder, "run", "events.jsonl").read_text()


async def test_the_hub_takes_secrets_out_of_every_reason(tmp_path: Path) -> None:
    heard: list[Event] = []
    async with EventHub(lambda text: text.replace(SECRET, MASK), EventFile(Storage.at(tmp_path), 10**6)) as hub:
        hub.on(ModelFailed, heard.append)
        hub.emit(ModelFailed(endpoint="e", model="m", reason=f"it said {SECRET}", tries=1))
    assert [each.reason for each in (*heard, *kept(tmp_path))] == [f"it said {MASK}"] * 2  # type: ignore[union-attr]


def test_retries_and_ends_have_a_reason_that_the_hub_looks_at() -> None:
    """Free text has one name in all kinds, so that none is forgotten; what else is a text is a name of ours."""
    assert "reason" in AttemptEnded.__struct_fields__
    assert "reason" in AttemptRetried.__struct_fields__
    for kind in Event.__args__:
        assert not {"message", "text", "why", "cause_text"} & set(kind.__struct_fields__), kind
