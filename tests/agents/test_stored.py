"""What the model saw is what is stored: every request can be built again from an attempt's files, to the byte."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from deskroll.agents.conversation import rebuild
from deskroll.models.anthropic import translated
from deskroll.models.messages import Message
from deskroll.models.scripted import Script, ScriptedServer, ToolUse, Turn
from deskroll.rollout.config import RunConfig
from deskroll.rollout.session import Session
from deskroll.store import Run
from deskroll.tasks import parse_task
from deskroll.types import Step
from tests.agents.talk import BROKEN, tap
from tests.agents.talk import use as call
from tests.agents.test_claude import calling, use
from tests.models.servers import canned
from tests.models.test_anthropic import said, text

TURNS = (
    tap(1, text='thinking "aloud" \\ ü 🙂'),
    tap(2, 3),
    Turn(tools=(call("tap", 1), ToolUse(name="tap", arguments=BROKEN))),  # malformed, and mended
    Turn(tools=(call("pair", 4), call("tap", 5))),
    Turn(tools=(call("no\nsuch", 1),)),
    Turn(text=""),
    tap(6),
    tap(7),
    Turn(text="the end"),
)


@pytest.mark.parametrize("max_images", [1, 2, 100])
async def test_every_request_can_be_built_again_to_the_byte(max_images: int, tmp_path: Path) -> None:
    task = parse_task({"id": "ü/1", "question": 'Tap "it" \\ \n now 🙂'}, "here")
    async with ScriptedServer(Script.replying(*TURNS), keep_requests=True) as server:
        config = RunConfig.model_validate({
            "env": "tests.agents.pictures:PictureEnv", "backend": "inline", "output_dir": str(tmp_path),
            "run_id": "run", "agent_options": {"max_images": max_images},
            "model": {"name": "m", "base_url": server.url, "retries": 0},
        })  # fmt: skip
        async with Session.open(config, [task]) as session:
            (episode,) = await session.run()
    assert (episode.score.value, episode.failure, server.stats.refused) == (1.0, None, 0)
    run = Run.open(tmp_path / "run")
    assert run.verify() == []
    attempt = run.attempt(episode.key, episode.attempt)
    kept = [Message.restore(stored, attempt.image) for stored in attempt.messages()]
    steps = attempt.steps()
    assert len(steps) == len(server.requests) == len(TURNS)
    for step, body in zip(steps, server.requests, strict=True):
        assert step.sent is not None
        messages = rebuild(kept, step.sent)
        assert b'"messages":[' + b",".join(messages) + b'],"tools":' in body
        assert sum(message.count(b"data:image/png") for message in messages) <= max_images
        assert step.completion is not None
        assert step.completion.fingerprint.startswith("scripted-")
    last = steps[-1].sent
    assert last is not None
    assert last.messages == len(kept) - 1, "the last message is the answer itself"
    assert bool(last.withheld) == (max_images < 100)


async def _kept(config: RunConfig, folder: Path) -> tuple[list[Message], list[Step]]:
    """The messages and the turns that one run of one task leaves behind."""
    task = parse_task({"id": "1", "instruction": "Do it.", "evaluator": {"func": "infeasible"}}, "here")
    async with Session.open(config, [task]) as session:
        (episode,) = await session.run()
    assert episode.failure is None
    attempt = Run.open(folder / "run").attempt(episode.key, episode.attempt)
    return [Message.restore(stored, attempt.image) for stored in attempt.messages()], attempt.steps()


def _settings(agent: str, url: str, folder: Path, **options: object) -> RunConfig:
    return RunConfig.model_validate({
        "env": "osworld", "agent": agent, "agent_options": options, "provider": "sim", "num_vms": 1, "run_id": "run",
        "backend": "inline", "output_dir": str(folder), "model": {"name": "m", "base_url": url, "retries": 0},
    })  # fmt: skip


async def test_agents_whose_models_write_text_keep_every_request_too(tmp_path: Path) -> None:
    turns = (
        "Action: click(start_box='(1,2)')",
        "hm",
        "Action: wait()",
        "Action: hotkey(key='tab')",
        "Action: finished()",
    )
    async with ScriptedServer(Script.replying(*turns), keep_requests=True) as server:
        kept, steps = await _kept(_settings("uitars", server.url, tmp_path, max_images=2), tmp_path)
        assert len(steps) == len(server.requests) == len(turns)
        for step, body in zip(steps, server.requests, strict=True):
            assert step.sent is not None
            assert b'"messages":[' + b",".join(rebuild(kept, step.sent)) + b"]}" in body


async def test_requests_of_another_protocol_follow_from_the_same_messages(tmp_path: Path) -> None:
    answers = [*(calling(use(f"call{n}", "key", text="Tab")) for n in range(4)), said(text("done"))]
    async with canned(*answers) as server:
        kept, steps = await _kept(_settings("claude", server.url, tmp_path, max_images=2), tmp_path)
        assert len(steps) == len(server.bodies) == 5
        for step, body in zip(steps, server.bodies, strict=True):
            assert step.sent is not None
            _, messages = translated(rebuild(kept, step.sent), toolset=True)
            assert b'"messages":' + msgspec.json.encode(messages) in body
        assert server.bodies[-1].count(b"[image withheld]") == 3
