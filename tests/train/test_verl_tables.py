"""A run as verl's Parquet files, read back: samples in the fields of its agent loops, and rows to run more."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image
from pyarrow import parquet

from deskroll.rollout.samples import samples
from deskroll.store import Run
from deskroll.train.driven import DrivenEpisodes, drive
from deskroll.train.verl_messages import read_messages, tool_schemas
from deskroll.types import Completion, Task, Tool
from tests.commands import Commands
from tests.train.test_driven import closing, config_of

TASK = Task(id="half \u00fc", instruction="do it", evaluator={"func": "infeasible"}, domain="odd")


def answer(text: str, prompt: list[int], ids: list[int], version: str, **others: Any) -> Completion:
    return Completion(
        text=f"```\n{text}\n```", prompt_token_ids=tuple(prompt), token_ids=tuple(ids),
        logprobs=tuple(-0.25 * (n + 1) for n in range(len(ids))), prompt_tokens=len(prompt),
        completion_tokens=len(ids), version=version, **others,
    )  # fmt: skip


async def play(driven: DrivenEpisodes, *answers: Completion) -> None:
    episode = driven.begin(TASK)
    for each in answers:
        assert await episode.request() is not None
        episode.answer(each)
    if not answers:
        await episode.abandon()
    assert await episode.request() is None


@pytest.fixture
async def run(tmp_path: Path) -> Run:
    """Four episodes: of one sample, of two, one that was given up, and one without log-probabilities."""
    with closing(await drive(config_of(tmp_path / "runs"))) as driven:
        await play(driven, answer("WAIT", [1, 2], [3], "7"), answer("FAIL", [1, 2, 3, 4], [5, 6], "8"))
        await play(driven, answer("WAIT", [1, 2], [3], ""), answer("DONE", [1, 9], [5], ""))
        await play(driven)
        bare = msgspec.structs.replace(answer("FAIL", [1], [2], ""), logprobs=None)
        await play(driven, bare)
    return Run.open(driven.folder)


def test_samples_and_prompts(run: Run, tmp_path: Path, deskroll: Commands, env: dict[str, str]) -> None:
    out = tmp_path / "out"
    ended = deskroll("export", run.root, "--to", "verl", "--output", str(out), cwd=tmp_path, env=env)
    assert ended.code == 1, "one of them could not be read"
    assert "2 episodes written, 1 without a score, 1 could not be read" in ended.out
    assert "logprobs" in ended.err
    rows = parquet.read_table(out / "samples.parquet").to_pylist()
    first, *others = rows
    assert (first["prompt_ids"], first["response_ids"]) == ([1, 2], [3, 4, 5, 6])
    assert (first["response_mask"], first["response_logprobs"]) == ([1, 0, 1, 1], [-0.25, 0.0, -0.25, -0.5])
    assert (first["reward_score"], first["num_turns"], first["multi_modal_data"]) == (1.0, 4, {"images": []})
    assert first["extra_fields"] == {
        "episode": "train/0/half \u00fc/0#1", "versions": ["7", "8"], "min_global_steps": 7, "max_global_steps": 8,
        "turn_scores": [], "tool_rewards": [], "reward_extra_info": {"success": 1.0},
    }  # fmt: skip
    assert [(row["prompt_ids"], row["response_ids"], row["reward_score"]) for row in others] == [
        ([1, 2], [3], 0.0), ([1, 9], [5], 0.0),
    ]  # fmt: skip
    assert others[0]["extra_fields"]["min_global_steps"] is None
    (prompt,) = parquet.read_table(out / "prompts.parquet").to_pylist()
    assert prompt["prompt"] == [{"role": "user", "content": "do it"}]
    assert (prompt["agent_name"], prompt["ability"], prompt["extra_info"]["index"]) == ("deskroll", "odd", 0)
    assert msgspec.json.decode(prompt["extra_info"]["task"], type=Task) == TASK


def test_rows_hold_all_that_samples_do(run: Run, tmp_path: Path, deskroll: Commands, env: dict[str, str]) -> None:
    out = tmp_path / "out"
    deskroll("export", run.root, "--to", "verl", "--output", str(out), cwd=tmp_path, env=env)
    rows = parquet.read_table(out / "samples.parquet").to_pylist()
    scored = [each for each in sorted(run.outcomes(), key=lambda each: each.key) if each.points is not None][:2]
    found = [sample for each in scored for sample in samples(run.attempt(each.key, each.attempt))]
    assert [tuple(row["prompt_ids"] + row["response_ids"]) for row in rows] == [each.token_ids for each in found]
    assert [sum(row["response_mask"]) for row in rows] == [sum(each.mask) for each in found]


def test_an_option_of_verls_belongs_to_it(run: Run, tmp_path: Path, deskroll: Commands, env: dict[str, str]) -> None:
    words = ("export", run.root, "--to", "parquet", "--output", str(tmp_path / "out"), "--image-token", "7")
    ended = deskroll(*words, cwd=tmp_path, env=env)
    assert ended.code == 2 and "--image-token belongs to --to verl" in ended.err


def test_messages_as_templates_read_them() -> None:
    data = io.BytesIO()
    Image.new("RGB", (3, 2)).save(data, "PNG")
    picture = f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}"
    sent = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
        {
            "role": "assistant", "content": None, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}},
                {"id": "b", "type": "function", "function": {"name": "add", "arguments": "{no"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "2"},
        {"role": "user", "content": [
            {"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": picture}},
        ]},
    ]  # fmt: skip
    read = read_messages([msgspec.json.encode(each) for each in sent])
    assert [each["content"] for each in read[:4]] == ["be brief", "one\ntwo", "", "2"]
    assert [each["function"]["arguments"] for each in read[2]["tool_calls"]] == [{"x": 1}, "{no"]
    assert read[3]["tool_call_id"] == "a"
    assert read[4]["content"][1]["image"].size == (3, 2)
    (schema,) = tool_schemas([Tool(name="add", description="adds", parameters={"type": "object"})])
    assert schema["function"]["parameters"] == {"type": "object"}
