"""VerlColumns: a sample in the fields of verl's `AgentLoopOutput`: a prompt, and everything behind it as the response.

What the agent loop returns and what `deskroll export --to verl` writes are both made here. Guarantee: prompt and
response together are the sample's tokens; the mask says which of the response the model sampled.
"""

from __future__ import annotations

from deskroll.rollout.samples import Sample
from deskroll.store.names import name_of
from deskroll.types import Episode, Record, is_success


class VerlColumns(Record, frozen=True):
    """One sample."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    response_mask: tuple[int, ...]
    """1: the model sampled it; 0: it was told it."""
    response_logprobs: tuple[float, ...]
    """0 where the mask is."""
    images: tuple[str, ...]
    """The names of its pictures, in the order of their placeholders."""
    num_turns: int
    """Turns of chat: the request, and each answer with what it was told then."""
    reward_score: float
    versions: tuple[str, ...]
    """Of the weights that sampled each turn; empty: nobody said."""
    episode: str
    """Whose it is: phase/round/task/sample#attempt."""

    @classmethod
    def of(cls, sample: Sample, episode: Episode, points: float) -> VerlColumns:
        """Of a sample of an episode with that score."""
        begin = sample.spans[0][0]
        return cls(
            prompt_ids=sample.token_ids[:begin],
            response_ids=sample.token_ids[begin:],
            response_mask=tuple(map(int, sample.mask[begin:])),
            response_logprobs=sample.logprobs[begin:],
            images=sample.images,
            num_turns=2 * len(sample.steps),
            reward_score=points,
            versions=sample.versions,
            episode=name_of(episode.key, episode.attempt),
        )

    @property
    def extra_fields(self) -> dict[str, object]:
        """What verl carries along: the same keys for every sample."""
        steps = [int(each) for each in self.versions if each.isdecimal()]
        return {
            "episode": self.episode,
            "versions": list(self.versions),
            "min_global_steps": min(steps, default=None),
            "max_global_steps": max(steps, default=None),
            "turn_scores": [],
            "tool_rewards": [],
            "reward_extra_info": {"success": float(is_success(self.reward_score))},
        }
