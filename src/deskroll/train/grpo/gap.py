"""Gap: whether the server and this trainer compute the same log-probabilities for the same weights.

Looked at in every step, on the samples of the very version that the trainer holds. Where they differ, something is
wrong that no curve shows: other weights than believed, log-probabilities before temperature, other kernels.
"""

from __future__ import annotations

import torch

from deskroll.errors import Untrainable
from deskroll.train.grpo.rows import Rows


class Gap:
    """Of one step."""

    def __init__(self, version: int, largest: float) -> None:
        self._version = version
        self._largest = largest
        self._sum = 0.0
        self._tokens = 0
        self._worst = -1.0
        self._named = ""

    @property
    def mean(self) -> float | None:
        """None: there was no sample of that version."""
        return self._sum / self._tokens if self._tokens else None

    def add(self, rows: Rows, logprobs: torch.Tensor) -> None:
        """What was computed for some sequences; those of other versions are left out."""
        fresh = [bool(each.versions) and set(each.versions) == {self._version} for each in rows.sequences]
        chosen = torch.tensor(fresh, device=rows.row.device)[rows.row]
        if not bool(chosen.any()):
            return
        apart = torch.where(chosen, (logprobs.detach() - rows.told).abs(), -1.0)
        self._sum += float(apart[chosen].sum())
        self._tokens += int(chosen.sum())
        worst = int(apart.argmax())
        if float(apart[worst]) > self._worst:
            self._worst = float(apart[worst])
            sequence, place = rows.sequences[int(rows.row[worst])], int(rows.place[worst])
            self._named = (
                f"token {place} of {sequence.name}, id {int(rows.token[worst])}: the server told "
                f"{float(rows.told[worst]):.4f}, and it is {float(logprobs[worst]):.4f}"
            )

    def check(self) -> None:
        """Raise `Untrainable` where it is too large."""
        if (mean := self.mean) is None or mean <= self._largest:
            return
        raise Untrainable(
            f"log-probabilities of version {self._version} differ by {mean:.4f} in the mean from what the server told, "
            f"over {self._tokens} tokens (max_logprob_gap is {self._largest:g}); the worst is {self._named}. The "
            "server must tell them after temperature (--logprobs-mode processed_logprobs), of these weights, and in a "
            "dtype that is not much coarser"
        )
