"""What the model saw is what is stored: every request can be built again from an attempt's files, to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from deskroll.agents.conversation import rebuild
from deskroll.models.messages import Message
from deskroll.models.scripted import Script, ScriptedServer, ToolUse, Turn
from deskroll.rollout.config import RunConfig
from deskroll.rollout.session import Session
from deskroll.store import Run
from deskroll.tasks import parse_task
from tests.agents.talk import BROKEN, tap, use

TURNS = (
    tap(1, text='thinking "aloud" \\ ü 🙂'),
    tap(2, 3),
    Turn(tools=(use("tap", 1), ToolUse(name="tap", arguments=BROKEN))),  # malformed, and mended
    Turn(tools=(use("pair", 4), use("tap", 5))),
    Turn(tools=(use("no\nsuch", 1),)),
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
        assert step.completion.version.startswith("scripted-")
    last = steps[-1].sent
    assert last is not None
    assert last.messages == len(kept) - 1, "the last message is the answer itself"
    assert bool(last.withheld) == (max_images < 100)
