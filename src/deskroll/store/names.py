"""Names of episodes and attempts, as logs and people write them; `finding.py` reads them."""

from __future__ import annotations

from deskroll.errors import plain
from deskroll.types import EpisodeKey

NAMED_BY = "phase/round/task/sample#attempt"
"""What the parts of an attempt's name are."""


def attempt_name(key: EpisodeKey, attempt: int) -> str:
    """An attempt in one word, as it is: by this it is found again."""
    return f"{key.phase}/{key.round}/{key.task}/{key.sample}#{attempt}"


def name_of(key: EpisodeKey, attempt: int) -> str:
    """An attempt in one word, fit for a terminal."""
    return plain(attempt_name(key, attempt))
