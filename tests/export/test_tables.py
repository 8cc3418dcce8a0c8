"""A run as Parquet files, read back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from pyarrow import parquet

from deskroll.export import Chosen, Exported, Output
from deskroll.export.output import Mark
from deskroll.export.tables import export_tables
from deskroll.models import Message
from deskroll.store import AttemptWriter, Run, RunInfo, RunStore
from deskroll.store.journal import Planned, Sealed, Started
from deskroll.types import Completion, Episode, EpisodeKey, LogprobsMode, Sampling, Score, Sent, Step, StopReason


def exported(root: Path, output: Path, *, screens: bool = False) -> Exported:
    run = Run.open(root)
    with Output.open(output, Mark(run_id=run.info.run_id, to="parquet")) as place:
        return export_tables(Chosen.of(run), place, lambda done, total: None, screens=screens)


def rows(folder: Path, name: str) -> list[dict[str, object]]:
    return list(parquet.read_table(folder / f"{name}.parquet").to_pylist())


def test_every_outcome_step_and_message_is_a_row(full_run: Path, tmp_path: Path) -> None:
    done = exported(full_run, tmp_path)
    run = Run.open(full_run)
    outcomes = {(each.key.task, each.key.sample): each for each in run.outcomes()}
    assert (done.written, done.problems) == (len(outcomes), ())
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "episodes.parquet", "export.json", "messages.parquet", "steps.parquet",
    ]  # fmt: skip
    episodes = rows(tmp_path, "episodes")
    assert len(episodes) == len(outcomes)
    for row in episodes:
        outcome = outcomes[str(row["task_id"]), int(str(row["sample"]))]
        failure = outcome.failure.failure_class if outcome.failure else None
        assert (row["score"], row["failure_class"], row["steps"]) == (outcome.score.value, failure, outcome.steps)
        assert row["started_at"].timestamp() == pytest.approx(outcome.started_at, abs=1e-5)  # type: ignore[attr-defined]
        assert row["model_s"] == outcome.seconds["model"]
    steps = rows(tmp_path, "steps")
    assert len(steps) == sum(each.steps for each in outcomes.values())
    assert len(rows(tmp_path, "messages")) == len(outcomes)
    assert all((full_run / str(row["screen"])).is_file() for row in steps)
    assert msgspec.json.decode(str(steps[0]["actions"][0]))["type"] == "CLICK"  # type: ignore[index]


def test_screens_are_embedded_once_where_asked_for(full_run: Path, tmp_path: Path) -> None:
    exported(full_run, tmp_path, screens=True)
    screens = {str(row["screen"]): row["image"] for row in rows(tmp_path, "screens")}
    assert {str(row["screen"]) for row in rows(tmp_path, "steps")} <= screens.keys()
    for name in sorted(screens)[::40]:
        assert screens[name] == (full_run / name).read_bytes()


SAMPLING = ("temperature", "top_p", "top_k", "max_tokens", "stop_texts", "seed", "logprobs_mode")


async def one_episode(root: Path, steps: list[Step], messages: list[bytes] = []) -> None:  # noqa: B006
    key = EpisodeKey(phase="train", round=3, task="t\u2028/..", sample=0)
    async with RunStore.create(root, RunInfo(run_id=root.name)) as store:
        store.write(Planned(phase="train", round=3, task=key.task, samples=1), Started(key=key, attempt=1, epoch=1))
        async with AttemptWriter(store.storage, key, 1) as writer:
            for message in messages:
                writer.message(message)
            for step in steps:
                writer.step(step)
            episode = Episode(
                key=key, attempt=1, stop=StopReason.DONE, score=Score(value=0.5, reason="half"), versions=("v1", "v2"),
                joinable=4, joined=3,
            )  # fmt: skip
            await writer.seal(episode)
        store.write(Sealed(episode=episode, epoch=store.epoch))


async def test_token_ids_logprobs_and_versions_come_back_exactly(tmp_path: Path) -> None:
    said = Completion(
        text="é", prompt_token_ids=(1, 2**31 - 1), token_ids=(7, 8, 9), logprobs=(-0.1, -1e-300, 0.0), version="v2",
        version_end="v3", fingerprint="fp", endpoint="http://a/v1", seed=2**63,
        sampling=Sampling(
            temperature=0.5, top_k=20, stop=("x",), seed=2**63, logprobs=True, logprobs_mode=LogprobsMode.RAW
        ),
    )  # fmt: skip
    steps = [
        Step(index=0, completion=said, sent=Sent(messages=2, withheld=(1,))),
        Step(index=1, completion=Completion(token_ids=(), version="vllm-abc", seed=7)),  # as older versions stored it
        Step(index=2),
    ]
    await one_episode(tmp_path / "run", steps, [Message.user("q").stored, b'{"odd": 1}'])
    exported(tmp_path / "run", tmp_path / "out")
    first, second, third = rows(tmp_path / "out", "steps")
    assert (first["prompt_token_ids"], first["token_ids"]) == ([1, 2**31 - 1], [7, 8, 9])
    assert first["logprobs"] == [-0.1, -1e-300, 0.0]
    assert (first["version"], first["text"]) == ("v2", "é")
    assert [first[name] for name in ("version_end", "fingerprint", "endpoint")] == ["v3", "fp", "http://a/v1"]
    assert [first[name] for name in SAMPLING] == [0.5, None, 20, None, ["x"], None, "raw_logprobs"]
    assert [second[name] for name in SAMPLING] == [None, None, None, None, None, 7, None]
    assert (second["version"], second["fingerprint"]) == ("vllm-abc", "")
    assert (first["sent_messages"], first["sent_withheld"]) == (2, [1])
    assert (second["token_ids"], second["logprobs"]) == ([], None)
    assert third["text"] is None
    (episode,) = rows(tmp_path / "out", "episodes")
    assert (episode["task_id"], episode["versions"], episode["round"]) == ("t\u2028/..", ["v1", "v2"], 3)
    assert (episode["joinable"], episode["joined"]) == (4, 3)
    assert [row["role"] for row in rows(tmp_path / "out", "messages")] == ["user", ""]


async def test_what_is_damaged_is_told_and_its_outcome_kept(tmp_path: Path) -> None:
    await one_episode(tmp_path / "run", [Step(index=0)])
    next((tmp_path / "run").rglob("steps.jsonl")).write_text("{broken\n{}\n")
    done = exported(tmp_path / "run", tmp_path / "out")
    assert len(done.problems) == 1
    assert "steps.jsonl" in done.problems[0]
    assert len(rows(tmp_path / "out", "episodes")) == 1
    assert rows(tmp_path / "out", "steps") == []


def test_without_pyarrow_the_error_names_the_extra() -> None:
    code = (
        "import sys\nsys.modules['pyarrow'] = None\nfrom deskroll.errors import MissingDependency\n"
        "try:\n    import deskroll.export.tables\nexcept MissingDependency as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'deskroll[parquet]'" in done.stdout, done.stderr
