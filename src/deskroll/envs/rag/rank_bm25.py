"""Passages ranked by the words that they share with a query: BM25, by the package bm25s."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import bm25s  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from deskroll.envs.rag.words import words

VERSION = f"bm25-1-{bm25s.__version__}"


def write(folder: Path, texts: Sequence[str], *, stem: bool) -> None:
    """Index the texts."""
    numbers: dict[str, int] = {}
    ids = [[numbers.setdefault(word, len(numbers)) for word in words(text, stem=stem)] for text in texts]
    if not numbers:  # no word at all: one that no query has
        numbers, ids = {"": 0}, [[0] for _ in texts]
    index = bm25s.BM25(backend="numpy")
    index.index((ids, numbers), show_progress=False)
    index.save(folder, show_progress=False)


class Bm25:
    """An index, opened: its arrays are mapped, not read."""

    def __init__(self, folder: Path, *, stem: bool) -> None:
        self._index = bm25s.BM25.load(folder, mmap=True, show_progress=False)
        self._stem = stem

    def scores(self, query: str) -> npt.NDArray[np.float32] | None:
        """A score for each passage; None where no word of the query is known."""
        known = [word for word in words(query, stem=self._stem) if word in self._index.vocab_dict]
        scores: npt.NDArray[np.float32] | None = self._index.get_scores(known) if known else None
        return scores
