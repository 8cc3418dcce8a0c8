"""Samples: every sampled token once, exactly as it was; turns are joined only where the prefix really holds."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deskroll.actions import Wait
from deskroll.agents.conversation import Conversation
from deskroll.errors import InputError
from deskroll.models.messages import Message
from deskroll.rollout.group import GroupResult
from deskroll.rollout.samples import GroupSample, Sample, SampleError, group_samples, samples
from deskroll.rollout.turns import joins
from deskroll.store import AttemptReader, AttemptWriter, Storage, paths
from deskroll.types import Completion, Episode, EpisodeKey, Record, Sampling, Sent, Step, Task
from tests.rollout.conftest import ANSWER, CALCULATE, Runs, questions, script
from tests.store.records import PNG, episode, key

IMAGE, END, WITHHELD = 5, 2, 7
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Hundreds of attempts are written, and each waits for its disk."""
SAMPLING = Sampling(temperature=1.0, logprobs=True, token_ids=True)


class Said(Record, frozen=True):
    """One turn of a made-up conversation: what the model said, and what it was told and shown then."""

    text: str = "a"
    usable: bool = True
    told: str = "b"
    images: tuple[int, ...] = ()
    """How many placeholders each has."""
    rewritten: bool = False
    """Whether the template leaves out of this turn's prompt what the model said before."""
    version: str = ""
    sampling: Sampling = SAMPLING


TURNS = st.builds(
    Said,
    text=st.text("xyz", max_size=4),
    usable=st.booleans(),
    told=st.text("pq", max_size=3),
    images=st.lists(st.integers(1, 3), max_size=2).map(tuple),
    rewritten=st.sampled_from([False, False, False, True]),
    version=st.sampled_from(["1", "2"]),
    sampling=st.sampled_from([SAMPLING, SAMPLING, SAMPLING, Sampling(temperature=0.0)]),
)
TALKS = st.lists(TURNS, min_size=1, max_size=7)


class Talk:
    """An attempt whose model has a tokeniser of one token a character, and a template."""

    def __init__(self, writer: AttemptWriter, most: int) -> None:
        self._writer = writer
        self._conversation = Conversation(writer, most=most)
        self._messages: list[tuple[Message, tuple[int, ...]]] = []
        self._pictures = 0
        self.steps: list[Step] = []

    def tell(self, text: str, images: Sequence[int]) -> None:
        shown = []
        for _ in images:
            image = PNG + b"%d" % self._pictures
            shown.append((self._writer.screen(image), image))
            self._pictures += 1
        self._add(Message.user(text, shown), tuple(images))

    def say(self, turn: Said) -> None:
        index = len(self.steps)
        _, sent = self._conversation.request()
        ids = (*map(ord, turn.text), END)
        prompt = self._tokens(set(sent.withheld), rewritten=turn.rewritten)
        completion = Completion(
            text=turn.text, prompt_token_ids=prompt, token_ids=ids, prompt_tokens=len(prompt),
            completion_tokens=len(ids), logprobs=tuple(-1 - index - n / 100 for n in range(len(ids))),
            version=turn.version, sampling=turn.sampling,
        )  # fmt: skip
        actions = (Wait(),) if turn.usable else ()
        self.steps.append(Step(index=index, actions=actions, completion=completion, sent=sent))
        self._writer.step(self.steps[-1])
        self._add(Message.assistant(completion), ())

    def _add(self, message: Message, images: tuple[int, ...]) -> None:
        self._messages.append((message, images))
        self._conversation.add(message)

    def _tokens(self, withheld: set[int], *, rewritten: bool) -> tuple[int, ...]:
        tokens: list[int] = []
        for n, (message, images) in enumerate(self._messages):
            if message.role == "assistant":
                tokens += [] if rewritten else [*map(ord, message.text), END]
                continue
            tokens += [10, *map(ord, message.text)]
            for size in images:
                tokens += [WITHHELD] if n in withheld else [11, *[IMAGE] * size, 12]
            tokens.append(13)
        return tuple(tokens)


@contextmanager
def attempt_of(
    turns: Sequence[Said], *, most: int = 99, of: EpisodeKey | None = None, **change: Any
) -> Iterator[tuple[AttemptReader, list[Step]]]:
    """A sealed attempt; `change` changes the first step's completion, which is kept once more."""

    async def write() -> Talk:
        async with AttemptWriter(storage, of or key(), 1) as writer:
            talk = Talk(writer, most)
            for turn in turns:
                talk.tell(turn.told, turn.images)
                talk.say(turn)
            if change:
                (first, *_) = talk.steps
                assert first.completion is not None
                said = msgspec.structs.replace(first.completion, **change)
                writer.step(msgspec.structs.replace(first, index=len(talk.steps), completion=said))
            await writer.seal(episode(of or key()))
            return talk

    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        storage = Storage.at(folder)
        talk = asyncio.run(write())
        yield AttemptReader(storage, paths.attempt_folder(of or key(), 1)), talk.steps


def sampled(steps: Sequence[Step]) -> list[tuple[int, float]]:
    """Every token that a model sampled, with its log-probability."""
    said = [step.completion for step in steps if step.completion is not None]
    return [pair for each in said for pair in zip(each.token_ids or (), each.logprobs or (), strict=True)]


def masked(found: Sequence[Sample]) -> list[tuple[int, float]]:
    rows = [(each.token_ids, each.logprobs, each.mask) for each in found]
    return [(a, b) for row in rows for a, b, counts in zip(*row, strict=True) if counts]


@settings(max_examples=60, deadline=None)
@given(TALKS, st.integers(1, 4))
def test_no_sampled_token_is_lost_doubled_or_changed(turns: list[Said], most: int) -> None:
    with attempt_of(turns, most=most) as (attempt, steps):
        found = samples(attempt, image_token=IMAGE)
    assert masked(found) == sampled(steps)
    assert [index for each in found for index in each.steps] == list(range(len(steps)))
    for each in found:
        assert len(each.token_ids) == len(each.mask) == len(each.logprobs)
        assert len(each.steps) == len(each.spans) == len(each.versions) == len(each.version_ends)
        assert all(logprob == 0 for logprob, counts in zip(each.logprobs, each.mask, strict=True) if not counts)
        for index, (begin, end), version in zip(each.steps, each.spans, each.versions, strict=True):
            said = steps[index].completion
            assert said is not None
            assert (each.token_ids[:begin], each.token_ids[begin:end]) == (said.prompt_token_ids, said.token_ids)
            assert (each.sampling, version) == (said.sampling, said.version)


@settings(max_examples=60, deadline=None)
@given(TALKS, st.integers(1, 4))
def test_pictures_stand_in_the_order_of_their_placeholders(turns: list[Said], most: int) -> None:
    sizes = [size for turn in turns for size in turn.images]
    with attempt_of(turns, most=most) as (attempt, steps):
        for each in samples(attempt, image_token=IMAGE):
            withheld = {steps[index].sent.withheld for index in each.steps}  # type: ignore[union-attr]
            assert len(withheld) == 1, "a picture that is withheld ends a sample"
            runs = "".join("i" if token == IMAGE else " " for token in each.token_ids).split()
            numbers = [int(attempt.image(name).removeprefix(PNG)) for name in each.images]
            assert list(map(len, runs)) == [sizes[number] for number in numbers]


@settings(max_examples=40, deadline=None)
@given(TALKS)
def test_a_conversation_that_only_grows_is_one_sample(turns: list[Said]) -> None:
    plain = [msgspec.structs.replace(turn, rewritten=False, sampling=SAMPLING) for turn in turns]
    with attempt_of(plain) as (attempt, _):
        (found,) = samples(attempt, image_token=IMAGE)
    assert found.steps == tuple(range(len(turns)))


@settings(max_examples=40, deadline=None)
@given(TALKS)
def test_a_template_that_rewrites_history_keeps_turns_apart(turns: list[Said]) -> None:
    with attempt_of([msgspec.structs.replace(turn, rewritten=True) for turn in turns]) as (attempt, _):
        found = samples(attempt, image_token=IMAGE)
    assert [each.steps for each in found] == [(n,) for n in range(len(turns))]


def test_a_picture_that_is_withheld_ends_a_sample() -> None:
    turns = [Said(images=(2,)), Said(), Said(images=(2,)), Said()]
    with attempt_of(turns, most=1) as (attempt, _):
        found = samples(attempt, image_token=IMAGE)
    assert [(each.steps, each.images) for each in found] == [((0, 1), ("screens/0.png",)), ((2, 3), ("screens/1.png",))]


@settings(max_examples=40, deadline=None)
@given(TALKS)
def test_replies_that_could_not_be_used_count_unless_they_are_masked(turns: list[Said]) -> None:
    with attempt_of(turns) as (attempt, steps):
        found = samples(attempt, image_token=IMAGE, mask_unusable=True)
        whole = samples(attempt, image_token=IMAGE)
    assert masked(found) == sampled([step for step in steps if step.actions])
    assert masked(whole) == sampled(steps)
    assert {each.token_ids for each in found} <= {each.token_ids for each in whole}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"prompt_token_ids": (1, IMAGE), "prompt_tokens": 2}, "shown 2 images, and its prompt has 1 runs"),
        ({"prompt_token_ids": (1, IMAGE, 1, IMAGE, 1, IMAGE), "prompt_tokens": 6}, "has 3 runs of placeholders"),
        ({"prompt_token_ids": (), "prompt_tokens": 0}, "has 0 runs"),
        ({"token_ids": (IMAGE, END)}, "sampled a placeholder"),
        ({"token_ids": None}, "no token_ids. Ask for them with model.exact"),
        ({"logprobs": (-1.0,)}, "2 token ids and 1 log-probabilities"),
    ],
)
def test_what_does_not_fit_is_named_with_episode_and_step(change: dict[str, Any], why: str) -> None:
    with attempt_of([Said(images=(2, 3))], **change) as (attempt, _):
        with pytest.raises(SampleError, match=why) as refused:
            samples(attempt, image_token=IMAGE)
        assert str(refused.value).startswith("eval/0/task/0#1, step 1: ")


def test_pictures_without_their_placeholder_are_refused_and_text_needs_none() -> None:
    with attempt_of([Said(images=(1,))]) as (attempt, _):
        with pytest.raises(SampleError, match="step 0: it was shown 1 images; say by image_token"):
            samples(attempt)
        assert samples(attempt, image_token=(IMAGE, 99))[0].images == ("screens/0.png",)
    with attempt_of([Said()]) as (attempt, _):
        assert samples(attempt) == samples(attempt, image_token=IMAGE) != []


def test_an_attempt_that_was_not_sealed_gives_no_samples() -> None:
    with attempt_of([Said()]) as (attempt, _), pytest.raises(SampleError, match="not sealed"):
        samples(AttemptReader(attempt._storage, "episodes/none"))


class Shelf:
    """Attempts by their keys."""

    def __init__(self, attempts: dict[EpisodeKey, AttemptReader]) -> None:
        self._attempts = attempts

    def attempt(self, key: EpisodeKey, attempt: int) -> AttemptReader:
        assert attempt == 1
        return self._attempts[key]


@contextmanager
def group_of(*members: tuple[float | None, Sequence[Said]]) -> Iterator[tuple[GroupResult, Shelf]]:
    def nested(n: int, found: dict[EpisodeKey, AttemptReader]) -> Iterator[dict[EpisodeKey, AttemptReader]]:
        if n == len(members):
            yield found
            return
        with attempt_of(members[n][1], of=key(sample=n)) as (attempt, _):
            yield from nested(n + 1, {**found, key(sample=n): attempt})

    for found in nested(0, {}):
        episodes = tuple(episode(of, 1, members[of.sample][0]) for of in found)
        yield GroupResult(phase="eval", round=0, task=Task(id="task", instruction=""), episodes=episodes), Shelf(found)


def by_sample(found: Sequence[GroupSample], field: str) -> dict[int, set[float]]:
    made: dict[int, set[float]] = {}
    for each in found:
        made.setdefault(each.key.sample, set()).add(getattr(each, field))
    return made


def test_advantages_are_of_the_scores_that_there_are() -> None:
    apart = [Said(), Said(rewritten=True)]
    with group_of((1.0, apart), (0.0, apart), (None, apart), (0.5, [Said()])) as (group, shelf):
        centred = group_samples(group, shelf)
        grpo = group_samples(group.episodes, shelf, advantage="grpo")
    assert [each.key.sample for each in centred] == [0, 0, 1, 1, 3]
    assert by_sample(centred, "advantage") == {0: {0.5}, 1: {-0.5}, 3: {0.0}}
    assert by_sample(centred, "score") == {0: {1.0}, 1: {0.0}, 3: {0.5}}
    scale = statistics.stdev([1.0, 0.0, 0.5])
    assert by_sample(grpo, "advantage") == {0: {0.5 / scale}, 1: {-0.5 / scale}, 3: {0.0}}


@pytest.mark.parametrize("scores", [(1.0, 1.0), (0.0, None), (None, None), (0.1 + 0.2, 0.3), ()])
def test_a_group_without_a_signal_gives_no_samples(scores: tuple[float | None, ...]) -> None:
    with group_of(*((score, [Said()]) for score in scores)) as (group, shelf):
        assert group_samples(group, shelf, advantage="grpo") == []


@settings(max_examples=30, deadline=None)
@given(TALKS, TALKS, st.booleans())
def test_each_episode_turn_or_token_weighs_the_same(one: list[Said], two: list[Said], mask: bool) -> None:
    with group_of((1.0, one), (0.0, two)) as (group, shelf):
        for weight in ("episode", "turn", "token"):
            found = group_samples(group, shelf, weight=weight, image_token=IMAGE, mask_unusable=mask)
            for sample, turns in enumerate((one, two)):
                own = [each for each in found if each.key.sample == sample]
                counting = [turn for turn in turns if turn.usable or not mask]
                tokens = sum(len(turn.text) + 1 for turn in counting)
                expected = {"episode": int(tokens > 0), "turn": len(counting), "token": tokens}[weight]
                assert sum(sum(each.weights) for each in own) == pytest.approx(expected)
                for each in own:
                    assert [bool(weight) for weight in each.weights] == list(each.mask)


def test_what_is_no_group_or_no_choice_is_refused() -> None:
    with group_of((1.0, [Said()]), (0.0, [Said()])) as (group, shelf):
        with pytest.raises(InputError, match="advantage is 'ppo'; allowed: centred, grpo"):
            group_samples(group, shelf, advantage="ppo")
        with pytest.raises(InputError, match="weight is 'sum'; allowed: episode, turn, token"):
            group_samples(group, shelf, weight="sum")
        strange = episode(key("another"))
        with pytest.raises(InputError, match="not one group"):
            group_samples([*group.episodes, strange], shelf)


async def test_samples_of_a_run(runs: Runs) -> None:
    model = {"exact": True, "temperature": 1.0, "seed": 3, "logprobs_mode": "processed_logprobs"}
    found: list[Episode] = await runs.run(script(CALCULATE, ANSWER), questions(1), group_size=2, model=model)
    run = runs.read()
    for each in found:
        assert (each.joinable, each.joined) == (1, 1)
        attempt = run.attempt(each.key, each.attempt)
        (sample,) = samples(attempt)
        assert (sample.key, sample.steps) == (each.key, (0, 1))
        assert masked([sample]) == sampled(attempt.steps())
        assert sample.sampling is not None
        assert (sample.sampling.temperature, sample.sampling.logprobs_mode) == (1.0, "processed_logprobs")
    assert group_samples(found, run) == [], "both have the full score"


def test_turns_join_by_more_than_their_ids() -> None:
    said = Completion(prompt_token_ids=(1, IMAGE), token_ids=(3,), sampling=SAMPLING)
    first = Step(index=0, completion=said, sent=Sent(messages=1))
    longer = msgspec.structs.replace(said, prompt_token_ids=(1, IMAGE, 3, 4))
    assert joins(first, Step(index=1, completion=longer, sent=Sent(messages=3)))
    assert not joins(first, Step(index=1, completion=longer, sent=Sent(messages=3, withheld=(0,)))), "another picture"
    cooler = msgspec.structs.replace(longer, sampling=Sampling(temperature=0.0))
    assert not joins(first, Step(index=1, completion=cooler, sent=Sent(messages=3)))
    assert not joins(first, Step(index=1, completion=msgspec.structs.replace(longer, prompt_token_ids=(1, IMAGE, 4))))
    assert not joins(first, Step(index=1))
