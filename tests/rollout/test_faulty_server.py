"""A model server that fails in every way it can: every episode ends with the right outcome all the same."""

from __future__ import annotations

import pytest

from deskroll.models.scripted import Script, ScriptedServer
from deskroll.rollout.session import Session
from deskroll.tasks import parse_task
from tests.rollout.conftest import Runs

KINDS = [429, 500, "half_body", "invalid_json", "wrong_tool", "stall"]
EPISODES = 200


@pytest.mark.timeout(170)
async def test_two_hundred_episodes_against_a_server_that_fails_in_three_of_ten_answers(runs: Runs) -> None:
    faults = {"rate": 0.3, "kinds": KINDS, "stall": 30.0, "retry_after": 0.02}
    replies = [
        {
            "when": f"({n} times 7)",
            "turns": [
                {"tools": [{"name": "calculator", "arguments": {"expressions": [f"{n}*7"]}}]},
                {"text": "I check it", "tools": [{"name": "calculator", "arguments": {"expressions": [f"7*{n}"]}}] * 2},
                {"text": str(n * 7) if n % 4 else "wrong"},
            ],
        }
        for n in range(EPISODES)
    ]
    tasks = [
        parse_task({"id": f"{n}", "question": f"Compute ({n} times 7)", "answer": str(n * 7)}, "here")
        for n in range(EPISODES)
    ]
    async with ScriptedServer(Script.parse({"seed": 5, "faults": faults, "replies": replies})) as server:
        config = runs.config(
            server, backend="process", num_rollouts=50, model={"timeout": 1.0, "retries": 8, "backoff_max": 0.1},
            agent_options={"max_retries": 20},
        )  # fmt: skip
        async with Session.open(config, tasks) as session:
            outcomes = await session.run()
        drawn = server.stats.faults
        assert set(map(str, drawn)) == set(map(str, KINDS)), "every kind of fault came up"
        assert sum(drawn.values()) > 0.25 * server.stats.requests
    assert len(outcomes) == EPISODES
    for episode in outcomes:
        right = int(episode.key.task) % 4 != 0
        assert (episode.failure, episode.score.value) == (None, float(right)), episode
        assert episode.answer == (str(int(episode.key.task) * 7) if right else "wrong")
