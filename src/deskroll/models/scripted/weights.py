"""Weights: which ones gave an answer is seen from its log-probabilities.

A token's log-probability is what its id gives, less three parts that follow from the bytes of the weights: one for the
weights that generated the token, one for those that read the prompt, one for those that saw its images. With fresh
caches all three are of the same weights, and `fits` says so; where one is stale, the answer fits no weights at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from deskroll.types import Record

_STEPS = 1_000_003
_CLOSE = 1e-9


class WeightsMissing(Exception):
    """A folder holds no weights."""


class Weights(Record, frozen=True):
    """One set of weights."""

    path: str = ""
    digest: str = ""
    """Of the bytes of all its files; empty: weights that shift nothing."""

    @classmethod
    def read(cls, folder: Path) -> Weights:
        """The weights in a folder: all of its `*.safetensors`, by name and content."""
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise WeightsMissing(f"Cannot find any model weights with `{folder}`")
        digest = hashlib.sha256()
        for file in files:
            with file.open("rb") as data:
                digest.update(file.name.encode() + b"\0" + hashlib.file_digest(data, "sha256").digest())
        return cls(path=str(folder), digest=digest.hexdigest())

    def mixed(self, other: Weights | None) -> Weights:
        """What these and others give together, as a base and its adapter do; the same without any others."""
        if other is None:
            return self
        both = hashlib.sha256(f"{self.digest}+{other.digest}".encode()).hexdigest()
        return Weights(path=self.path, digest=both)

    def part(self, name: str) -> float:
        """By how much a part of the work, when done with these, lowers every log-probability."""
        if not self.digest:
            return 0.0
        number = int.from_bytes(hashlib.sha256(f"{self.digest}/{name}".encode()).digest()[:8])
        return number % _STEPS / _STEPS / 3

    @property
    def shift(self) -> float:
        """All parts together: what log-probabilities are lowered by where nothing is stale."""
        return self.part("token") + self.part("prompt") + self.part("image")

    def fits(self, token_ids: Sequence[int], logprobs: Sequence[float]) -> bool:
        """Whether these log-probabilities are of these weights, and of no others."""
        if len(token_ids) != len(logprobs):
            return False
        return all(
            abs(plain_logprob(token) - self.shift - given) < _CLOSE
            for token, given in zip(token_ids, logprobs, strict=True)
        )


def plain_logprob(token: int) -> float:
    """The log-probability of a token under weights that shift nothing."""
    return -(1 + token % 999) / 1000
