"""The models that one attempt asks: the run's, with the attempt's own call and seed, and notes of what was said.

Guarantee: samples of one task are asked with different seeds, and the same sample always with the same one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

import msgspec

from deskroll.models.base import ANY_CALL, Model, ModelCall
from deskroll.types import Completion, EpisodeKey, Sampling


def call_of(key: EpisodeKey, sampling: Sampling) -> ModelCall:
    """How an episode asks its model, given how the run samples."""
    if sampling.seed is not None:
        sampling = msgspec.structs.replace(sampling, seed=seed_of(key, sampling.seed))
    return ModelCall(sampling=sampling, session=f"{key.phase}/{key.round}/{key.task}/{key.sample}")


def seed_of(key: EpisodeKey, run_seed: int) -> int:
    """The seed of one sample: of 31 bits, as every server takes them."""
    name = msgspec.json.encode([run_seed, key.phase, key.round, key.task, key.sample])
    return int.from_bytes(hashlib.blake2b(name, digest_size=4).digest(), "big") >> 1


class Notes(Protocol):
    """Where it is written down what an attempt's environment asks a model."""

    def count(self, completion: Completion) -> None:
        """Count one answer of a model."""

    def keep(self, name: str, data: bytes) -> None:
        """Keep a file with the attempt."""


class BoundModel:
    """A model that is asked with one attempt's call, unless whoever asks brings another."""

    def __init__(self, model: Model, call: ModelCall) -> None:
        self._model = model
        self._call = call

    async def complete(
        self, messages: Sequence[bytes], tools: bytes | None = None, *, call: ModelCall = ANY_CALL
    ) -> Completion:
        """See `Model`."""
        return await self._model.complete(messages, tools, call=self._call if call is ANY_CALL else call)


class NotedModel:
    """A model that an environment asks: what was said is kept with the attempt, and counted with it."""

    def __init__(self, model: Model, notes: Notes, name: str) -> None:
        self._model = model
        self._notes = notes
        self._name = name

    async def complete(
        self, messages: Sequence[bytes], tools: bytes | None = None, *, call: ModelCall = ANY_CALL
    ) -> Completion:
        """Ask, keep and count."""
        completion = await self._model.complete(messages, tools, call=call)
        self._notes.count(completion)
        said = {"messages": [msgspec.Raw(each) for each in messages], "completion": completion}
        self._notes.keep(self._name, msgspec.json.encode(said))
        return completion
