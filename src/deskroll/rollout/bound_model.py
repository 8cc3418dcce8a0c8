"""The models that one attempt asks: the run's, with the attempt's own call and seed, and notes of what was said.

Guarantee: samples of one task are asked with different seeds, and the same sample always with the same one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

import msgspec

from deskroll.errors import plain
from deskroll.models.base import ANY_CALL, Model, ModelCall
from deskroll.models.exact import InexactAnswer, inexact
from deskroll.types import Completion, EpisodeKey, Sampling


def call_of(key: EpisodeKey, sampling: Sampling) -> ModelCall:
    """How an episode asks its model, given how it samples."""
    if sampling.seed is not None:
        sampling = msgspec.structs.replace(sampling, seed=seed_of(key, sampling.seed))
    return ModelCall(sampling=sampling, session=session_of(key))


def session_of(key: EpisodeKey) -> str:
    """The name under which an episode asks its model."""
    return f"{key.phase}/{key.round}/{key.task}/{key.sample}"


def over(settings: Sampling, given: Sampling | None) -> Sampling:
    """What is given, over what the settings say: fields that are as they are by default stay the settings'."""
    if given is None:
        return settings
    fields = {name: getattr(given, name) for name in Sampling.__struct_fields__}
    return msgspec.structs.replace(settings, **{n: v for n, v in fields.items() if v != getattr(Sampling(), n)})


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

    def __init__(self, model: Model, call: ModelCall, *, exact: bool = False) -> None:
        """`exact`: an answer whose tokens are not exact is an `InexactAnswer`."""
        self._model = model
        self._call = call
        self._exact = exact

    async def complete(
        self, messages: Sequence[bytes], tools: bytes | None = None, *, call: ModelCall = ANY_CALL
    ) -> Completion:
        """See `Model`."""
        completion = await self._model.complete(messages, tools, call=self._call if call is ANY_CALL else call)
        if self._exact and (why := inexact(completion)):
            raise InexactAnswer(f"model {plain(completion.model, 200)}: its answer is not exact: {why}")
        return completion


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
