"""Whether one turn goes on where the turn before it ended, token by token: the one rule by which turns are joined."""

from __future__ import annotations

from typing import Protocol

from deskroll.types import Completion, Sent


class Turn(Protocol):
    """What was asked and answered in one turn: a `Decision`, or a `Step`."""

    @property
    def completion(self) -> Completion | None:
        """What the model said."""

    @property
    def sent(self) -> Sent | None:
        """What it was sent."""


def has_ids(turn: Turn) -> bool:
    """Whether the ids of its prompt and of its completion are known."""
    said = turn.completion
    return said is not None and said.prompt_token_ids is not None and said.token_ids is not None


def joins(before: Turn, after: Turn) -> bool:
    """Whether `after` joins `before`: one sequence of tokens then holds both, each sampled as it was.

    Its prompt begins with all of the turn before, nothing was withheld in between (another picture may have as many
    placeholders as the one that it replaces), and both were sampled in the same way.
    """
    said, now = before.completion, after.completion
    if said is None or now is None or said.sampling != now.sampling:
        return False
    prompt, ids, longer = said.prompt_token_ids, said.token_ids, now.prompt_token_ids
    if prompt is None or ids is None or longer is None or not _withheld(after) <= _withheld(before):
        return False
    middle = len(prompt)
    return longer[:middle] == prompt and longer[middle : middle + len(ids)] == ids


def _withheld(turn: Turn) -> set[int]:
    return set(turn.sent.withheld) if turn.sent is not None else set()
