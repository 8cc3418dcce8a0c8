"""Rows: sequences side by side, as a model takes them, and where in them the tokens are that count.

Sequences with pictures stand alone: what a processor makes of pictures can be put together for one sequence, and for
several only as each model has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from deskroll.train.base import TrainSequence


@dataclass(frozen=True)
class Rows:
    """What is computed at a time. All but `ids` and `mask` have one entry for each token that counts, row by row."""

    sequences: tuple[TrainSequence, ...]
    ids: torch.Tensor
    mask: torch.Tensor
    """1 for tokens, 0 for padding, which stands on the right."""
    row: torch.Tensor
    place: torch.Tensor
    """Where in its row each stands."""
    token: torch.Tensor
    told: torch.Tensor
    """The log-probability that the server told."""
    weight: torch.Tensor
    advantage: torch.Tensor
    temperature: torch.Tensor


def make_rows(sequences: Sequence[TrainSequence], device: torch.device) -> Rows:
    """Of sequences with a token that counts each."""
    longest = max(len(each.token_ids) for each in sequences)
    ids = torch.zeros(len(sequences), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for number, each in enumerate(sequences):
        ids[number, : len(each.token_ids)] = torch.tensor(each.token_ids)
        mask[number, : len(each.token_ids)] = 1
    places = [(n, at) for n, each in enumerate(sequences) for at, weight in enumerate(each.weights) if weight]

    def numbers(values: Iterable[float]) -> torch.Tensor:
        return torch.tensor(list(values), dtype=torch.float32, device=device)

    row, place = torch.tensor(places, device=device).T
    ids = ids.to(device)
    return Rows(
        sequences=tuple(sequences),
        ids=ids,
        mask=mask.to(device),
        row=row,
        place=place,
        token=ids[row, place],
        told=numbers(sequences[n].logprobs[at] for n, at in places),
        weight=numbers(sequences[n].weights[at] for n, at in places),
        advantage=numbers(sequences[n].advantage for n, _ in places),
        temperature=numbers(sequences[n].temperature for n, _ in places),
    )


def micro_batches(sequences: Iterable[TrainSequence], tokens: int) -> Iterator[list[TrainSequence]]:
    """Those in which something counts, so many tokens at a time, padding included; of like length together."""
    found: list[TrainSequence] = []
    for each in sorted(sequences, key=lambda each: (bool(each.images), len(each.token_ids))):
        if not each.sampled_tokens:
            continue
        if found and (each.images or (len(found) + 1) * len(each.token_ids) > tokens):
            yield found
            found = []
        found.append(each)
    if found:
        yield found
