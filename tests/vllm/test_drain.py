"""A pool of one real vLLM that drains for newer weights: exact tokens, refreshes under load, weights that are no good.

The model sees pictures. The judge is a direct forward pass with the same weights. In this order, since a start takes a
minute or more.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deskroll.models.base import ModelCall
from deskroll.models.messages import Message
from deskroll.models.vllm.pool import ModelServicePool
from deskroll.models.weights.refusal import CheckpointRefused
from deskroll.rollout.config import RunConfig
from deskroll.rollout.samples import samples
from deskroll.rollout.session import Session
from deskroll.store import Run
from deskroll.tasks import parse_task
from deskroll.types import Completion
from tests.vllm.asking import Askers
from tests.vllm.real import (
    CLOSE,
    IMAGE_TOKEN,
    Judged,
    Said,
    ask,
    make_models,
    real_pool,
    run_there,
    sampling,
    write_pictures,
)
from tests.vllm.talking import TURNS

pytestmark = pytest.mark.timeout(3600)
VERSIONS = (1, 2, 3, 4, 5, 6)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All versions; the source gets them one after the other."""
    return make_models("vision", tmp_path_factory.mktemp("made"), *VERSIONS)


@pytest.fixture(scope="module")
def source(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source")
    (source / "step_1").symlink_to(made / "step_1")
    return source


@pytest.fixture(scope="module")
def told() -> list[str]:
    return []


@pytest.fixture(scope="module")
async def pool(source: Path, told: list[str]) -> AsyncIterator[ModelServicePool]:
    weights = {"source": str(source), "poll": 3600}
    async with real_pool(source / "step_1", told, weights=weights) as pool:
        await pool.ready()
        yield pool


async def talk(pool: ModelServicePool, pictures: list[Path], temperature: float) -> list[Said]:
    """Five turns, each with a picture where there are any."""
    messages: list[Message] = []
    seen: list[dict[str, Any]] = []
    said: list[Said] = []
    for turn, picture in itertools.zip_longest(range(TURNS), pictures[:TURNS]):
        words = f"turn {turn}: what do you see?"
        messages.append(Message.user(words, [(picture.name, picture.read_bytes())] if picture else []))
        parts = [{"type": "text", "text": words}, *([{"type": "image", "path": str(picture)}] if picture else [])]
        seen.append({"role": "user", "content": parts})
        call = ModelCall(sampling=sampling(24, temperature), session=f"talk at {temperature}")
        completion = await pool.generate([each.sent for each in messages], call=call)
        said.append(Said(completion, temperature, tuple(pictures[: turn + 1]), list(seen)))
        messages.append(Message.assistant(completion))
        seen.append({"role": "assistant", "content": completion.text})
    return said


async def test_every_token_of_a_conversation_is_exact(pool: ModelServicePool, source: Path, tmp_path: Path) -> None:
    pictures = write_pictures(tmp_path, TURNS)
    said: list[Said] = []
    for shown, temperature in itertools.product(([], pictures), (1.0, 0.7, 0.0)):
        said += await talk(pool, shown, temperature)
    judged = Judged(tmp_path, [source / "step_1"], said)
    worst = 0.0
    for each, prompt, logprobs, best in zip(said, judged.prompts, judged.logprobs[0], judged.best[0], strict=True):
        assert list(each.completion.prompt_token_ids or ()) == prompt
        runs = [key for key, _ in itertools.groupby(prompt) if key == IMAGE_TOKEN]
        assert len(runs) == len(each.pictures)
        if each.temperature:
            worst = max(worst, each.distance(logprobs))
        else:
            assert list(each.ids) == best, "what it takes is what the forward pass finds likeliest"
    tokens = sum(len(each.ids) for each in said)
    sizes = sorted({prompt.count(IMAGE_TOKEN) for prompt in judged.prompts})
    print(
        f"\n{len(said)} turns, {tokens} tokens, placeholders in a prompt {sizes}; log-probabilities within {worst:.2g}"
    )
    assert worst < CLOSE


async def test_samples_of_stored_episodes_are_exact(pool: ModelServicePool, source: Path, tmp_path: Path) -> None:
    tasks = [
        parse_task({"id": f"look-{n}", "question": "look", "evaluator": {"func": "infeasible"}}, "") for n in (1, 2)
    ]
    fields = {
        "env": "osworld", "provider": "sim", "backend": "inline", "output_dir": str(tmp_path), "run_id": "run",
        "agent": "tests.vllm.talking:TalkingAgent", "agent_options": {"max_images": 9},
        "model": {"name": "policy", "pool": pool.address, "exact": True, "temperature": 0.7, "max_tokens": 16,
                  "seed": 1, "logprobs_mode": "processed_logprobs"},
    }  # fmt: skip
    async with Session.open(RunConfig.model_validate(fields), tasks) as session:
        episodes = await session.run()
    said: list[Said] = []
    masks = []
    for episode in episodes:
        attempt = Run.open(f"{tmp_path}/run").attempt(episode.key, episode.attempt)
        for number, sample in enumerate(samples(attempt, image_token=IMAGE_TOKEN)):
            pictures = []
            for place, name in enumerate(sample.images):
                pictures.append(tmp_path / f"{episode.key.task}-{number}-{place}.png")
                pictures[-1].write_bytes(attempt.image(name))
            # All of it is judged but the first token; what the model did not sample is 0 in both.
            whole = Completion(
                prompt_token_ids=sample.token_ids[:1], token_ids=sample.token_ids[1:], logprobs=sample.logprobs[1:]
            )
            said.append(Said(whole, 0.7, tuple(pictures)))
            masks.append(sample.mask[1:])
            assert (set(sample.versions), sample.sampling and sample.sampling.temperature) == ({"1"}, 0.7)
    judged = Judged(tmp_path, [source / "step_1"], said).logprobs[0]
    worst = max(
        each.distance([value if counts else 0.0 for value, counts in zip(values, mask, strict=True)])
        for each, values, mask in zip(said, judged, masks, strict=True)
    )
    print(f"\n{len(episodes)} episodes, {len(said)} samples, {sum(map(sum, masks))} tokens: within {worst:.2g}")
    assert worst < CLOSE
    assert len(said) == len(episodes), "all turns of an episode join"


async def test_five_refreshes_under_32_requests_lose_none_and_each_answer_is_of_its_version(
    pool: ModelServicePool, source: Path, made: Path, tmp_path: Path, told: list[str]
) -> None:
    (picture,) = write_pictures(tmp_path, 1)
    askers = Askers(pool, 32, picture)
    for version in VERSIONS[1:]:
        await askers.more(48)
        (source / f"step_{version}").symlink_to(made / f"step_{version}")
        moved = await pool.load_latest_model()
        assert (moved.changed, moved.checkpoint.version) == (True, str(version))
    await askers.more(48)
    await askers.stop()
    judged = Judged(tmp_path, [made / f"step_{version}" for version in VERSIONS], askers.said)
    worst = judged.check_versions(askers.said, VERSIONS)
    assert {int(each.completion.version) for each in askers.said} == set(VERSIONS)
    assert not any(each.completion.version_end for each in askers.said)
    shown = {int(each.completion.version) for each in askers.said if each.pictures}
    assert shown == set(VERSIONS), "the same picture, seen by all of them"
    print(f"\n{len(askers.said)} answers of {len(VERSIONS)} versions: within {worst:.2g} of their own, and of no other")
    assert told == []


async def test_weights_that_are_no_numbers_are_taken_back(
    pool: ModelServicePool, source: Path, made: Path, tmp_path: Path, told: list[str]
) -> None:
    """A trainer whose loss exploded: the files are well, and no server can be warmed up with them."""
    run_there("tiny.py", "spoil", str(made / "step_6"), str(source / "step_7"))
    (source / "step_7" / "READY").touch()
    waiting = asyncio.create_task(ask(pool, "is anybody there?"))
    with pytest.raises(CheckpointRefused, match=r"version 7 in .*: no server takes it"):
        await pool.load_latest_model()
    await pool.ready()
    said = [await waiting, await ask(pool, "hello")]
    Judged(tmp_path, [made / "step_5", made / "step_6"], said).check_versions(said, (5, 6))
    (replica,) = (await pool.status()).replicas
    assert (replica.state, replica.deaths) == ("up", 0)
    assert sum("refused, and version 6 goes on" in line for line in told) == 1
    assert not (await pool.load_latest_model()).changed
