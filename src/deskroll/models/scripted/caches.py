"""Caches: what an engine remembers of prompts and images, and of the weights that read them.

As with vLLM, neither knows when weights change: what was read with the old ones is used until it is forgotten. Prompts
are remembered message by message; an image, once seen, by itself. Guarantees: at most `_MOST` entries in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from deskroll.models.scripted.requests import ChatMessage
from deskroll.models.scripted.weights import Weights
from deskroll.types import Record

V = TypeVar("V")
_MOST = 20_000


class Context(Record, frozen=True):
    """What a prompt adds to the shift of log-probabilities, by the weights that read it."""

    prompt: float = 0.0
    image: float = 0.0
    """The sum over its images."""
    images: int = 0

    def shift(self, weights: Weights) -> float:
        """What it adds to an answer that these weights give."""
        return self.prompt + (self.image / self.images if self.images else weights.part("image"))


class Caches:
    """The prefix cache and the encoder cache."""

    def __init__(self) -> None:
        self._prefixes: dict[int, Context] = {}
        self._images: dict[int, float] = {}

    def read(self, messages: Sequence[ChatMessage], weights: Weights, adapter: Weights | None) -> Context:
        """Read a prompt: what is known of it is used, the rest is read with these weights and remembered."""
        reading = weights.mixed(adapter)
        own = key = hash(adapter.digest if adapter else "")
        context = Context(prompt=reading.part("prompt"))
        for message in messages:
            key = hash((key, message.role, message.text, str(message.tool_calls), *message.images))
            known = self._prefixes.get(key)
            context = known or self._with_images(context, [hash((own, image)) for image in message.images], reading)
            _remember(self._prefixes, key, context)
        return context

    def _with_images(self, context: Context, images: Sequence[int], weights: Weights) -> Context:
        total = context.image
        for image in images:
            seen = self._images.get(image, weights.part("image"))
            _remember(self._images, image, seen)
            total += seen
        return Context(prompt=context.prompt, image=total, images=context.images + len(images))

    def forget_prefixes(self) -> None:
        """What `/reset_prefix_cache` does."""
        self._prefixes.clear()

    def forget_images(self) -> None:
        """What `/reset_encoder_cache` does."""
        self._images.clear()


def _remember(cache: dict[int, V], key: int, value: V) -> None:
    cache[key] = value
    if len(cache) > _MOST:
        del cache[next(iter(cache))]
