"""What a step is taken on: of a batch of groups, sequences of tokens with weights and advantages; pictures by name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from deskroll.rollout.group import GroupResult
from deskroll.rollout.samples import Advantage, Attempts, GroupSample, ImageToken, Weight, group_samples
from deskroll.store import paths
from deskroll.store.names import name_of
from deskroll.train.base import TrainSequence


def sequences_of(
    groups: Iterable[GroupResult],
    attempts: Attempts,
    root: Path,
    *,
    advantage: Advantage,
    weight: Weight,
    image_token: ImageToken = None,
) -> list[TrainSequence]:
    """The sequences of a batch. Reads files: call it in a thread."""
    found: list[TrainSequence] = []
    for group in groups:
        for sample in group_samples(group, attempts, advantage=advantage, weight=weight, image_token=image_token):
            found.append(_sequence(sample, root))
    return found


def _sequence(sample: GroupSample, root: Path) -> TrainSequence:
    folder = root / paths.attempt_folder(sample.key, sample.attempt)
    temperature = None if sample.sampling is None else sample.sampling.temperature
    return TrainSequence(
        name=f"{name_of(sample.key, sample.attempt)}, steps {sample.steps[0]} to {sample.steps[-1]}",
        token_ids=list(sample.token_ids),
        logprobs=list(sample.logprobs),
        weights=list(sample.weights),
        advantage=sample.advantage,
        temperature=1.0 if temperature is None else temperature,
        versions=tuple(int(each) for each in sample.versions if each.isdecimal()),
        images=tuple(str(folder / name) for name in sample.images),
    )
