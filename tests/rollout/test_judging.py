"""Runs whose answers a model judges: what it was asked is kept and counted, and it can be another model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deskroll.models.scripted import ScriptedServer
from deskroll.rollout.session import Session
from tests.rollout.conftest import ANSWER, Runs, questions, script

RIGHT = {"text": 'It says the same.\n{"verdict": "correct", "reason": "forty-two is 42"}'}
JUDGED = {"env_options": {"evaluation_metric": "llm_judgement"}}


def kept(runs: Runs) -> dict[str, Any]:
    run = runs.read()
    (episode,) = run.outcomes()
    found: dict[str, Any] = json.loads(run.attempt(episode.key, episode.attempt).read("judged.json"))
    return found


async def test_a_judge_of_its_own_is_asked_counted_and_kept(runs: Runs) -> None:
    async with ScriptedServer(script(ANSWER)) as model, ScriptedServer(script(RIGHT)) as judge:
        config = runs.config(model, **JUDGED, judge={"name": "the-judge", "base_url": judge.url})
        async with Session.open(config, questions(1)) as session:
            (episode,) = await session.run()
        assert judge.stats.requests == 1
    assert episode.score.value == 1.0
    assert "forty-two is 42" in episode.score.reason
    assert (episode.steps, episode.usage.calls) == (1, 2)
    exchange = kept(runs)
    assert "What is 6*7?" in json.dumps(exchange["messages"])
    assert exchange["completion"]["text"] == RIGHT["text"]


async def test_what_was_found_and_what_was_expected_is_kept_without_secrets(runs: Runs) -> None:
    """In brief, with the outcome, in its file and in the results."""
    said = "It is 41; token=abcdef, and the key is sk-sesame. " + "x" * 1000
    model = {"api_key": "sk-sesame"}
    (episode,) = await runs.run(script({"text": said}), questions(1), model=model)
    score = episode.score
    assert (score.value, score.expected) == (0.0, "42")
    assert score.found is not None
    assert score.found.startswith("It is 41; token=**********, and the key is **********. xxx")
    assert len(score.found) <= 500
    run = runs.read()
    stored = json.loads(run.attempt(episode.key, episode.attempt).read("episode.json"))
    assert (stored["score"]["found"], stored["score"]["expected"]) == (score.found, "42")
    (line,) = (Path(runs.folder) / "run" / "results.jsonl").read_text().splitlines()
    assert (json.loads(line)["found"], json.loads(line)["expected"]) == (score.found, "42")


async def test_without_one_the_model_itself_is_asked(runs: Runs) -> None:
    (episode,) = await runs.run(script({"text": RIGHT["text"]}), questions(1), **JUDGED)
    assert episode.score.value == 1.0
    assert kept(runs)["completion"]["text"] == RIGHT["text"]


async def test_a_judge_that_gives_no_verdict_leaves_the_attempt_unscored(runs: Runs) -> None:
    (episode,) = await runs.run(script({"text": "Who knows?"}), questions(1), **JUDGED)
    assert episode.score.value is None
    assert episode.failure is not None
    assert episode.failure.failure_class == "evaluator"


async def test_what_is_not_judged_asks_nobody(runs: Runs) -> None:
    async with ScriptedServer(script(ANSWER)) as model:
        config = runs.config(model, **JUDGED, evaluate=False, judge={"name": "j", "base_url": "http://127.0.0.1:9/v1"})
        async with Session.open(config, questions(2)) as session:
            episodes = await session.run()
        assert model.stats.requests == 2
    assert [(each.score.value, each.answer, each.failure) for each in episodes] == [(None, "42", None)] * 2
