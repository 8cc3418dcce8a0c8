"""What scores and tokens count in training: the two choices that people make. Light, so that `--help` can read it."""

from __future__ import annotations

import enum


class Advantage(enum.StrEnum):
    """What an episode's score becomes beside those of its group."""

    CENTRED = "centred"
    """Less their mean."""
    GRPO = "grpo"
    """That, over their standard deviation (of a sample, n - 1, as TRL and verl have it)."""


class Weight(enum.StrEnum):
    """What counts the same as any other of its kind; each of them weighs 1 in all."""

    EPISODE = "episode"
    """However many turns it has."""
    TURN = "turn"
    TOKEN = "token"  # noqa: S105
