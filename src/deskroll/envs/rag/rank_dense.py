"""Passages ranked by likeness of meaning: averaged word vectors, by the package wordllama, without the network."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deskroll.errors import MissingDependency

VERSION = "dense-1-l2_supercat_256"
_BATCH = 512
_FILE = "vectors.npy"


@functools.cache
def _model() -> Any:
    """The vectors that come with the package; once for a process."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    try:
        import wordllama  # type: ignore[import-untyped]  # noqa: PLC0415  (an extra of its own)
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"retriever 'dense' needs the module {error.name!r}: pip install 'deskroll[rag-dense]'"
        ) from None
    finally:  # it takes it upon itself to print everybody's log lines
        root.setLevel(level)
        root.handlers[:] = handlers
    # It looks for its tokenizer in the wrong folder of its own, and would fetch it: so name the right one.
    home = Path(wordllama.__file__).parent
    try:
        return wordllama.WordLlama.load(dim=256, cache_dir=home, disable_download=True)
    except FileNotFoundError as error:
        raise MissingDependency(
            f"wordllama came without its vectors ({error}): pip install --force-reinstall wordllama"
        ) from None


def require() -> None:
    """`MissingDependency` where it cannot be used."""
    _model()


class DenseWriter:
    """Computes the vectors of texts, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: list[str] = []
        self._done: list[npt.NDArray[np.float32]] = []

    def add(self, text: str) -> None:
        """The next text."""
        self._waiting.append(text)
        if len(self._waiting) == _BATCH:
            self._embed()

    def close(self) -> None:
        """Write the vectors."""
        if self._waiting:
            self._embed()
        np.save(self._folder / _FILE, np.concatenate(self._done))

    def _embed(self) -> None:
        self._done.append(_embedded(self._waiting))
        self._waiting = []


def _embedded(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    # Without a letter there is no vector, and its length, by which it is divided, is 0.
    vectors: npt.NDArray[np.float32] = np.asarray(_model().embed([each or " " for each in texts]), dtype=np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


class Dense:
    """Vectors, opened: mapped, not read."""

    def __init__(self, folder: Path) -> None:
        self._vectors: npt.NDArray[np.float32] = np.load(folder / _FILE, mmap_mode="r", allow_pickle=False)
        require()

    def scores(self, query: str) -> npt.NDArray[np.float32] | None:
        """The cosine of each passage with the query."""
        scores: npt.NDArray[np.float32] = self._vectors @ _embedded([query])[0]
        return scores
