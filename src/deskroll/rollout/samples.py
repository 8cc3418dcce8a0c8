"""Samples: what an attempt leaves to be trained on, exactly as it was sampled.

The unit is a turn: the ids of its prompt, the ids that the model sampled, and their log-probabilities, as the server
told them; nothing is tokenised here. A turn joins the one before only where its prompt really begins with all of that
(`turns.py:joins`); a template that rewrites history, or a picture that was withheld, begins another sample.

Guarantees: every token that the model sampled for a step is in one sample, once, with its own id and log-probability.
What a tool or a judge asked is in none. What cannot be told exactly is a `SampleError`, never a sample with less in it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Protocol, TypeVar

from deskroll.errors import InputError
from deskroll.rollout.group import GroupResult
from deskroll.rollout.sampled_turns import ImageToken, SampledTurn, SampleError, TurnReader
from deskroll.rollout.turns import joins
from deskroll.rollout.weighing import Advantage, Weight
from deskroll.store import AttemptReader
from deskroll.store.names import name_of
from deskroll.types import Episode, EpisodeKey, Record, Sampling

__all__ = [
    "Advantage",
    "Attempts",
    "GroupSample",
    "ImageToken",
    "Sample",
    "SampleError",
    "Weight",
    "group_samples",
    "samples",
]

_EQUAL = 1e-9
"""Scores that differ by less are equal: adding fractions loses as much."""


class Sample(Record, frozen=True):
    """One sequence of tokens, of one turn or of several that join."""

    key: EpisodeKey
    attempt: int
    steps: tuple[int, ...]
    """The turns that it holds."""
    spans: tuple[tuple[int, int], ...]
    """Where among the tokens the completion of each of them begins and ends."""
    token_ids: tuple[int, ...]
    mask: tuple[bool, ...]
    """Of each token, whether the model sampled it, and it counts."""
    logprobs: tuple[float, ...]
    """Of each token, as the server told it; 0 where the mask is false."""
    versions: tuple[str, ...]
    """Of the weights that sampled each turn; empty: nobody said."""
    version_ends: tuple[str, ...]
    """Of those that sampled its last token, where they changed meanwhile; empty: they did not."""
    sampling: Sampling | None = None
    """How all of it was sampled; None: not known."""
    images: tuple[str, ...] = ()
    """The pictures of the last request, in its order, one for each run of placeholders; `AttemptReader.image` has
    their bytes."""


class GroupSample(Sample, frozen=True, kw_only=True):
    """A sample with what its group makes of it."""

    score: float
    advantage: float
    weights: tuple[float, ...]
    """Of each token; 0 where the mask is false. What a batch comes to is divided by the sum of all its weights."""


class Attempts(Protocol):
    """Where attempts are read: a `Run`, or the store of a `Runtime`."""

    def attempt(self, key: EpisodeKey, attempt: int) -> AttemptReader:
        """The folder of one attempt."""


def samples(attempt: AttemptReader, *, image_token: ImageToken = None, mask_unusable: bool = False) -> list[Sample]:
    """The samples of a sealed attempt, in the order of its turns.

    Replies that could not be used are among them, since the model is to learn from those, too; `mask_unusable` leaves
    them out: they stay as context of what joins them, and count nowhere.
    """
    episode = attempt.episode()
    if episode is None:
        raise SampleError(f"{attempt.shown} was not sealed: nobody knows whether all of it is there")
    reader = TurnReader(attempt, name_of(episode.key, episode.attempt), image_token)
    sequences: list[list[SampledTurn]] = []
    for turn in reader.turns():
        before = sequences[-1][-1] if sequences else None
        shown = () if before is None else before.images
        if before is not None and joins(before.step, turn.step) and turn.images[: len(shown)] == shown:
            sequences[-1].append(turn)
        else:
            sequences.append([turn])
    made = (_sample(episode, turns, mask_unusable=mask_unusable) for turns in sequences)
    return [each for each in made if any(each.mask)]


def _sample(episode: Episode, turns: Sequence[SampledTurn], *, mask_unusable: bool) -> Sample:
    """One sequence of the turns, each of which begins with all of the one before."""
    last = turns[-1]
    ids = last.prompt + (last.said.token_ids or ())
    mask, logprobs = [False] * len(ids), [0.0] * len(ids)
    for turn in turns:
        if turn.step.actions or not mask_unusable:
            begin, end = turn.span
            mask[begin:end] = [True] * (end - begin)
            logprobs[begin:end] = turn.said.logprobs or ()
    return Sample(
        key=episode.key,
        attempt=episode.attempt,
        steps=tuple(turn.step.index for turn in turns),
        spans=tuple(turn.span for turn in turns),
        token_ids=ids,
        mask=tuple(mask),
        logprobs=tuple(logprobs),
        versions=tuple(turn.said.version for turn in turns),
        version_ends=tuple(turn.said.version_end for turn in turns),
        sampling=last.said.sampling,
        images=last.images,
    )


def group_samples(
    group: GroupResult | Sequence[Episode],
    attempts: Attempts,
    *,
    advantage: Advantage | str = Advantage.CENTRED,
    weight: Weight | str = Weight.EPISODE,
    image_token: ImageToken = None,
    mask_unusable: bool = False,
) -> list[GroupSample]:
    """The samples of a group's episodes, each with its advantage; none where all scores are equal: no signal.

    Episodes without a score are left out, of mean and deviation too. Reads files: of an event loop, call it in a
    thread.
    """
    how, weighs = _named(Advantage, advantage), _named(Weight, weight)
    episodes = group.episodes if isinstance(group, GroupResult) else group
    if len({(each.key.phase, each.key.round, each.key.task) for each in episodes}) > 1:
        raise InputError("these episodes are not one group: a group has one phase, one round and one task")
    scored = [(episode, score) for episode in episodes if (score := episode.points) is not None]
    found: list[GroupSample] = []
    for (episode, score), gained in zip(scored, _advantages([score for _, score in scored], how), strict=True):
        if gained is not None:
            attempt = attempts.attempt(episode.key, episode.attempt)
            own = samples(attempt, image_token=image_token, mask_unusable=mask_unusable)
            whole = sum(sum(each.mask) for each in own)
            found += (_weighed(each, score, gained, _weights(each, weighs, whole)) for each in own)
    return found


def _advantages(scores: Sequence[float], how: Advantage) -> list[float | None]:
    if not scores or max(scores) - min(scores) < _EQUAL:
        return [None] * len(scores)
    mean = statistics.fmean(scores)
    scale = statistics.stdev(scores) if how is Advantage.GRPO else 1.0
    return [(score - mean) / scale for score in scores]


def _weights(sample: Sample, weight: Weight, whole: int) -> tuple[float, ...]:
    """`whole`: the tokens of its episode that count."""
    each = 1.0 if weight is Weight.TOKEN else 1.0 / whole
    if weight is not Weight.TURN:
        return tuple(each if counts else 0.0 for counts in sample.mask)
    weights = [0.0] * len(sample.mask)
    for begin, end in sample.spans:
        if begin < end and sample.mask[begin]:
            weights[begin:end] = [1.0 / (end - begin)] * (end - begin)
    return tuple(weights)


def _weighed(sample: Sample, score: float, advantage: float, weights: tuple[float, ...]) -> GroupSample:
    fields = {name: getattr(sample, name) for name in Sample.__struct_fields__}
    return GroupSample(**fields, score=score, advantage=advantage, weights=weights)


Choice = TypeVar("Choice", Advantage, Weight)


def _named(kind: type[Choice], value: Choice | str) -> Choice:
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(each.value for each in kind)
        raise InputError(f"{kind.__name__.lower()} is {value!r}; allowed: {allowed}") from None
