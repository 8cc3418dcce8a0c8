"""Pins: names of models that somebody wants served on, though newer ones are by now: one version of an adapter each.

A pure record of who holds what. Guarantee: a pin ends when it is let go, or its holder is gone.
"""

from __future__ import annotations


class Pins:
    """Of one roster."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], str] = {}

    def add(self, holder: str, number: int, model: str) -> None:
        """A holder wants a model served on, under its own number for that."""
        self._held[holder, number] = model

    def end(self, holder: str, number: int) -> None:
        """It does not any more."""
        self._held.pop((holder, number), None)

    def lose(self, holder: str) -> None:
        """A holder is gone."""
        self._held = {key: model for key, model in self._held.items() if key[0] != holder}

    @property
    def models(self) -> set[str]:
        """What is pinned."""
        return set(self._held.values())
