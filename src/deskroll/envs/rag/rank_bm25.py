"""Passages ranked by the words that they share with a query: BM25, by the package bm25s."""

from __future__ import annotations

from array import array
from pathlib import Path

import bm25s  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from deskroll.envs.words import VERSION as WORDS
from deskroll.envs.words import words

VERSION = f"bm25-2-{bm25s.__version__}-{WORDS}"


class Bm25Writer:
    """Indexes texts, one after the other."""

    def __init__(self, folder: Path, *, stem: bool) -> None:
        self._folder = folder
        self._stem = stem
        self._numbers: dict[str, int] = {}
        self._ids: list[array[int]] = []

    def add(self, text: str) -> None:
        """The next text."""
        numbers = self._numbers
        ids = (numbers.setdefault(word, len(numbers)) for word in words(text, stem=self._stem))
        self._ids.append(array("i", ids))  # a quarter of what a list takes

    def close(self) -> None:
        """Write the index."""
        if not self._numbers:  # no word at all: one that no query has
            self._numbers, self._ids = {"": 0}, [array("i", [0]) for _ in self._ids]
        index = bm25s.BM25(backend="numpy")
        index.index((self._ids, self._numbers), show_progress=False)
        index.save(self._folder, show_progress=False)


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
